package import Glibc
package import RunLoopKit
package import RunLoopPorts
import Synchronization
import Testing

/// Like `onLoopThread`, for bodies that throw.
package func onLoop<Result: Sendable>(_ body: @escaping @Sendable (EventRunLoop) throws -> Result) async throws
    -> Result
{
    try await onLoopThread { loop in Swift.Result { try body(loop) } }.get()
}

/// What a call threw; nil if it did not.
package func failure(_ body: () throws -> Void) -> RunLoopError.Code? {
    do {
        try body()
        return nil
    } catch {
        guard let error = error as? RunLoopError else {
            Issue.record(error)
            return nil
        }
        return error.code
    }
}

/// A directory of port names for one test.
package final class TestDirectory: Sendable {
    package let ports: PortDirectory

    package init() { ports = PortDirectory("/tmp/run-loop-ports-test-\(UInt64.random(in: 0...UInt64.max))") }

    deinit {
        guard let listing = unsafe opendir(ports.path) else { return }
        while let entry = unsafe readdir(listing) {
            let name = unsafe withUnsafePointer(to: &entry.pointee.d_name.0) { unsafe String(cString: $0) }
            _ = unsafe unlink(ports.path + "/" + name)
        }
        unsafe closedir(listing)
        _ = unsafe rmdir(ports.path)
    }
}

/// A function of the C library that its module lacks. It works in one step, so that no child of another test inherits
/// the ends.
@_silgen_name("pipe2")
package func openPipe(_ ends: UnsafeMutablePointer<Int32>, _ flags: Int32) -> Int32

/// A fixture process at the other end of two pipes.
package final class PortProcess: Sendable {
    package let pid: pid_t
    private let input: Mutex<Int32>
    private let output: Int32
    /// Whether the process was waited for: its id may then belong to another process.
    private let isReaped = Mutex(false)

    package init(_ role: String, _ directory: PortDirectory, _ name: String = "port") throws {
        let program = try Fixture.directory() + "/PortsFixture"
        var input: [Int32] = [-1, -1]
        var output: [Int32] = [-1, -1]
        guard unsafe openPipe(&input, O_CLOEXEC) == 0, unsafe openPipe(&output, O_CLOEXEC) == 0 else {
            throw Fixture.Failure(reason: "pipe2: errno \(errno)")
        }
        var actions = unsafe posix_spawn_file_actions_t()
        unsafe posix_spawn_file_actions_init(&actions)
        unsafe posix_spawn_file_actions_adddup2(&actions, input[0], 0)
        unsafe posix_spawn_file_actions_adddup2(&actions, output[1], 1)
        var child = pid_t()
        let words = [program, role, directory.path, name]
        var arguments: [UnsafeMutablePointer<CChar>?] = unsafe words.map { unsafe strdup($0) } + [nil]
        let failure = unsafe posix_spawn(&child, program, &actions, nil, &arguments, environ)
        for index in words.indices { unsafe free(arguments[index]) }
        unsafe posix_spawn_file_actions_destroy(&actions)
        close(input[0])
        close(output[1])
        pid = child
        self.input = Mutex(input[1])
        self.output = output[0]
        guard failure == 0 else {
            // There is nothing to wait for, and to kill the number 0 is to kill the tests.
            isReaped.withLock { $0 = true }
            throw Fixture.Failure(reason: "posix_spawn: errno \(failure)")
        }
    }

    deinit {
        endInput()
        close(output)
        kill()
    }

    /// One line without its end; nil if there are no more. A process that prints nothing for three minutes fails its test.
    package func readLine() -> String? {
        var line: [UInt8] = []
        var byte: UInt8 = 0
        while true {
            var polled = pollfd(fd: output, events: Int16(POLLIN), revents: 0)
            let ready = unsafe poll(&polled, 1, 180_000)
            // A signal has ended the wait.
            if ready < 0 { continue }
            if ready == 0 { Issue.record("the process prints nothing") }
            guard ready > 0, unsafe read(output, &byte, 1) == 1 else { break }
            if byte == UInt8(ascii: "\n") { return String(decoding: line, as: UTF8.self) }
            line.append(byte)
        }
        return line.isEmpty ? nil : String(decoding: line, as: UTF8.self)
    }

    package func writeLine() { input.withLock { _ = unsafe write($0, "\n", 1) } }

    package func endInput() {
        input.withLock { fd in
            if fd >= 0 { close(fd) }
            fd = -1
        }
    }

    /// Sends SIGKILL, and waits until the process has ended.
    package func kill() {
        if !isReaped.withLock({ $0 }) { Glibc.kill(pid, SIGKILL) }
        _ = wait()
    }

    /// Waits until it has ended; returns its exit code, or minus the signal. Nil if it was waited for before.
    @discardableResult
    package func wait() -> Int32? {
        isReaped.withLock { isReaped in
            guard !isReaped else { return nil }
            var status: Int32 = 0
            while unsafe waitpid(pid, &status, 0) < 0 && errno == EINTR {}
            isReaped = true
            return status & 0x7F == 0 ? status >> 8 & 0xFF : -(status & 0x7F)
        }
    }
}

extension EventRunLoop {
    /// Runs until the condition holds; after a minute the test has failed.
    package func run(mode: Mode = .default, until condition: () -> Bool) {
        let deadline = MonotonicInstant.now.advanced(by: .seconds(60))
        while !condition() {
            if MonotonicInstant.now > deadline {
                Issue.record("what the loop was to see did not come")
                return
            }
            _ = run(mode: mode, for: .milliseconds(20), returnAfterSourceHandled: true)
        }
    }
}
