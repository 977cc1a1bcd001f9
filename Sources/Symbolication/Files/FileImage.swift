import Glibc

/// A file's bytes in our own memory, read on demand.
///
/// libelf and libdw are given memory of the whole file's length. Only the loaded parts contain the file's bytes; the rest reads
/// as zeros and uses no memory. So a lookup in a file of a hundred megabytes reads only the few that it needs, and its cost is
/// known. If the file is truncated in the meantime, the result is an error, where a mapped file would kill the process.
@safe final class FileImage {
    static let pageSize = 4096
    /// Larger files are refused. A server's executable has some hundred megabytes.
    static let sizeLimit = 16 << 30

    let path: String
    let size: Int
    /// One page longer than the file, so that text at its end is terminated.
    let base: UnsafeMutableRawPointer
    /// The number of loaded bytes, plus the table that records them.
    private(set) var byteCount: Int
    /// Nil for an image that was created from memory.
    private let stamp: FileStamp?
    /// Per page.
    private var isLoaded: [Bool]
    private var descriptor: Int32 = -1

    init(path: String, _ allowance: Allowance) throws(SymbolProblem) {
        let descriptor = try Self.open(path)
        do throws(SymbolProblem) {
            let stamp = try Self.stamp(of: descriptor, path)
            let size = Int(stamp.size)
            try allowance.spend(Self.pageCount(size))
            // Fails because of a limit on the address space, or a system that does not overcommit memory.
            guard let base = unsafe Self.reserve(size) else { throw SymbolProblem(.outOfMemory, path: path) }
            unsafe self.base = unsafe base
            (self.path, self.size, self.stamp, self.descriptor) = (path, size, stamp, descriptor)
        } catch {
            close(descriptor)
            throw error
        }
        isLoaded = Array(repeating: false, count: Self.pageCount(size))
        byteCount = isLoaded.count
    }

    private static func stamp(of descriptor: Int32, _ path: String) throws(SymbolProblem) -> FileStamp {
        guard let stamp = FileStamp(descriptor: descriptor), stamp.isRegular else {
            throw SymbolProblem(.notAFile, path: path)
        }
        guard stamp.size > 0, stamp.size <= sizeLimit else { throw SymbolProblem(.notELF, path: path) }
        return stamp
    }

    /// Nil if there is not enough memory.
    init?(bytes: [UInt8], name: String) {
        guard !bytes.isEmpty, let base = unsafe Self.reserve(bytes.count) else { return nil }
        path = name
        size = bytes.count
        unsafe self.base = unsafe base
        unsafe bytes.withUnsafeBytes { unsafe base.copyMemory(from: $0.baseAddress!, byteCount: $0.count) }
        stamp = nil
        isLoaded = Array(repeating: true, count: Self.pageCount(size))
        byteCount = size + isLoaded.count
    }

    deinit {
        release()
        unsafe munmap(base, Self.mappedLength(size))
    }

    /// Closes the file until it is needed again: the host's descriptors are not ours to use up.
    func release() {
        if descriptor >= 0 { close(descriptor) }
        descriptor = -1
    }

    /// Whether what is not loaded yet can still be read: the file has not been replaced, and is not out of reach, as that of a process which has
    /// ended is by the path through the process's directory.
    var isReachable: Bool { stamp == nil || descriptor >= 0 || FileStamp(path) == stamp }

    /// Reads the missing parts of the range; what is beyond the file's end is ignored.
    func load(_ range: Range<Int>, _ allowance: Allowance) throws(SymbolProblem) {
        let wanted = range.clamped(to: 0..<size)
        guard !wanted.isEmpty else { return }
        var page = wanted.lowerBound / Self.pageSize
        let last = (wanted.upperBound - 1) / Self.pageSize
        while page <= last {
            guard !isLoaded[page] else {
                page += 1
                continue
            }
            // A quarter of a megabyte at a time, so that the clock is checked.
            let run = isLoaded[page...min(last, page + 63)].prefix { !$0 }.count
            try read(page..<page + run, allowance)
            page += run
        }
    }

    private func read(_ pages: Range<Int>, _ allowance: Allowance) throws(SymbolProblem) {
        if pages.count == 1 { try allowance.step() } else { try allowance.checkTime() }
        let start = pages.lowerBound * Self.pageSize
        let end = min(pages.upperBound * Self.pageSize, size)
        try allowance.spend(end - start)
        try reopen()
        // Page faults would cost as much again as the reading. Older systems reject this call, and have the faults.
        if pages.count > 1 { unsafe _ = madvise(base + start, pages.count * Self.pageSize, Self.populateForWriting) }
        var at = start
        while at < end {
            let count = unsafe pread(descriptor, base + at, end - at, off_t(at))
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw SymbolProblem(count == 0 ? .changed : .unreadable, path: path) }
            at += count
        }
        for page in pages { isLoaded[page] = true }
        byteCount += end - start
    }

    private func reopen() throws(SymbolProblem) {
        guard descriptor < 0, let stamp else { return }
        descriptor = try Self.open(path)
        if FileStamp(descriptor: descriptor) != stamp {
            release()
            throw SymbolProblem(.changed, path: path)
        }
    }

    /// Does not block on a pipe, and does not make a terminal the controlling one.
    static func open(_ path: String) throws(SymbolProblem) -> Int32 {
        // Checked first: opening a device can have side effects.
        if let stamp = FileStamp(path), !stamp.isRegular { throw SymbolProblem(.notAFile, path: path) }
        let descriptor = unsafe Glibc.open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
        if descriptor >= 0 { return descriptor }
        switch errno {
        case ENOENT, ENOTDIR: throw SymbolProblem(.missingFile, path: path)
        // Not a property of the file: what is missing because of it is looked for again.
        case EMFILE, ENFILE: throw SymbolProblem(.outOfDescriptors, path: path)
        default: throw SymbolProblem(.unreadable, path: path)
        }
    }

    /// `MADV_POPULATE_WRITE`, since Linux 5.14.
    private static let populateForWriting: Int32 = 23

    private static func pageCount(_ size: Int) -> Int { (size + pageSize - 1) / pageSize }

    private static func mappedLength(_ size: Int) -> Int { (size / pageSize + 2) * pageSize }

    private static func reserve(_ size: Int) -> UnsafeMutableRawPointer? {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
        let memory = unsafe mmap(nil, mappedLength(size), PROT_READ | PROT_WRITE, flags, -1, 0)
        guard unsafe memory != MAP_FAILED else { return nil }
        // Where the system gives huge pages to everyone, each page that is read would take 2 MiB. Systems without them reject this call.
        unsafe _ = madvise(memory, mappedLength(size), MADV_NOHUGEPAGE)
        return unsafe memory
    }
}

// Values

extension FileImage {
    /// - Returns: Fewer bytes at the file's end.
    func bytes(_ range: Range<Int>, _ allowance: Allowance) throws(SymbolProblem) -> [UInt8] {
        let range = range.clamped(to: 0..<size)
        try load(range, allowance)
        return unsafe Array(UnsafeRawBufferPointer(start: base + range.lowerBound, count: range.count))
    }

    /// Like ``bytes(_:_:)``, but nothing is kept in the image.
    func passingBytes(_ range: Range<Int>, _ allowance: Allowance) throws(SymbolProblem) -> [UInt8] {
        var bytes: [UInt8] = []
        try passBytes(range, into: &bytes, allowance)
        return bytes
    }

    /// - Parameter bytes: The contents are replaced; the memory is reused.
    func passBytes(
        _ range: Range<Int>,
        into bytes: inout [UInt8],
        _ allowance: Allowance
    ) throws(SymbolProblem) {
        guard stamp != nil else {
            bytes = try self.bytes(range, allowance)
            return
        }
        let range = range.clamped(to: 0..<size)
        try allowance.checkTime()
        try reopen()
        if bytes.count != range.count { bytes = [UInt8](repeating: 0, count: range.count) }
        var filled = 0
        while filled < range.count {
            let count = unsafe bytes.withUnsafeMutableBytes { bytes in
                let rest = unsafe UnsafeMutableRawBufferPointer(rebasing: bytes[filled...])
                return unsafe pread(descriptor, rest.baseAddress, rest.count, off_t(range.lowerBound + filled))
            }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw SymbolProblem(count == 0 ? .changed : .unreadable, path: path) }
            filled += count
        }
    }

    /// - Returns: Nil if the value is not completely in the file.
    func value<T: BitwiseCopyable>(
        _ type: T.Type,
        at offset: Int,
        _ allowance: Allowance
    ) throws(SymbolProblem) -> T? {
        guard offset >= 0, offset <= size - MemoryLayout<T>.size else { return nil }
        try load(offset..<offset + MemoryLayout<T>.size, allowance)
        return unsafe (base + offset).loadUnaligned(as: type)
    }

    /// Text up to a zero byte, with no more characters outside of ASCII in a row than names have.
    ///
    /// - Parameter longest: Longer text is cut. The longest names of templates have some ten thousand bytes.
    func text(at offset: Int, upTo longest: Int = 65_536, _ allowance: Allowance) throws(SymbolProblem) -> String? {
        guard offset >= 0, offset < size else { return nil }
        let limit = min(size, offset + longest)
        var end = offset
        while end < limit {
            try load(end..<end + 1, allowance)
            let next = min(limit, (end / Self.pageSize + 1) * Self.pageSize)
            let part = unsafe UnsafeRawBufferPointer(start: base + end, count: next - end)
            if let zero = unsafe part.firstIndex(of: 0) {
                end += zero
                break
            }
            end = next
        }
        return unsafe String(boundedUTF8: UnsafeRawBufferPointer(start: base + offset, count: end - offset))
    }

    /// The file offset of memory to which a library points. Nil for the library's own memory.
    func offset(of pointer: UnsafeRawPointer) -> Int? {
        let distance = unsafe Int(bitPattern: pointer) &- Int(bitPattern: base)
        return distance >= 0 && distance < size ? distance : nil
    }
}

/// The attributes that change when a file is replaced or written to.
struct FileStamp: Hashable, Sendable {
    var device: UInt64
    var inode: UInt64
    var size: Int64
    /// Separate from its nanoseconds: combined they could overflow for some file times.
    var modifiedSeconds: Int64
    var modifiedNanoseconds: Int64
    var isRegular: Bool

    /// Nil if there is no such file, or it may not be inspected.
    init?(_ path: String) {
        var status = stat()
        guard unsafe stat(path, &status) == 0 else { return nil }
        self.init(status)
    }

    init?(descriptor: Int32) {
        var status = stat()
        guard unsafe fstat(descriptor, &status) == 0 else { return nil }
        self.init(status)
    }

    private init(_ status: stat) {
        device = UInt64(status.st_dev)
        inode = UInt64(status.st_ino)
        size = Int64(status.st_size)
        (modifiedSeconds, modifiedNanoseconds) = (Int64(status.st_mtim.tv_sec), Int64(status.st_mtim.tv_nsec))
        isRegular = status.st_mode & S_IFMT == S_IFREG
    }
}
