package import Glibc

/// An open directory: every name is looked up in it, even if its path changes meanwhile. Links in it are not followed.
package struct OpenDirectory: ~Copyable {
    private let file: OpenFile

    package var path: String { file.path }

    /// Throws `.missingDirectory` if there is none.
    package init(path: String) throws(ReportError) {
        guard !path.isEmpty, !path.utf8.contains(0) else { throw ReportError(.missingDirectory, path: path) }
        do throws(ReportError) {
            let descriptor = try systemCall(path: path) { unsafe Glibc.open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) }
            file = OpenFile(owning: descriptor, path: path)
        } catch let error where error.code == .missingFile {
            throw ReportError(.missingDirectory, path: path)
        }
    }

    /// A name in a directory, as returned by readdir(3). Valid only inside the closure that receives it.
    @safe package struct RawEntry {
        /// Without the zero byte at the end.
        package let bytes: UnsafeBufferPointer<UInt8>
        package let inode: UInt64
        /// `d_type` of readdir(3).
        fileprivate let type: Int32

        package var name: String { unsafe String(decoding: bytes, as: UTF8.self) }

        /// False if the entry is certainly not a directory or a link to one. On most file systems this needs no access to the
        /// file.
        package var mayBeDirectory: Bool { type == Int32(DT_DIR) || type == Int32(DT_LNK) || type == Int32(DT_UNKNOWN) }
    }

    /// The names in the directory, unsorted, without `.` and `..`.
    package func names() throws(ReportError) -> [String] {
        var names: [String] = []
        try forEachRawEntry { names.append($0.name) }
        return names
    }

    /// Calls `body` for each name, unsorted, without `.` and `..`.
    package func forEachRawEntry(_ body: (RawEntry) -> Void) throws(ReportError) {
        let path = self.path
        let copy = try systemCall(path: path) {
            unsafe openat(file.descriptor, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        }
        guard let stream = unsafe fdopendir(copy) else {
            close(copy)
            throw ReportError(.io, path: path)
        }
        defer { unsafe closedir(stream) }
        while true {
            // Without an entry, this shows whether it is the end or an error (readdir(3)).
            errno = 0
            guard let entry = unsafe readdir(stream) else { break }
            unsafe withUnsafeBytes(of: &entry.pointee.d_name) { raw in
                let start = unsafe raw.assumingMemoryBound(to: UInt8.self).baseAddress!
                let bytes = unsafe UnsafeBufferPointer(start: start, count: strnlen(start, raw.count))
                guard unsafe !Self.isDots(bytes) else { return }
                unsafe body(
                    RawEntry(bytes: bytes, inode: UInt64(entry.pointee.d_ino), type: Int32(entry.pointee.d_type))
                )
            }
        }
        if errno != 0 { throw ReportError(errno: errno, path: path) }
    }

    private static func isDots(_ name: UnsafeBufferPointer<UInt8>) -> Bool {
        unsafe name.count <= 2 && name.allSatisfy { $0 == UInt8(ascii: ".") }
    }

    /// Whether it is a directory, or a link to one.
    package func leadsToDirectory(_ entry: RawEntry) -> Bool {
        if entry.type == Int32(DT_DIR) { return true }
        var raw = stat()
        return unsafe fstatat(file.descriptor, entry.name, &raw, 0) == 0 && raw.st_mode & S_IFMT == S_IFDIR
    }

    /// The system's data about the directory itself.
    package func describedSelf() throws(ReportError) -> stat {
        var raw = stat()
        let descriptor = file.descriptor
        try systemCall(path: path) { unsafe fstat(descriptor, &raw) }
        return raw
    }

    /// The identity of the directory, independent of its path.
    package func identity() throws(ReportError) -> FileIdentity { FileIdentity(try describedSelf()) }

    /// Nil if there is no such name. A link is described, not followed.
    package func status(of name: String) -> FileStatus? { described(name).map { FileStatus($0) } }

    /// The system's data, for callers that need more than `status(of:)`.
    func described(_ name: String) -> stat? {
        var raw = stat()
        return unsafe fstatat(file.descriptor, name, &raw, AT_SYMLINK_NOFOLLOW) == 0 ? raw : nil
    }

    /// The status of the directory itself.
    func status() throws(ReportError) -> FileStatus { try file.status() }

    /// Opens a regular file for reading, without waiting for anything: a pipe's other end, a terminal, another process's lease
    /// on the file.
    package func openFile(_ name: String) throws(ReportError) -> OpenFile {
        // This comes first: opening a device can have side effects.
        if let status = status(of: name), !status.isRegular { throw ReportError(.notAFile, path: filePath(name)) }
        let opened = try open(name, flags: O_RDONLY | O_NONBLOCK | O_NOCTTY)
        guard try opened.status().isRegular else { throw ReportError(.notAFile, path: opened.path) }
        return opened
    }

    /// Creates a file that does not exist yet, mode 0600.
    func createFile(_ name: String) throws(ReportError) -> OpenFile {
        try open(name, flags: O_WRONLY | O_CREAT | O_EXCL)
    }

    func rename(_ old: String, to new: String) throws(ReportError) {
        try systemCall(path: filePath(new)) { unsafe renameat(file.descriptor, old, file.descriptor, new) }
    }

    func remove(_ name: String) throws(ReportError) {
        try systemCall(path: filePath(name)) { unsafe unlinkat(file.descriptor, name, 0) }
    }

    /// Returns after the names themselves are on the disk. Some file systems, such as shared folders of virtual machines, cannot
    /// do that for a directory, and answer EINVAL (fsync(2)). What was renamed there counts as written.
    func synchronize() throws(ReportError) {
        do throws(ReportError) {
            try file.synchronize()
        } catch {
            if error.errorNumber != EINVAL { throw error }
        }
    }

    package func filePath(_ name: String) -> String { path + "/" + name }

    private func open(_ name: String, flags: Int32) throws(ReportError) -> OpenFile {
        let path = filePath(name)
        let descriptor = try systemCall(path: path) {
            unsafe openat(file.descriptor, name, flags | O_NOFOLLOW | O_CLOEXEC, 0o600)
        }
        return OpenFile(owning: descriptor, path: path)
    }
}

extension OpenDirectory {
    /// Creates the directory and its missing parents, each with mode 0700. An existing one is not changed.
    package static func create(path: String) throws(ReportError) {
        guard !path.isEmpty, !path.utf8.contains(0) else { throw ReportError(.missingDirectory, path: path) }
        if try make(path) { return }
        guard let parent = parent(of: path) else { throw ReportError(.missingDirectory, path: path) }
        try create(path: parent)
        guard try make(path) else { throw ReportError(.missingDirectory, path: path) }
    }

    /// The owner of files that this process creates here. It may be another user: a file server can map root to nobody.
    func ownerOfNewFiles() throws(ReportError) -> UInt32 {
        let draft = Self.newDraftName()
        let file = try createFile(draft)
        defer { try? remove(draft) }
        return try file.status().owner
    }

    /// The path without its last component: `a/b/` is in `a`, `a` in `.`. Nil for `/` and `.`.
    package static func parent(of path: String) -> String? {
        var rest = path.utf8[...]
        while rest.count > 1, rest.last == slash { rest.removeLast() }
        guard !rest.elementsEqual("/".utf8), !rest.elementsEqual(".".utf8) else { return nil }
        guard let end = rest.lastIndex(of: slash) else { return "." }
        return end == rest.startIndex ? "/" : String(Substring(rest[..<end]))
    }

    /// Creates one directory. False if its parent directory is missing.
    private static func make(_ path: String) throws(ReportError) -> Bool {
        guard unsafe mkdir(path, 0o700) != 0 else { return true }
        switch errno {
        case EEXIST: return true
        case ENOENT: return false
        case let number: throw ReportError(errno: number, path: path)
        }
    }
}

/// The last component of a path: what ``OpenDirectory/parent(of:)`` leaves out.
package func fileName(ofPath path: String) -> String {
    path.utf8.split(separator: slash).last.map { String(Substring($0)) } ?? path
}

/// It separates components whatever follows it. For Swift, a slash and a combining accent are one character, which is no slash.
private let slash = UInt8(ascii: "/")

// Atomic replacement: a reader sees the old file or the new one, and after a crash one of the two exists.

extension OpenDirectory {
    /// Writes `bytes` to the file `name`, replacing it. When this returns, they are on the disk.
    ///
    /// - Parameter owner: The owner of the new file, if it is not this process's user: an operator's command must not take files
    ///   away from a server.
    package func replaceFile(_ name: String, with bytes: [UInt8], ownedAs owner: FileStatus? = nil) throws(ReportError)
    {
        let draft = Self.newDraftName()
        let content = try createFile(draft)
        do throws(ReportError) {
            _ = content.tryLock()
            if let owner { try content.giveTo(owner) }
            try content.write(bytes)
            try content.synchronize()
            try rename(draft, to: name)
        } catch {
            try? remove(draft)
            throw error
        }
        try synchronize()
    }

    /// Removes the drafts of writers that died. A living writer holds its draft's lock.
    func removeAbandonedDrafts() throws(ReportError) {
        for name in try names() where Self.isDraft(name) {
            guard let file = try? openFile(name), file.tryLock() else { continue }
            try? remove(name)
        }
    }
}

// Names of files that are being written.
extension OpenDirectory {
    static func newDraftName() -> String { ".draft-\(ULID.make())" }

    static func isDraft(_ name: String) -> Bool { name.hasPrefix(".draft-") && ULID(String(name.dropFirst(7))) != nil }
}
