import Glibc
import Testing

@testable import StallReports

/// A child that waits until it is killed.
final class ChildProcess {
    let pid: pid_t

    init() throws {
        var pid: pid_t = 0
        let name = unsafe strdup("sleep")
        let argument = unsafe strdup("600")
        defer {
            unsafe free(name)
            unsafe free(argument)
        }
        var arguments: [UnsafeMutablePointer<CChar>?] = unsafe [name, argument, nil]
        let status = unsafe posix_spawn(&pid, "/bin/sleep", nil, nil, &arguments, environ)
        try #require(status == 0)
        self.pid = pid
    }

    /// The identity as the child would record it.
    func identity() throws -> ProcessIdentity {
        let stat = try #require(ProcessStat(pid: pid))
        return ProcessIdentity(
            pid: pid,
            startTicks: stat.startTicks,
            pidNamespace: ProcessIdentity.currentPIDNamespace()
        )
    }

    /// Returns when the child is dead and not yet reaped.
    func killLeavingZombie() {
        kill(pid, SIGKILL)
        var info = unsafe siginfo_t()
        unsafe waitid(P_PID, id_t(pid), &info, WEXITED | WNOWAIT)
    }

    func reap() { waitpid(pid, nil, 0) }

    deinit {
        kill(pid, SIGKILL)
        reap()
    }
}
