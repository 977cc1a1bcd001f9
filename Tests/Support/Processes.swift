package import Foundation
package import Testing

extension URL {
    /// A program of this package, built beside the tests.
    package static func built(_ program: String) -> URL {
        URL(filePath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent().appending(path: program)
    }
}

/// The whole text of a file in /proc. Empty if there is none.
///
/// Of such files, which say that they have no bytes, `String(contentsOfFile:)` reads only a first part.
package func procText(_ path: String) -> String {
    String(decoding: (try? FileHandle(forReadingAtPath: path)?.readToEnd()) ?? Data(), as: UTF8.self)
}

/// How long a process's first thread could have run and had no processor: the second number of `/proc/PID/schedstat`, proc(5).
package func timeWithoutProcessor(of process: Int32) -> Duration {
    let counts = procText("/proc/\(process)/schedstat").split(separator: " ")
    return .nanoseconds(counts.dropFirst().first.flatMap { Int64($0) } ?? 0)
}

/// The same, of all its threads together.
package func timeWithoutProcessor(ofThreadsOf process: Int32) -> Duration {
    let threads = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/\(process)/task")) ?? []
    return threads.compactMap { Int32($0) }.reduce(.zero) { $0 + timeWithoutProcessor(of: $1) }
}

extension Process {
    /// Starts it with no signal blocked. Tests run on threads that block most signals, and a child inherits that: it
    /// would not receive Ctrl-C, and gdb would miss SIGCHLD. Nor would it receive Ctrl-C if the tests were started to ignore it, as in
    /// the background of a shell.
    package func runWithSignals() throws {
        for number in [SIGINT, SIGQUIT, SIGHUP] { signal(number, SIG_DFL) }
        var none = sigset_t()
        var before = sigset_t()
        unsafe sigemptyset(&none)
        unsafe pthread_sigmask(SIG_SETMASK, &none, &before)
        defer { unsafe pthread_sigmask(SIG_SETMASK, &before, nil) }
        try run()
    }

    /// Kills it if it goes on for longer: its test fails instead of waiting without end.
    package func waitUntilExit(atMost limit: Duration) {
        let deadline = ContinuousClock.now + limit
        while isRunning, ContinuousClock.now < deadline { usleep(1_000) }
        killIfRunning()
        waitUntilExit()
    }

    /// One that was not started has the number 0, with which kill(2) would end this process and its group. Not SIGTERM: tests run on threads
    /// that block it, and a child inherits that.
    package func killIfRunning() {
        if isRunning { kill(processIdentifier, SIGKILL) }
    }
}

/// A field of a process's `/proc/PID/status`: proc(5). Empty if it has ended.
package func statusField(_ name: String, of process: Int32) -> String {
    let status = (try? String(contentsOfFile: "/proc/\(process)/status", encoding: .utf8)) ?? ""
    let line = status.split(separator: "\n").first { $0.hasPrefix(name + ":") }
    return line.map { $0.dropFirst(name.count + 1).trimmingCharacters(in: .whitespaces) } ?? ""
}

/// Waits for what another thread or process is to do. If it does not come within a minute, the test has failed, and continues. The limit
/// only ends a hang: no working machine is so slow.
///
/// - Parameter sourceLocation: The location of the wait. On a separate thread an issue cannot be attributed to its test
///   otherwise.
package func waitUntil(
    sourceLocation: SourceLocation = #_sourceLocation,
    _ condition: () throws -> Bool
) rethrows {
    let deadline = ContinuousClock.now + .seconds(60)
    while try !condition() {
        if ContinuousClock.now > deadline {
            Issue.record("what another thread or process was to do did not come", sourceLocation: sourceLocation)
            return
        }
        usleep(200)
    }
}

/// In an exit test: its standard error is thrown away, which would hide why it ended otherwise than it should. From now on it goes where that of
/// the test's own process goes.
package func useStandardErrorOfParent() {
    let descriptor = unsafe open("/proc/\(getppid())/fd/\(STDERR_FILENO)", O_WRONLY | O_APPEND | O_CLOEXEC)
    guard descriptor >= 0 else { return }
    dup2(descriptor, STDERR_FILENO)
    close(descriptor)
}
