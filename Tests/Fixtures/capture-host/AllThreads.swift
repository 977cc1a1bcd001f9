import CStalls
import Glibc
import StackCapture
import Symbolication

/// A process with many threads that captures all of them.
enum AllThreads: String {
    /// 500 sleeping threads with up to 60 frames, many times: prints the cost.
    case all
    /// One thread is stopped inside of malloc with its lock, others wait
    /// for it: prints the number of threads that were found in this state.
    case malloc

    func run() {
        guard let capturer = try? StackCapturer(deadline: .seconds(5)) else { exit(1) }
        switch self {
        case .all: Self.measure(capturer)
        case .malloc: Self.captureLocked(capturer)
        }
    }

    private static func measure(_ capturer: StackCapturer) {
        for depth in [60, 1000, 100_000] { measureOne(capturer, depth: depth) }
        for index in 0..<500 { _ = unsafe stall_start(STALL_LOCK, Int32(index % 10 * 5), 0, nil) }
        usleep(300_000)
        var times: [Duration] = []
        var cpu: [Duration] = []
        for round in 0..<50 {
            let began = ownTime()
            guard case .success(let result) = capturer.captureAll(within: .seconds(5)) else { exit(1) }
            let threads = result.groups.reduce(0) { $0 + $1.threads.count }
            let longest = result.groups.map(\.stack.frames.count).max() ?? 0
            if round == 0 {
                print(
                    "FIRST \(threads) threads, \(result.groups.count) stacks, at most \(longest) frames: \(result.duration)"
                )
            }
            times.append(result.duration)
            cpu.append(.nanoseconds(ownTime() - began))
        }
        times.sort()
        cpu.sort()
        print("MEDIAN \(times[25]), least \(times[0]), most \(times[49]); on a processor \(cpu[25])")
    }

    /// One running thread, ten times: prints the minimum, since other threads need the processor, too.
    private static func measureOne(_ capturer: StackCapturer, depth: Int) {
        let stall = unsafe stall_start(STALL_SPIN, Int32(depth), 0, nil)
        let (thread, low, high) = unsafe (stall_thread(stall), stall_stack_low(stall), stall_stack_high(stall))
        let costs = (0..<10).compactMap { _ in
            try? capturer.capture(threadID: thread, stack: UInt(low)..<UInt(high)).get().cost
        }
        _ = unsafe stall_finish(stall)
        guard let held = costs.map(\.heldNanoseconds).min(), let unwind = costs.map(\.unwindNanoseconds).min() else {
            return
        }
        print(
            "ONE of \(depth) frames: held \(held) ns, unwound in \(unwind) ns; at first \(costs[0].unwindNanoseconds) ns"
        )
    }

    /// The processor time of the calling thread, in nanoseconds.
    private static func ownTime() -> Int {
        var time = timespec()
        unsafe clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return time.tv_sec * 1_000_000_000 + time.tv_nsec
    }

    private static func captureLocked(_ capturer: StackCapturer) {
        // Without optimisation, Swift allocates on the first use of some types.
        for kind in [STALL_LOCK, STALL_SPIN] {
            let stall = unsafe stall_start(kind, 1, 0, nil)
            _ = capturer.captureAll(within: .seconds(60))
            _ = unsafe stall_finish(stall)
        }
        // The lock is released when this thread waits for it: when all stacks are copied, and become arrays.
        let holder = stall_hold_malloc(8)
        let result = capturer.captureAll(within: .seconds(60))
        guard case .success(let stacks) = result else { exit(1) }
        let held = stacks.groups.filter { $0.threads.contains { $0.threadID == holder } }.map { names(of: $0.stack) }
        let waiting = stacks.groups.filter { names(of: $0.stack).contains("allocate_until_released") }
        print("HOLDER \(held.first ?? [])")
        print("WAITING \(waiting.flatMap(\.threads).count { $0.systemCall?.name == "futex" })")
    }

    private static func names(of stack: CapturedStack) -> [String] {
        let addresses = stack.frames.enumerated().map {
            ResolvableAddress(address: $1.address, isReturnAddress: $0 > 0)
        }
        return Symbolicator().resolve(addresses, budget: .tool).frames.map { $0.symbol ?? "?" }
    }
}
