import Glibc

/// Starts a program of the system's with no descriptor of ours but the standard ones. Its process number.
@discardableResult
func startProgram(_ path: String, _ arguments: String...) throws -> pid_t {
    guard unsafe access(path, X_OK) == 0 else { throw SkippedScenario("no \(path) here") }
    var pointers = unsafe ([path] + arguments).map { unsafe strdup($0) } + [nil]
    defer { for index in unsafe pointers.indices { unsafe free(pointers[index]) } }
    var process: pid_t = 0
    let error = unsafe posix_spawn(&process, path, nil, nil, &pointers, environ)
    guard error == 0 else { throw SkippedScenario("\(path) did not start (errno \(error))") }
    return process
}

/// Runs a line of shell, and returns when it is over.
func runShell(_ line: String) throws {
    let shell = try startProgram("/bin/sh", "-c", line)
    var status: Int32 = 0
    while unsafe waitpid(shell, &status, 0) < 0, errno == EINTR {}
}
