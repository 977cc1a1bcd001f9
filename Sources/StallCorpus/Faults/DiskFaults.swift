import Glibc
import RunLoopKit

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
