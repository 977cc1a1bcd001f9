import Glibc
import StallReading
import StallReports

/// The index of one directory, in a file: a header and segments. For one thread at a time; other processes may use the file
/// meanwhile.
final class IndexFile {
    private let database: Database

    private enum Layout {
        static let tables: [StaticString] = [
            "CREATE TABLE IF NOT EXISTS header (row INTEGER PRIMARY KEY CHECK (row = 1), bytes BLOB NOT NULL)",
            "CREATE TABLE IF NOT EXISTS segment (row INTEGER PRIMARY KEY, keys BLOB NOT NULL, data BLOB NOT NULL)",
        ]
    }

    /// Opens the file, or creates it.
    init(path: String) throws(Database.Problem) {
        database = try Database(path: path)
        for table in Layout.tables { try database.run(table) }
    }

    /// Calls `body` in a transaction, so that the file does not change meanwhile.
    func reading<Result>(_ body: () throws(Database.Problem) -> Result) throws(Database.Problem) -> Result {
        try database.run("BEGIN")
        defer { try? database.run("COMMIT") }
        return try body()
    }

    /// Nil in a new file.
    func header() throws(Database.Problem) -> IndexHeader? {
        var (found, isThere): (IndexHeader?, Bool) = (nil, false)
        try database.forEachRow("SELECT bytes FROM header WHERE row = 1") { row in
            isThere = true
            found = IndexHeader(row.blob(0))
        }
        if isThere, found == nil { throw .damaged }
        return found
    }

    func keys(of part: IndexHeader.Part, _ body: (Segment.Key) -> Void) throws(Database.Problem) {
        try blob("SELECT keys FROM segment WHERE row = ?", part.row, part.keysSum) {
            Segment.keys($0, part.count, body)
        }
    }

    /// - Parameter wanted: The id of each row; nil for rows to skip.
    func outlines(
        of part: IndexHeader.Part,
        _ wanted: [ULID?],
        _ pool: inout OutlinePool,
        _ body: (StallOutline) -> Void
    ) throws(Database.Problem) {
        try blob("SELECT data FROM segment WHERE row = ?", part.row, part.dataSum) {
            Segment.outlines($0, wanted, &pool, body)
        }
    }

    private func blob(
        _ sql: StaticString,
        _ row: Int64,
        _ sum: UInt64,
        _ read: (ByteView) -> Bool
    ) throws(Database.Problem) {
        var isRead = false
        try database.forEachRow(sql, [.integer(row)]) { found in
            let bytes = found.blob(0)
            isRead = Checksum.of(bytes) == sum && read(bytes)
        }
        if !isRead { throw .damaged }
    }

    /// Replaces segments and the header in one transaction.
    ///
    /// - Parameters:
    ///   - known: The header as it was read. If another process has written since, nothing is changed.
    ///   - header: The new header, without the added segments.
    ///   - removed: The rows of the segments to remove.
    /// - Returns: The header as written; nil if another process has written.
    func write(
        _ header: IndexHeader,
        after known: IndexHeader?,
        removing removed: [Int64],
        adding segments: [Segment]
    ) throws(Database.Problem) -> IndexHeader? {
        try database.run("BEGIN IMMEDIATE")
        do throws(Database.Problem) {
            guard try self.header() == known else {
                try database.run("ROLLBACK")
                return nil
            }
            var header = header
            for row in removed { try database.run("DELETE FROM segment WHERE row = ?", [.integer(row)]) }
            header.parts.removeAll { removed.contains($0.row) }
            for segment in segments { if let part = try add(segment) { header.parts.append(part) } }
            header.parts.sort { $0.first < $1.first }
            try database.run("INSERT OR REPLACE INTO header (row, bytes) VALUES (1, ?)", [.blob(header.bytes())])
            try database.run("COMMIT")
            return header
        } catch {
            try? database.run("ROLLBACK")
            throw error
        }
    }

    private func add(_ segment: Segment) throws(Database.Problem) -> IndexHeader.Part? {
        guard let first = segment.first, let last = segment.last else { return nil }
        let (keys, data) = (segment.keys.bytes, segment.data())
        try database.run("INSERT INTO segment (keys, data) VALUES (?, ?)", [.blob(keys), .blob(data)])
        var row: Int64 = 0
        try database.forEachRow("SELECT last_insert_rowid()") { row = $0.integer(0) }
        return IndexHeader.Part(
            row: row,
            first: first,
            last: last,
            count: segment.count,
            keysSum: Checksum.of(keys),
            dataSum: Checksum.of(data)
        )
    }
}

/// Where the indexes are: in the user's cache. Never in a report directory, because a reader must not change it. Each user has
/// their own indexes, so nobody has to trust another user's files.
struct IndexFolder: Hashable, Sendable {
    let path: String

    /// The largest number of indexes kept. The least recently written ones are removed.
    private static let limit = 64

    /// Nil if there is no folder that belongs to this user alone. No index is used then.
    static func ofUser() -> IndexFolder? {
        guard let cache = cache() else { return nil }
        let path = cache + "/stall-monitor/index"
        guard (try? OpenDirectory.create(path: path)) != nil, isOurs(path, S_IFDIR) else { return nil }
        // A home may be behind a link, and SQLite is not permitted to follow links.
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

    /// Removes the least recently written indexes, usually of deleted directories.
    func tidy() {
        guard let directory = try? OpenDirectory(path: path), let names = try? directory.names() else { return }
        var files: [(written: Int64, path: String)] = []
        for name in names where name.hasSuffix(".sqlite") {
            guard let status = directory.status(of: name) else { continue }
            files.append((status.modified.seconds, directory.filePath(name)))
        }
        for old in files.sorted(by: { $0.written > $1.written }).dropFirst(Self.limit) { Self.remove(old.path) }
    }
}
