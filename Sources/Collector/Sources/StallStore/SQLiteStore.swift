import FileVersions
import Foundation
import GRDB
import Glibc
public import StallReports

/// A store in one SQLite file. It uses a write-ahead log (WAL), so that queries do not wait for inserts. Any thread.
public final class SQLiteStore: StallStore {
    let database: DatabasePool
    private let path: String
    /// The file that is open.
    private let file: FileIdentity?

    /// Opens the file, creates it if it is missing, and migrates an older one.
    ///
    /// - Parameters:
    ///   - path: The file. Its directory must exist.
    ///   - maximumBytes: If the file is larger than this by a quarter, inserts fail until ``removeOld(before:maximumBytes:)`` has
    ///     made room. Nil: no limit.
    ///   - willMigrate: Called before a file of an older version is migrated, which takes minutes if it is large.
    /// - Throws: ``StoreError``.
    public init(path: String, maximumBytes: Int64? = nil, willMigrate: () -> Void = {}) throws(StoreError) {
        self.path = path
        Self.create(path)
        Self.hideFromOthers(path)
        file = FileIdentity(path)
        do {
            database = try DatabasePool(path: path, configuration: Self.configuration)
            try Self.migrate(database, path, willMigrate)
            try database.writeWithoutTransaction { try Self.prepareWriter($0, maximumBytes) }
        } catch let error as StoreError {
            throw error
        } catch {
            throw StoreError("the store \(path) cannot be used: \(StoreError.reason(error))")
        }
    }

    private static var configuration: Configuration {
        var configuration = Configuration()
        configuration.busyMode = .timeout(10)
        configuration.label = "stalls"
        configuration.maximumReaderCount = 4
        configuration.prepareDatabase { database in
            try database.execute(sql: "PRAGMA cache_size = -16000")
            guard !database.configuration.readonly else { return }
            // These two must come before the first table is created. A file that exists keeps its size of pages. Larger ones cost less for each
            // report when many arrive, but a transaction of a single report changes a dozen of them.
            try database.execute(sql: "PRAGMA page_size = 8192")
            // It lets the file shrink after rows were removed.
            try database.execute(sql: "PRAGMA auto_vacuum = INCREMENTAL")
            // Debian's SQLite also overwrites pages that become free with zeros, and clears each new one first. Here free pages are given
            // back to the disk soon; rows are still overwritten in the others.
            try database.execute(sql: "PRAGMA secure_delete = FAST")
        }
        return configuration
    }

    /// - Throws: ``StoreError`` if a newer version made the file.
    private static func migrate(_ database: DatabasePool, _ path: String, _ willMigrate: () -> Void) throws {
        let migrator = SQLiteSchema.migrator
        let (isNewer, versions) = try database.read {
            (try migrator.hasBeenSuperseded($0), try migrator.completedMigrations($0))
        }
        guard !isNewer else {
            throw StoreError(
                "\(path) was made by a newer version of the collector; run that one, or give another file"
            )
        }
        if let version = versions.last, version != migrator.migrations.last { willMigrate() }
        try migrator.migrate(database)
    }

    /// Settings that the writing connection gets when the tables are there.
    private static func prepareWriter(_ database: Database, _ maximumBytes: Int64?) throws {
        // Acknowledged data survives a power failure. It cannot be set earlier: the pool sets NORMAL when it enables the
        // log.
        try database.execute(sql: "PRAGMA synchronous = FULL")
        // A checkpoint after 32 MiB instead of 4: the pages of an index change in every transaction, and are copied to
        // the database's file once for all of them.
        let pages = try pages(database, ofBytes: 32 << 20)
        try database.execute(sql: "PRAGMA wal_autocheckpoint = \(pages)")
        // After a checkpoint the log's file is truncated to this size.
        try database.execute(sql: "PRAGMA journal_size_limit = 67108864")
        try bound(database, maximumBytes)
    }

    /// Creates the file if it is missing, for its owner only, as reports are: it has those of all teams. SQLite gives its log the same
    /// mode. Does not open a file that exists: closing it would release the locks that this process has on it (sqlite.org/howtocorrupt.html).
    private static func create(_ path: String) {
        let descriptor = unsafe open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        if descriptor >= 0 { close(descriptor) }
    }

    /// An earlier version created the file for everybody to read. The group keeps what it may do: an operator can have given it that.
    private static func hideFromOthers(_ path: String) {
        for file in [path, path + "-wal", path + "-shm"] {
            guard let version = FileVersion(file), version.isRegular, version.isForEverybody else { continue }
            _ = unsafe chmod(file, version.modeForOwnerAndGroup)
        }
    }

    /// Makes SQLite refuse to enlarge the file beyond the limit.
    private static func bound(_ database: Database, _ maximumBytes: Int64?) throws {
        guard let maximumBytes else { return }
        let pages = try pages(database, ofBytes: maximumBytes.addingSaturated(maximumBytes / 4))
        try database.execute(sql: "PRAGMA max_page_count = \(min(pages, 4_294_967_294))")
    }

    /// The number of pages, at least one, that take so many bytes.
    private static func pages(_ database: Database, ofBytes bytes: Int64) throws -> Int64 {
        let size = try Int64.fetchOne(database, sql: "PRAGMA page_size") ?? 4096
        return max(1, bytes / max(1, size))
    }

    /// Writes all arrivals in one transaction.
    public func insert(_ arrivals: [Arrival]) async throws -> Int {
        try requireFile()
        let changes = try await database.write { database in
            var (writer, changes) = (try SQLiteWriter(database), 0)
            for arrival in arrivals where try writer.insert(arrival) { changes += 1 }
            try writer.finish()
            return changes
        }
        // Meanwhile it may have lost its name.
        try requireFile()
        return changes
    }

    /// Throws if the file was removed or replaced: what is written to it would be lost with this process, and SQLite does not notice.
    private func requireFile() throws(StoreError) {
        guard FileIdentity(path) == file else {
            throw StoreError("\(path) was removed or replaced while the collector ran: start it again")
        }
    }

    /// Reads one row of the file.
    public func check() async throws {
        try requireFile()
        _ = try await database.read { try Int64.fetchOne($0, sql: "SELECT place FROM sequence") }
    }

    /// Reads and decompresses the report.
    public func report(_ id: ULID, team: String) async throws -> [UInt8]? {
        let packed = try await database.read { database in
            try Data.fetchOne(
                database,
                sql: "SELECT report FROM body WHERE number = (SELECT number FROM stall WHERE team = ? AND id = ?)",
                arguments: [team, id.description]
            )
        }
        return try packed.map { try unpacked($0) }
    }

    func unpacked(_ body: Data) throws -> [UInt8] { try ArrivedDocument.unpacked([UInt8](body)) }

    /// Removes rows in small transactions, then gives the freed space back to the disk.
    public func removeOld(before moment: Timestamp, maximumBytes: Int64?) async throws -> Int {
        var removed = 0
        for team in try await database.read({ try String.fetchAll($0, sql: "SELECT team FROM usage") }) {
            removed += try await remove(before: Hours.hour(moment.sinceEpoch), team: team)
        }
        // The team that uses the most space loses its oldest reports, so that a flood from one team does not remove other teams'
        // reports.
        while let maximumBytes, try await usedBytes() > maximumBytes {
            guard let (team, hour) = try await database.read({ try SQLiteRemoval.largest($0) }) else { break }
            removed += try await remove(before: hour + 1, team: team)
        }
        try await database.write { try SQLiteRemoval.removeNames($0) }
        try await shrink()
        try await database.writeWithoutTransaction { database in
            // A reader can prevent the checkpoint. It is then made the next time.
            _ = try? database.checkpoint(.truncate)
            try Self.bound(database, maximumBytes)
        }
        return removed
    }

    /// Gives free pages back to the disk, some at a time, so that inserts do not wait long and the log stays small.
    private func shrink() async throws {
        var before = Int64.max
        while true {
            let free = try await database.writeWithoutTransaction { database in
                let pages = try Self.pages(database, ofBytes: 8 << 20)
                try database.execute(sql: "PRAGMA incremental_vacuum(\(pages))")
                return try Int64.fetchOne(database, sql: "PRAGMA freelist_count") ?? 0
            }
            guard free > 0, free < before else { return }
            before = free
        }
    }

    /// Uses small transactions, so that inserts do not wait long.
    private func remove(before hour: Int64, team: String) async throws -> Int {
        var removed = 0
        while true {
            let (stalls, isDone) = try await database.write { database in
                try SQLiteRemoval(database: database, team: team).remove(beforeHour: hour, limit: 2000)
            }
            removed += stalls
            if isDone { return removed }
        }
    }

    /// The bytes of the file without its free pages.
    private func usedBytes() async throws -> Int64 {
        try await database.read { database in
            let pages = try Int64.fetchOne(database, sql: "PRAGMA page_count") ?? 0
            let free = try Int64.fetchOne(database, sql: "PRAGMA freelist_count") ?? 0
            return (pages - free) * (try Int64.fetchOne(database, sql: "PRAGMA page_size") ?? 4096)
        }
    }

    /// The bytes without free pages, and the numbers of rows of all teams.
    public func size() async throws -> StoreSize {
        let bytes = try await usedBytes()
        return try await database.read { database in
            let row = try Row.fetchOne(
                database,
                sql: "SELECT coalesce(sum(stalls), 0) AS stalls, coalesce(sum(runs), 0) AS runs FROM usage"
            )
            return StoreSize(bytes: bytes, stalls: row?["stalls"] ?? 0, runs: row?["runs"] ?? 0)
        }
    }
}

/// Why a store cannot be used, and what to do about it.
public struct StoreError: Error, Hashable, CustomStringConvertible {
    /// One sentence. Contains no password and no report data.
    public let description: String
    package init(_ description: String) { self.description = description }

    static func reason(_ error: any Error) -> String {
        guard let error = error as? DatabaseError else { return "\(error)" }
        return switch error.resultCode {
        case .SQLITE_CANTOPEN: "its directory is missing, or may not be written to"
        case .SQLITE_NOTADB: "it is not an SQLite database; give another name"
        case .SQLITE_READONLY: "it may not be written to"
        case .SQLITE_FULL: "the disk is full"
        // Its log is mapped into memory, for which a full disk has no room either.
        case .SQLITE_IOERR: "the disk is full, or has failed: \(error.message ?? "no details")"
        case .SQLITE_BUSY: "another process has locked it"
        case .SQLITE_CORRUPT: "it is damaged; give a copy of it, or what 'sqlite3 FILE .recover' reads from it"
        default: error.message ?? "\(error.resultCode)"
        }
    }
}
