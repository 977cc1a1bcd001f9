import Glibc

/// A live record, as its process writes it. For one thread at a time.
///
/// It is written with pwrite(2), not through a shared mapping. To a reader, and after a kill, both are the same: bytes in the
/// page cache. But a store to a mapped page raises SIGBUS in the process if the file was truncated, or if the disk is full or
/// fails; and it waits for the disk while the page is being written back. None of this may happen to the watched process.
/// (process_vm_writev(2) into the mapping raises no signal, but it dirties pages without the file system's knowledge, which makes
/// kernels before 5.18 panic.)
///
/// The file is locked (flock(2)) as long as it is open: a reader in any pid namespace can see whether the process lives.
///
/// It is never synchronized: it has to outlive the process, not the machine, and on a busy disk a synchronization can take
/// seconds, during which no stall could be recorded. Data that must survive a power failure is in the reports. After one, the
/// file may be torn, and is then useless.
package struct LiveRecordFile: ~Copyable {
    /// For cleaning up after fork(2): no other code may use it.
    package let descriptor: Int32
    /// Nil if the descriptor was closed at once.
    private let identity: FileIdentity?
    private let directory: String
    private let name: String

    /// Whether the file system has locks.
    package let isLocked: Bool

    /// Creates the file, and the directory if it is missing.
    package init(
        in directory: String,
        run: ULID,
        writer: LiveRecord.Writer,
        status: LiveRecord.Status
    ) throws(ReportError) {
        try OpenDirectory.create(path: directory)
        let open = try OpenDirectory(path: directory)
        let (name, draft) = (LiveRecordName(run: run).description, OpenDirectory.newDraftName())
        let file = try open.createFile(draft)
        var writer = writer
        writer.isLocked = file.tryLock()
        // The duplicate shares the lock, and only this object closes it.
        let duplicate = fcntl(file.descriptor, F_DUPFD_CLOEXEC, 0)
        do throws(ReportError) {
            // Before the file has its name: without a descriptor it would lose its lock, and its process would look dead.
            guard duplicate >= 0 else { throw ReportError(errno: errno, path: directory) }
            try file.write(Self.bytes(run: run, writer: writer, status: status))
            try open.rename(draft, to: name)
        } catch {
            if duplicate >= 0 { close(duplicate) }
            try? open.remove(draft)
            throw error
        }
        descriptor = duplicate
        identity = FileIdentity(descriptor: descriptor)
        (self.directory, self.name, isLocked) = (directory, name, writer.isLocked)
    }

    deinit {
        // If the process has closed this number, it may belong to another file now, and is not closed.
        if isOurs { close(descriptor) }
    }

    private var isOurs: Bool { identity != nil && FileIdentity(descriptor: descriptor) == identity }

    /// Leaves out data that would make the head too long.
    private static func bytes(
        run: ULID,
        writer: LiveRecord.Writer,
        status: LiveRecord.Status
    ) throws(ReportError) -> [UInt8] {
        do throws(ReportError) {
            return try LiveRecordLayout.file(run: run, writer: writer, status: status)
        } catch let error where error.code == .tooLarge {
            var short = writer
            (short.service, short.process.executable, short.memory) = (nil, nil, nil)
            return try LiveRecordLayout.file(run: run, writer: short, status: status)
        }
    }

    /// Writes a place; nil frees it. Traps outside ``places``.
    package func write(_ stall: LiveStall?, to place: Int) throws(ReportError) {
        precondition(Self.places.contains(place), "a live record has \(Self.places.count) places")
        try write(LiveRecordLayout.block(of: stall), at: LiveRecordLayout.offset(ofPlace: place))
    }

    package func write(_ status: LiveRecord.Status) throws(ReportError) {
        try write(LiveRecordLayout.block(of: status), at: LiveRecordLayout.statusRange.lowerBound)
    }

    package static var places: Range<Int> { 0..<LiveRecordLayout.placeCount }

    /// Removes the file: the run has ended normally.
    package func remove() {
        remove(from: directory)
        removeIfMoved()
    }

    /// Removes the file if the directory was renamed: where it is now, it would look like that of a process that was killed.
    package func removeIfMoved() {
        guard isElsewhere, let path = readProcLink("/proc/thread-self/fd/\(descriptor)"), path.hasSuffix("/" + name)
        else { return }
        remove(from: String(path.dropLast(name.count + 1)))
    }

    private func remove(from directory: String) {
        guard let identity, let open = try? OpenDirectory(path: directory),
            open.status(of: name)?.inode == identity.inode
        else { return }
        try? open.remove(name)
    }

    /// Whether the directory does not have the file any more. False if that cannot be seen: a server may have given up the right
    /// to.
    private var isElsewhere: Bool {
        if let found = FileIdentity(path: directory + "/" + name) { return found != identity }
        return errno == ENOENT || errno == ENOTDIR
    }

    /// Throws `.missingFile` if the file is not in the directory any more, or the process has closed the descriptor: the number
    /// may belong to another file by now, which must not be written to.
    private func write(_ bytes: [UInt8], at offset: Int) throws(ReportError) {
        guard isOurs, !isElsewhere else { throw ReportError(.missingFile, path: directory) }
        let written = try systemCall(path: directory) {
            unsafe bytes.withUnsafeBytes { unsafe pwrite(descriptor, $0.baseAddress, $0.count, off_t(offset)) }
        }
        guard written == bytes.count else { throw ReportError(.full, path: directory) }
    }
}

/// The name of a live record's file: `live-ULID.bin`, with the run's id.
package struct LiveRecordName: Hashable, CustomStringConvertible {
    package let run: ULID

    init(run: ULID) { self.run = run }

    /// Nil for any other name.
    package init?(_ text: String) {
        guard text.hasPrefix("live-"), text.hasSuffix(".bin"), let run = ULID(String(text.dropFirst(5).dropLast(4)))
        else { return nil }
        self.run = run
        guard description == text else { return nil }
    }

    package var description: String { "live-\(run).bin" }
}

/// Where the kernel counts the processes of a cgroup that it killed for lack of memory: `memory.events` of cgroup v2,
/// `memory.oom_control` of v1 (Documentation/admin-guide/cgroup-v2.rst).
public struct MemoryCounter: Codable, Hashable, Sendable {
    /// The path as the process saw it.
    public var path: String
    /// The file's inode: another cgroup's file under the same path has a different one.
    public var inode: UInt64

    /// The calling process's counter. Nil if there is none that can be read, as in the root cgroup. Any thread; some system
    /// calls.
    package static func current() -> MemoryCounter? {
        let text = readControlGroups(in: "/proc/self") ?? ""
        for path in paths(of: text) {
            guard let inode = inode(of: path) else { continue }
            let counter = MemoryCounter(path: path, inode: inode)
            if counter.read() != nil { return counter }
        }
        return nil
    }

    /// The present count. Nil if the cgroup is gone, or not visible from here. The path is not trusted, because it comes from a
    /// file: only a control group's counter is opened, and the call never blocks.
    package func read() -> UInt64? {
        guard Self.isCounter(path), let file = try? OpenFile(kernelFile: path, inode: inode),
            let bytes = try? file.readAll(limit: 64 << 10)
        else { return nil }
        return Self.count(in: String(decoding: bytes, as: UTF8.self))
    }

    private static let root = "/sys/fs/cgroup"

    /// Whether the path text can only refer to such a file.
    static func isCounter(_ path: String) -> Bool {
        let names = path.split(separator: "/", omittingEmptySubsequences: false)
        guard path.hasPrefix(root + "/"), !path.utf8.contains(0), !names.contains(".."), let name = names.last else {
            return false
        }
        return name == "memory.events" || name == "memory.oom_control"
    }

    /// The possible paths of the file, from the lines of `/proc/PID/cgroup` (cgroups(7)): `0::/a`, `4:memory:/a`. A container
    /// without its own cgroup namespace is shown a path that is not visible to it; its own cgroup is then the root of the
    /// mounted tree.
    static func paths(of text: String) -> [String] {
        text.split(separator: "\n").flatMap { line -> [String] in
            let fields = line.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
            guard fields.count == 3, fields[2].hasPrefix("/") else { return [] }
            let path = fields[2] == "/" ? "" : String(fields[2])
            if fields[1].split(separator: ",").contains("memory") {
                return [path, ""].map { "\(root)/memory\($0)/memory.oom_control" }
            }
            return fields[1].isEmpty ? [path, ""].map { "\(root)\($0)/memory.events" } : []
        }
    }

    /// The number after `oom_kill`.
    static func count(in text: String) -> UInt64? {
        for line in text.split(separator: "\n") {
            let words = line.split(separator: " ")
            if words.count == 2, words[0] == "oom_kill" { return UInt64(words[1]) }
        }
        return nil
    }

    private static func inode(of path: String) -> UInt64? {
        var raw = stat()
        guard unsafe stat(path, &raw) == 0 else { return nil }
        return UInt64(raw.st_ino)
    }
}

extension OpenFile {
    /// Opens a regular file of the kernel by its full path, if it has this inode. It is checked before it is opened for
    /// reading: opening a device can have side effects, and a pipe waits for its other end.
    fileprivate init(kernelFile path: String, inode: UInt64) throws(ReportError) {
        // O_PATH of open(2), which the C library's module does not define.
        let pathOnly: Int32 = 0o10_000_000
        let look = OpenFile(
            owning: try systemCall(path: path) { unsafe open(path, pathOnly | O_NOFOLLOW | O_CLOEXEC) },
            path: path
        )
        let status = try look.status()
        guard status.isRegular, status.inode == inode else { throw ReportError(.notAFile, path: path) }
        let number = look.descriptor
        self.init(
            owning: try systemCall(path: path) {
                unsafe open("/proc/thread-self/fd/\(number)", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
            },
            path: path
        )
    }
}
