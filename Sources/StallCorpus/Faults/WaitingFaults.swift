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

enum SlowValue {
    /// Whoever uses it first waits for it.
    static let shared = Int(usleep(UInt32(Stage.usualLength / .microseconds(1)))) + 1
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

// Work that waits for a disk.

/// Changes a file and syncs it to the disk, repeatedly.
@inline(never)
func syncFile(_ file: ScratchFile, until end: MonotonicInstant) -> Int {
    var rounds = 0
    repeat {
        file.dirty(round: rounds)
        fsync(file.descriptor)
        rounds += 1
    } while MonotonicInstant.now < end
    return rounds
}

/// Reads a mapped file whose pages are only on the disk.
@inline(never)
func readMappedFile(_ file: ScratchFile, until end: MonotonicInstant) -> Int {
    var sum = 0
    repeat {
        guard let pages = file.mapped() else { return sum }
        // The step is coprime to the number of pages, so that read-ahead cannot predict it.
        var page = 0
        for _ in 0..<ScratchFile.pageCount where MonotonicInstant.now < end {
            sum += Int(unsafe pages.bytes[page * ScratchFile.pageSize])
            page = (page + 7_919) % ScratchFile.pageCount
        }
        pages.unmap()
    } while MonotonicInstant.now < end
    return sum
}

/// An unlinked file of 64 MB on a disk.
final class ScratchFile: Sendable {
    static let pageSize = 4096
    static let pageCount = 16 << 10
    let descriptor: Int32
    private static let chunk = [UInt8](repeating: 0x5a, count: 1 << 20)
    private static var size: Int { pageSize * pageCount }

    init() throws {
        var template = Array("/var/tmp/stall-corpus.XXXXXX".utf8CString)
        descriptor = unsafe mkstemp(&template)
        guard descriptor >= 0 else { throw SkippedScenario("no temporary file in /var/tmp (errno \(errno))") }
        unsafe unlink(template)
        for _ in 0..<Self.size >> 20 { _ = unsafe write(descriptor, Self.chunk, Self.chunk.count) }
        fsync(descriptor)
    }

    deinit { close(descriptor) }

    /// Changes a few pages, so that there is something to sync. With many
    /// pages the thread would compute for longer than a fast disk takes.
    func dirty(round: Int) {
        let offset = round % (Self.size >> 20) << 20
        _ = unsafe pwrite(descriptor, Self.chunk, Self.pageSize * 16, offset)
    }

    /// Maps the file after all its pages were dropped from memory.
    func mapped() -> Pages? {
        posix_fadvise(descriptor, 0, 0, Int32(POSIX_FADV_DONTNEED))
        guard let start = unsafe mmap(nil, Self.size, PROT_READ, MAP_SHARED, descriptor, 0), unsafe start != MAP_FAILED
        else { return nil }
        unsafe madvise(start, Self.size, Int32(MADV_RANDOM))
        return unsafe Pages(bytes: UnsafeRawBufferPointer(start: start, count: Self.size))
    }

    @safe struct Pages {
        let bytes: UnsafeRawBufferPointer

        func unmap() { unsafe munmap(UnsafeMutableRawPointer(mutating: bytes.baseAddress), bytes.count) }
    }
}
