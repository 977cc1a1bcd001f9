import Dispatch
import Glibc

/// Waits that Ctrl-C ends: from here on the signal no longer ends the process by itself.
struct SamplePause {
    private let interruption = DispatchSemaphore(value: 0)
    /// Kept for as long as they are to be heard.
    private let sources: [any DispatchSourceSignal]

    init() {
        let interruption = interruption
        sources = [SIGINT, SIGTERM, SIGHUP].map { number in
            signal(number, SIG_IGN)
            let source = DispatchSource.makeSignalSource(signal: number)
            source.setEventHandler { interruption.signal() }
            source.activate()
            return source
        }
    }

    /// - Parameter moment: on `now`'s clock. Past moments are fine.
    /// - Returns: whether it came to that moment; if not, the command is to end.
    func wait(until moment: Int64) -> Bool {
        interruption.wait(timeout: DispatchTime(uptimeNanoseconds: UInt64(max(0, moment)))) == .timedOut
    }

    /// Nanoseconds, monotonic.
    static var now: Int64 { Int64(DispatchTime.now().uptimeNanoseconds) }
}
