import CFoundationRunLoop

/// The clock and the kernel of one script's threads. See simulated_kernel.h.
@safe final class SimulatedKernel {
    /// Called on a thread when nothing is ready: returns true if `until` was reached, false if another event may have occurred.
    typealias Rest = (_ until: UInt64) -> Bool
    /// Returns the ready descriptor, for an engine that waits like Foundation.
    typealias Arrival = (_ maySleep: Bool) -> Int32

    /// A thousand seconds, so that no value is close to zero.
    static let start: UInt64 = 1_000_000_000_000
    /// No script runs longer.
    static let horizon: UInt64 = start + 100_000_000_000_000

    private let state: UnsafeMutablePointer<simulated_kernel>
    private let rest: Rest
    private var arrival: Arrival?
    private var timed: () -> Void = {}
    /// For Foundation: it has polled only the main queue.
    var lookedAtMainQueue: (_ isReady: Bool) -> Void = { _ in }
    /// For Foundation: the main queue is about to be drained.
    var drains: () -> Void = {}

    init(rest: @escaping Rest) {
        self.rest = rest
        unsafe state = .allocate(capacity: 1)
        unsafe state.initialize(
            to: simulated_kernel(
                now_ns: SimulatedKernel.start,
                context: nil,
                rest: { context, until in
                    guard let context = unsafe context else { return true }
                    return unsafe Unmanaged<SimulatedKernel>.fromOpaque(context).takeUnretainedValue().rest(until)
                },
                arrival: nil,
                timed: nil,
                looked_at_main_queue: nil,
                drains: nil,
                arrived_fd: -1,
                main_queue_fd: -1,
                serves_main_queue: false,
                last_eventfd: -1,
                last_timerfd: -1
            )
        )
        unsafe state.pointee.context = Unmanaged.passUnretained(self).toOpaque()
    }

    /// Called after the threads that entered it have ended.
    deinit { unsafe state.deallocate() }

    /// Nanoseconds of CLOCK_MONOTONIC.
    var now: UInt64 {
        get { unsafe state.pointee.now_ns }
        set { unsafe state.pointee.now_ns = newValue }
    }

    var lastEventfd: Int32 { unsafe state.pointee.last_eventfd }
    var lastTimerfd: Int32 { unsafe state.pointee.last_timerfd }
    var servesMainQueue: Bool { unsafe state.pointee.serves_main_queue }

    /// Switches the calling thread to this kernel.
    func enter() { unsafe simulated_kernel_enter(state) }

    static func leave() { simulated_kernel_enter(nil) }

    /// For Foundation, before its loop is created.
    func useArrival(mainQueue: Int32, _ arrival: @escaping Arrival, timed: @escaping () -> Void) {
        self.arrival = arrival
        self.timed = timed
        unsafe state.pointee.main_queue_fd = mainQueue
        unsafe state.pointee.arrival = { context, maySleep in
            guard let context = unsafe context else { return -1 }
            let kernel = unsafe Unmanaged<SimulatedKernel>.fromOpaque(context).takeUnretainedValue()
            return kernel.arrival?(maySleep) ?? -1
        }
        unsafe state.pointee.looked_at_main_queue = { context, isReady in
            guard let context = unsafe context else { return }
            unsafe Unmanaged<SimulatedKernel>.fromOpaque(context).takeUnretainedValue().lookedAtMainQueue(isReady)
        }
        unsafe state.pointee.drains = { context in
            guard let context = unsafe context else { return }
            unsafe Unmanaged<SimulatedKernel>.fromOpaque(context).takeUnretainedValue().drains()
        }
        unsafe state.pointee.timed = { context in
            guard let context = unsafe context else { return }
            unsafe Unmanaged<SimulatedKernel>.fromOpaque(context).takeUnretainedValue().timed()
        }
    }

    /// Moves the clock to the first microsecond that is not before the date: a kernel is never early.
    func advance(past date: UInt64) { now = max(now, (date + 999) / 1000 * 1000) }
}
