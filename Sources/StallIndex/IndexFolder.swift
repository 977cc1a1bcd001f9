import Glibc
import StallReading
import StallReports

/// Where the indexes are: in the user's cache. Never in a report directory, because a reader must not change it. Each user has
/// their own indexes, so nobody has to trust another user's files.
struct IndexFolder: Hashable, Sendable {
    let path: String

    /// The largest number of indexes kept. The least recently used ones are removed.
    private static let limit = 64

    /// Nil if there is no folder that belongs to this user alone. No index is used then.
    static func ofUser() -> IndexFolder? {
        guard let cache = cache() else { return nil }
        let path = cache + "/stall-monitor/index"
        guard (try? OpenDirectory.create(path: path)) != nil, isOurs(path, S_IFDIR) else { return nil }
        // A home may be behind a link, and SQLite is told to follow none.
        return IndexFolder(path: ReportTree.resolved(path))
    }

    private static func cache() -> String? {
        if let path = unsafe getenv("XDG_CACHE_HOME").map({ unsafe String(cString: $0) }), path.hasPrefix("/") {
            return path
        }
        if let home = unsafe getenv("HOME").map({ unsafe String(cString: $0) }), home.hasPrefix("/"),
            isOurs(home, S_IFDIR)
        {
            return home + "/.cache"
        }
        // With sudo, $HOME may be another user's, and our files in their cache would get in their way.
        guard let user = unsafe getpwuid(geteuid()), let home = unsafe user.pointee.pw_dir else { return nil }
        return unsafe String(cString: home) + "/.cache"
    }

    /// Whether it is a file or directory that only this user can write. Symbolic links do not count.
    static func isOurs(_ path: String, _ type: mode_t) -> Bool {
        var raw = stat()
        return unsafe lstat(path, &raw) == 0 && raw.st_mode & S_IFMT == type && raw.st_uid == geteuid()
            && raw.st_mode & 0o022 == 0
    }

    /// The path of a directory's index.
    ///
    /// - Parameter directory: The path, with symbolic links resolved.
    func file(of directory: String) -> String {
        let sum = Checksum.of(Array(directory.utf8))
        let digits = String(sum, radix: 16)
        return path + "/" + String(repeating: "0", count: 16 - digits.utf8.count) + digits + ".sqlite"
    }

    /// Removes an index, and the files that SQLite keeps beside it.
    static func remove(_ file: String) {
        for suffix in ["", "-journal", "-wal", "-shm"] { unsafe _ = unlink(file + suffix) }
    }

    /// Removes the least recently used indexes, usually of deleted directories.
    func tidy() {
        guard let directory = try? OpenDirectory(path: path), let names = try? directory.names() else { return }
        var files: [(used: Int64, path: String)] = []
        for name in names where name.hasSuffix(".sqlite") {
            guard let status = directory.status(of: name) else { continue }
            files.append((status.modified.seconds, directory.filePath(name)))
        }
        for old in files.sorted(by: { $0.used > $1.used }).dropFirst(Self.limit) { Self.remove(old.path) }
    }
}
