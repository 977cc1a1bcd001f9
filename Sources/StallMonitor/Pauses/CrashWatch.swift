import Glibc
import StallDiagnosis
import StallReports

/// Whether the process is about to end by a crash, and only its crash handler is at work: Swift's, which has all other threads stand and
/// waits for `swift-backtrace` to tell where they are. That takes seconds, and none of it is a stall of the loops'. The monitor's own threads
/// take no signals, and go on.
///
/// Of another handler of crashes nothing is known. Confined to the watchdog's thread.
struct CrashWatch: Sendable {
    /// Whether somebody handles the signals of a crash: only then their handling can have been given back.
    private let isHandled: Bool
    private let handler: String

    /// - Parameter handler: the name of the process that a crash starts.
    init(handler: String = "swift-backtrace") {
        (isHandled, self.handler) = (Self.handlesCrashes, handler)
    }

    /// One system call; more only where the process is no longer what it was.
    func isUnderWay() -> Bool {
        guard isHandled, !Self.handlesCrashes else { return false }
        return ChildProcesses.alive().contains { $0.name == handler }
    }

    /// The first thing that Swift's handler does is to give all of them back to the system.
    private static var handlesCrashes: Bool {
        var action = sigaction()
        guard unsafe sigaction(SIGILL, nil, &action) == 0 else { return false }
        return unsafe action.__sigaction_handler.sa_sigaction != nil
    }
}
