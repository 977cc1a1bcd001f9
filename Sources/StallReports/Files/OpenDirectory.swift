internal import Glibc

/// A directory held open: every name is looked up in it, whatever happens to its path meanwhile. No link in it is followed.
struct OpenDirectory: ~Copyable {
    private let file: OpenFile

    var path: String { file.path }

    /// Throws `.missingDirectory` where there is none.
    init(path: String) throws(ReportError) {
        guard !path.isEmpty, !path.utf8.contains(0) else { throw ReportError(.missingDirectory, path: path) }
        do throws(ReportError) {
            let descriptor = try systemCall(path: path) { unsafe Glibc.open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) }
            file = OpenFile(owning: descriptor, path: path)
        } catch let error where error.code == .missingFile {
            throw ReportError(.missingDirectory, path: path)
        }
    }

    /// The names in it, in no order, without `.` and `..`.
    func names() throws(ReportError) -> [String] {
        let path = self.path
        let copy = try systemCall(path: path) {
            unsafe openat(file.descriptor, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        }
        guard let stream = unsafe fdopendir(copy) else {
            close(copy)
            throw ReportError(.io, path: path)
        }
        defer { unsafe closedir(stream) }
        var names: [String] = []
        while let entry = unsafe readdir(stream) {
            let name = unsafe withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
                unsafe String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
            }
            if name != "." && name != ".." { names.append(name) }
        }
        return names
    }

    /// Nil when there is no such name. A link is described, not followed.
    func status(of name: String) -> FileStatus? { described(name).map { FileStatus($0) } }

    /// As the system says it: `status(of:)` without what changes by itself.
    func described(_ name: String) -> stat? {
        var raw = stat()
        return unsafe fstatat(file.descriptor, name, &raw, AT_SYMLINK_NOFOLLOW) == 0 ? raw : nil
    }

    /// The directory itself.
    func status() throws(ReportError) -> FileStatus { try file.status() }

    /// Opens a regular file to read, without waiting for anything: a pipe's other end, a terminal, another's lease on the file.
    func openFile(_ name: String) throws(ReportError) -> OpenFile {
        // Looked at first: to open a device can do something to it.
        if let status = status(of: name), !status.isRegular { throw ReportError(.notAFile, path: filePath(name)) }
        let opened = try open(name, flags: O_RDONLY | O_NONBLOCK | O_NOCTTY)
        guard try opened.status().isRegular else { throw ReportError(.notAFile, path: opened.path) }
        return opened
    }

    /// Creates a file that did not exist, mode 0600.
    func createFile(_ name: String) throws(ReportError) -> OpenFile {
        try open(name, flags: O_WRONLY | O_CREAT | O_EXCL)
    }

    func rename(_ old: String, to new: String) throws(ReportError) {
        try systemCall(path: filePath(new)) { unsafe renameat(file.descriptor, old, file.descriptor, new) }
    }

    func remove(_ name: String) throws(ReportError) {
        try systemCall(path: filePath(name)) { unsafe unlinkat(file.descriptor, name, 0) }
    }

    /// Returns after the names themselves are on the disk.
    func synchronize() throws(ReportError) {
        try file.synchronize()
    }

    func filePath(_ name: String) -> String { path + "/" + name }

    private func open(_ name: String, flags: Int32) throws(ReportError) -> OpenFile {
        let path = filePath(name)
        let descriptor = try systemCall(path: path) {
            unsafe openat(file.descriptor, name, flags | O_NOFOLLOW | O_CLOEXEC, 0o600)
        }
        return OpenFile(owning: descriptor, path: path)
    }
}
