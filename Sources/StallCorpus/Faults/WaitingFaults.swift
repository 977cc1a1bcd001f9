import CStallCorpus
import Glibc
import RunLoopKit

// Work that waits in the kernel, each in a separate function that
// the report must name. Each function does some work after its call.

@inline(never)
func sleepInHandler(_ duration: Duration) -> Int {
    let result = usleep(UInt32(duration / .microseconds(1)))
    return Int(result) + 1
}

@inline(never)
func readFromPipe(_ input: Int32) -> Int {
    var byte: UInt8 = 0
    let count = unsafe read(input, &byte, 1)
    return count + Int(byte)
}

@inline(never)
func writeToFullPipe(_ output: Int32) -> Int {
    let block = [UInt8](repeating: 1, count: 4096)
    let count = unsafe write(output, block, block.count)
    return count + 1
}

@inline(never)
func receiveFromSocket(_ socket: Int32) -> Int {
    var byte: UInt8 = 0
    let count = unsafe recv(socket, &byte, 1, 0)
    return count + Int(byte)
}

@inline(never)
func connectToServer(_ path: String) -> Int {
    let client = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    let result = unsafe withUnixAddress(path) { unsafe connect(client, $0, $1) }
    close(client)
    return Int(result) + 1
}

@inline(never)
func acceptClient(_ listener: Int32) -> Int {
    let client = accept(listener, nil, nil)
    close(client)
    return Int(client) + 1
}

@inline(never)
func waitForChild(_ process: pid_t) -> Int {
    var status: Int32 = 0
    let ended = unsafe waitpid(process, &status, 0)
    return Int(ended) + Int(status)
}

@inline(never)
func lockFile(_ descriptor: Int32) -> Int {
    let result = flock(descriptor, LOCK_EX)
    flock(descriptor, LOCK_UN)
    return Int(result) + 1
}

/// Like a resolver: sends a datagram, and waits for an answer until the timeout.
@inline(never)
func resolveName(_ socket: Int32, patience: Duration) -> Int {
    let query = [UInt8](repeating: 0x20, count: 32)
    var answer = [UInt8](repeating: 0, count: 512)
    let sent = unsafe send(socket, query, query.count, 0)
    var request = pollfd(fd: socket, events: Int16(POLLIN), revents: 0)
    let ready = unsafe poll(&request, 1, Int32(patience / .milliseconds(1)))
    guard ready > 0 else { return sent + 1 }
    return unsafe recv(socket, &answer, answer.count, 0)
}

/// A separate event loop, run inside a callout of the loop.
@inline(never)
func waitForEvents(_ duration: Duration) -> Int {
    let count = corpus_wait_for_events(Int32(duration / .milliseconds(1)))
    return Int(count) + 1
}

/// Calls the body with a Unix address in the kernel's format.
func withUnixAddress(_ path: String, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32) -> Int32 {
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    precondition(path.utf8.count < MemoryLayout.size(ofValue: address.sun_path), "too long for a socket's path")
    unsafe withUnsafeMutableBytes(of: &address.sun_path) { unsafe $0.copyBytes(from: path.utf8) }
    return unsafe withUnsafePointer(to: &address) { pointer in
        unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            unsafe body($0, socklen_t(MemoryLayout<sockaddr_un>.size))
        }
    }
}
