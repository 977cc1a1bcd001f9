import CStallCorpus
import Glibc

/// The two ends of a pipe or of a pair of sockets. They live as long as the process.
struct Descriptors: Sendable {
    let first: Int32
    let second: Int32

    static func pipe() throws -> Descriptors {
        unsafe try Descriptors("pipe") { unsafe corpus_pipe($0) }
    }

    static func socketPair(type: __socket_type = SOCK_STREAM) throws -> Descriptors {
        unsafe try Descriptors("pair of sockets") {
            unsafe socketpair(AF_UNIX, Int32(type.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0, $0)
        }
    }

    /// A listening socket. If it is full, a client that connects waits until a connection is accepted.
    static func listener(at path: String, full: Bool) throws -> Int32 {
        let listener = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        let bound = unsafe withUnixAddress(path) { unsafe bind(listener, $0, $1) }
        guard bound == 0, listen(listener, 0) == 0 else { throw SkippedScenario("no socket (errno \(errno))") }
        if full {
            let client = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
            _ = unsafe withUnixAddress(path) { unsafe connect(client, $0, $1) }
        }
        return listener
    }

    private init(_ what: String, _ make: (UnsafeMutablePointer<Int32>) -> Int32) throws {
        var ends: [Int32] = [-1, -1]
        guard unsafe make(&ends) == 0 else { throw SkippedScenario("no \(what) to be had (errno \(errno))") }
        (first, second) = (ends[0], ends[1])
    }

    /// Writes until the buffer is full.
    func fill() {
        let block = [UInt8](repeating: 0, count: 4096)
        let flags = fcntl(second, F_GETFL)
        _ = fcntl(second, F_SETFL, flags | O_NONBLOCK)
        while unsafe write(second, block, block.count) > 0 {}
        _ = fcntl(second, F_SETFL, flags)
    }

    /// Makes the first end readable.
    func writeByte() { _ = unsafe write(second, "x", 1) }

    /// Reads up to 64 KiB from the first end.
    func drain() {
        var block = [UInt8](repeating: 0, count: 64 << 10)
        _ = unsafe read(first, &block, block.count)
    }
}

/// The text of a small file; empty when it cannot be read.
func textOfFile(_ path: String) -> String {
    let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return "" }
    defer { close(descriptor) }
    return unsafe withUnsafeTemporaryAllocation(byteCount: 4096, alignment: 1) { buffer in
        let count = unsafe read(descriptor, buffer.baseAddress, buffer.count)
        return unsafe count > 0 ? String(decoding: buffer[..<count], as: UTF8.self) : ""
    }
}

/// Writes a text into a file with one write. Returns false on failure.
@discardableResult
func writeFile(_ text: String, to path: String, creating: Bool = false) -> Bool {
    let flags = O_WRONLY | O_CLOEXEC | (creating ? O_CREAT | O_TRUNC : 0)
    let descriptor = unsafe open(path, flags, 0o600)
    guard descriptor >= 0 else { return false }
    defer { close(descriptor) }
    let bytes = Array(text.utf8)
    return unsafe write(descriptor, bytes, bytes.count) == bytes.count
}

/// Starts a system program that inherits only the standard descriptors. Returns its process number.
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

/// Runs a shell command, and returns when it has ended.
func runShell(_ line: String) throws {
    let shell = try startProgram("/bin/sh", "-c", line)
    var status: Int32 = 0
    while unsafe waitpid(shell, &status, 0) < 0, errno == EINTR {}
}
