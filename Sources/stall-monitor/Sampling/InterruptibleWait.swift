import Dispatch
import Glibc
import ProcessWatch
import Synchronization

/// Waits that Ctrl-C interrupts. While this exists, the signal does not end the process by itself.
///
/// It still ends at once if there is nothing to show yet, and always at the second signal: the kernel resumes every thread
/// that this process has stopped (ptrace(2)).
struct InterruptibleWait {
    private let interruption: Interruption
    /// Kept alive, so that the signals are handled.
    private let sources: SignalSources

    private final class Interruption: Sendable {
        let semaphore = DispatchSemaphore(value: 0)
        let count = Atomic<Int>(0)
        /// The first signal's number.
        let number = Atomic<Int32>(0)
    }

    /// - Parameters:
    ///   - endsAtOnce: end at the first signal, because there are no partial results.
    ///   - cleanUp: Called before a signal ends the process.
    init(endsAtOnce: Bool, _ cleanUp: @escaping @Sendable () -> Void) {
        let interruption = Interruption()
        self.interruption = interruption
        // Not on the main queue: the main thread is busy with the target.
        sources = SignalSources([SIGINT, SIGTERM, SIGHUP], qos: .userInteractive) { number in
            _ = interruption.number.compareExchange(expected: 0, desired: number, ordering: .relaxed)
            // Whoever sees the count sees the number, too.
            let before = interruption.count.add(1, ordering: .releasing).oldValue
            if endsAtOnce || before > 0 {
                cleanUp()
                _exit(128 + number)
            }
            interruption.semaphore.signal()
        }
    }

    /// Whether a signal has arrived.
    var isInterrupted: Bool { interruption.count.load(ordering: .acquiring) > 0 }

    /// The exit code after a signal, as shells report it. Meaningful once a wait was interrupted.
    var exitCode: Int32 { 128 + interruption.number.load(ordering: .relaxed) }

    /// Whether no signal has arrived, as a closure to be called between two captures: Ctrl-Z that is held stops this process there.
    var goesOn: @Sendable () -> Bool {
        { [interruption] in
            StopSignal.release()
            StopSignal.hold()
            return interruption.count.load(ordering: .relaxed) == 0
        }
    }

    /// Ctrl-Z that is held stops this process meanwhile.
    ///
    /// - Parameter moment: A time on the clock of `now`. It may be in the past.
    /// - Returns: True at that moment; false if a signal arrived before.
    func wait(until moment: Int64) -> Bool {
        StopSignal.release()
        defer { StopSignal.hold() }
        let moment = DispatchTime(uptimeNanoseconds: UInt64(max(0, moment)))
        return interruption.semaphore.wait(timeout: moment) == .timedOut
    }

    /// Nanoseconds, monotonic.
    static var now: Int64 { Int64(DispatchTime.now().uptimeNanoseconds) }
}
