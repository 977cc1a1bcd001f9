import Dispatch
import Glibc
import Synchronization

/// Waits that Ctrl-C ends: from here on the signal no longer ends the process by itself.
///
/// The process ends at once where there is nothing to show yet, and at the second signal in any case: the kernel lets every thread of the target go
/// on that this process has stopped (ptrace(2)).
struct SamplePause {
    private let interruption: Interruption
    /// Kept for as long as they are to be heard.
    private let sources: [any DispatchSourceSignal]

    private final class Interruption: Sendable {
        let semaphore = DispatchSemaphore(value: 0)
        let count = Atomic<Int>(0)
    }

    /// - Parameter endsAtOnce: what there is when the signal comes is not worth showing.
    init(endsAtOnce: Bool) {
        let interruption = Interruption()
        self.interruption = interruption
        sources = [SIGINT, SIGTERM, SIGHUP].map { number in
            signal(number, SIG_IGN)
            // Not on the main queue: the main thread is busy with the target.
            let source = DispatchSource.makeSignalSource(signal: number, queue: .global(qos: .userInteractive))
            source.setEventHandler {
                let before = interruption.count.add(1, ordering: .relaxed).oldValue
                if endsAtOnce || before > 0 { _exit(128 + number) }
                interruption.semaphore.signal()
            }
            source.activate()
            return source
        }
    }

    /// Whether the command is to end.
    var isInterrupted: Bool { interruption.count.load(ordering: .relaxed) > 0 }

    /// The opposite, for other threads.
    var goesOn: @Sendable () -> Bool { { [interruption] in interruption.count.load(ordering: .relaxed) == 0 } }

    /// - Parameter moment: on `now`'s clock. Past moments are fine.
    /// - Returns: whether it came to that moment; if not, the command is to end.
    func wait(until moment: Int64) -> Bool {
        let moment = DispatchTime(uptimeNanoseconds: UInt64(max(0, moment)))
        return interruption.semaphore.wait(timeout: moment) == .timedOut
    }

    /// Nanoseconds, monotonic.
    static var now: Int64 { Int64(DispatchTime.now().uptimeNanoseconds) }
}
