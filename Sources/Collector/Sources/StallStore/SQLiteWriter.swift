import Foundation
import GRDB
import StallReports

/// Writes arrivals within one transaction. The sums are written by ``finish()``.
struct SQLiteWriter {
    let database: Database
    private var sums = SQLiteSums()
    private var usage = SQLiteUsage()
    private var faults: [FaultKey: LatestReport] = [:]
    /// The current fingerprints of the faults that were looked up.
    private var currents: [FaultKey: String] = [:]
    /// The place of the last stall that arrived or changed.
    private var place: Int64
    private let firstPlace: Int64
    private let newStall: RepeatedWrite
    private let newBody: RepeatedWrite

    private struct FaultKey: Hashable {
        var team: String
        var fingerprint: String
    }

    private struct LatestReport {
        var id: ULID
        var culprit: String
        var place: String

        mutating func replace(by other: LatestReport) { if id <= other.id { self = other } }
    }

    init(_ database: Database) throws {
        self.database = database
        firstPlace = try Int64.fetchOne(database, sql: "SELECT place FROM sequence") ?? 0
        place = firstPlace
        newStall = try RepeatedWrite(
            database,
            """
            INSERT INTO stall (team, id, service, release, host, label, verdict, fingerprint, culprit, place, version, started, last,
                duration, count, total, longest)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            ON CONFLICT (team, id) DO NOTHING
            """
        )
        newBody = try RepeatedWrite(database, "INSERT INTO body (number, report) VALUES (?, ?)")
    }

    /// - Returns: Whether it was new, or newer than the stored version.
    mutating func insert(_ arrival: Arrival) throws -> Bool {
        switch arrival {
        case .stall(let stall): try insert(stall)
        case .run(let run): try insert(run)
        }
    }

    /// Writes the accumulated sums into the tables.
    func finish() throws {
        try sums.write(database)
        for (key, latest) in faults {
            try database.write(
                """
                INSERT INTO fault (team, fingerprint, latest, culprit, place) VALUES (?, ?, ?, ?, ?)
                ON CONFLICT DO UPDATE SET latest = excluded.latest, culprit = excluded.culprit, place = excluded.place
                WHERE excluded.latest >= latest
                """,
                [key.team, key.fingerprint, latest.id.description, latest.culprit, latest.place].map(\.databaseValue)
            )
        }
        try usage.write(database)
        if place != firstPlace { try run("UPDATE sequence SET place = ?", [place]) }
    }

    private mutating func insert(_ stall: ArrivedStall) throws -> Bool {
        let fingerprint = try current(stall.fingerprint, stall.team)
        let part = SQLiteSums.Part(stall, fingerprint)
        // Nearly all stalls are new: they are not looked up first.
        if try !add(stall, fingerprint) {
            let known = try Row.fetchOne(
                statement("SELECT * FROM stall WHERE team = ? AND id = ?"),
                arguments: [stall.team, stall.id.description]
            )
            guard let known, stall.version > (known["version"] as Int64) else { return false }
            try update(known, stall, fingerprint)
            sums.remove(SQLiteSums.Part(known), for: part)
        }
        // Not for a version that is ignored: it would take the fault's name, and give it none.
        try unite(stall, fingerprint)
        place += 1
        sums.add(part)
        let key = FaultKey(team: stall.team, fingerprint: fingerprint)
        let report = LatestReport(id: stall.id, culprit: stall.culprit, place: stall.place)
        faults[key, default: report].replace(by: report)
        return true
    }

    /// - Returns: Whether it is new. Otherwise nothing changes.
    private mutating func add(_ stall: ArrivedStall, _ fingerprint: String) throws -> Bool {
        try newStall.bind(stall.team, stall.id.description, stall.service, stall.release, stall.host, stall.label)
        try newStall.bind(stall.verdict, fingerprint, stall.culprit)
        try newStall.bind(place + 1, stall.version, stall.startedNs, stall.lastNs, stall.durationNs)
        try newStall.bind(stall.count, stall.totalNs, stall.longestNs)
        try newStall.run()
        guard database.changesCount > 0 else { return false }
        try newBody.bind(database.lastInsertedRowID)
        try newBody.run(stall.body)
        usage.add(stall.team, bytes: stall.body.count, stalls: 1)
        return true
    }

    private mutating func update(_ known: Row, _ stall: ArrivedStall, _ fingerprint: String) throws {
        let number: Int64 = known["number"]
        let numbers = [
            place + 1, stall.version, stall.startedNs, stall.lastNs, stall.durationNs, stall.count, stall.totalNs,
            stall.longestNs,
        ]
        let texts = [
            stall.service, stall.release, stall.host, stall.label, stall.verdict, fingerprint, stall.culprit,
        ]
        try database.write(
            """
            UPDATE stall SET place = ?, version = ?, started = ?, last = ?, duration = ?, count = ?, total = ?, longest = ?, service = ?,
                release = ?, host = ?, label = ?, verdict = ?, fingerprint = ?, culprit = ?
            WHERE number = ?
            """,
            numbers.map(\.databaseValue) + texts.map(\.databaseValue) + [number.databaseValue]
        )
        let before = try Int.fetchOne(
            statement("SELECT length(report) FROM body WHERE number = ?"),
            arguments: [number]
        )
        try database.write(
            "INSERT OR REPLACE INTO body (number, report) VALUES (?, ?)",
            [number.databaseValue, Data(stall.body).databaseValue]
        )
        usage.add(stall.team, bytes: stall.body.count - (before ?? 0))
    }

    private mutating func insert(_ arrived: ArrivedRun) throws -> Bool {
        let known = try Row.fetchOne(
            statement("SELECT updated, watched, running, length(body) AS bytes FROM run WHERE team = ? AND id = ?"),
            arguments: [arrived.team, arrived.id.description]
        )
        let stored: ArrivedRun.Known? = known.map { ($0["updated"], $0["watched"], $0["running"]) }
        guard let run = arrived.replacing(stored) else { return false }
        try self.run(
            """
            INSERT OR REPLACE INTO run (team, id, updated, started, watched, service, release, host, running, body)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            """,
            [
                run.team, run.id.description, run.updatedNs, run.startedNs, run.watchedNs, run.service, run.release,
                run.host, run.isRunning, Data(run.body),
            ]
        )
        usage.add(run.team, bytes: run.body.count - (known?["bytes"] ?? 0), runs: known == nil ? 1 : 0)
        try replaceWatchedServices(of: run)
        try replaceCounted(of: run)
        return true
    }

    private func replaceWatchedServices(of run: ArrivedRun) throws {
        try self.run("DELETE FROM watched_service WHERE team = ? AND run = ?", [run.team, run.id.description])
        for watched in run.watchedServices {
            try self.run(
                "INSERT INTO watched_service (team, run, service, time) VALUES (?, ?, ?, ?)",
                [run.team, run.id.description, watched.service, watched.watchedNs]
            )
        }
    }

    private func replaceCounted(of run: ArrivedRun) throws {
        try self.run("DELETE FROM counted WHERE team = ? AND run = ?", [run.team, run.id.description])
        for fault in run.counted {
            // The fingerprint as it was written: two of them can be of one fault, and must not replace each other.
            try self.run(
                """
                INSERT OR REPLACE INTO counted (team, run, fingerprint, service, release, host, count, total, longest, first, last)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
                """,
                [
                    run.team, run.id.description, fault.fingerprint, fault.service, fault.release, run.host,
                    fault.count, fault.totalNs, fault.longestNs, fault.firstNs, fault.lastNs,
                ]
            )
        }
    }

    // MARK: Fingerprints of a fault

    /// The largest number of former fingerprints with which a fault becomes another one: the rows of all of them are changed then. There is no
    /// limit to those that a fault gets one by one, such as one for each build of a program without names.
    private static let movedLimit = 256

    /// The fault's current fingerprint.
    private mutating func current(_ fingerprint: String, _ team: String) throws -> String {
        let key = FaultKey(team: team, fingerprint: fingerprint)
        if let current = currents[key] { return current }
        let current =
            try String.fetchOne(
                statement("SELECT fingerprint FROM alias WHERE team = ? AND alias = ?"),
                arguments: [team, fingerprint]
            ) ?? fingerprint
        currents[key] = current
        return current
    }

    /// Joins faults that are one according to a report: it had no function names at first, but has some now.
    private mutating func unite(_ stall: ArrivedStall, _ fingerprint: String) throws {
        for alias in stall.aliases {
            let old = try current(alias, stall.team)
            if old != fingerprint { try rename(old, to: fingerprint, stall.team) }
        }
    }

    /// Makes `new` the fault's current fingerprint. The fault's rows stay unchanged, because there can be many: queries map their
    /// fingerprints.
    private mutating func rename(_ old: String, to new: String, _ team: String) throws {
        let next = try String.fetchOne(
            statement("SELECT alias FROM alias WHERE team = ? AND fingerprint = ? LIMIT 1 OFFSET ?"),
            arguments: [team, old, Self.movedLimit]
        )
        guard next == nil else { return }
        try run("UPDATE alias SET fingerprint = ? WHERE team = ? AND fingerprint = ?", [new, team, old])
        try run("INSERT OR REPLACE INTO alias (team, alias, fingerprint) VALUES (?, ?, ?)", [team, old, new])
        try run("DELETE FROM fault WHERE team = ? AND fingerprint = ?", [team, old])
        faults[FaultKey(team: team, fingerprint: old)] = nil
        currents.removeAll()
    }

    private func statement(_ sql: String) throws -> Statement { try database.cachedStatement(sql: sql) }

    private func run(_ sql: String, _ arguments: StatementArguments = []) throws {
        try statement(sql).execute(arguments: arguments)
    }
}

/// Changes of the teams' space by one transaction.
struct SQLiteUsage {
    /// An estimate of the bytes of a row's columns and indexes.
    static let rowBytes = 512

    private struct Change {
        var bytes: Int64 = 0
        var stalls: Int64 = 0
        var runs: Int64 = 0

        mutating func add(_ bytes: Int64, _ stalls: Int64, _ runs: Int64) {
            self.bytes += bytes
            self.stalls += stalls
            self.runs += runs
        }
    }

    private var changes: [String: Change] = [:]

    /// - Parameter bytes: The bytes of compressed reports and records, without the rows' other columns.
    mutating func add(_ team: String, bytes: Int, stalls: Int = 0, runs: Int = 0) {
        let rows = (stalls + runs).multipliedSaturated(by: Self.rowBytes)
        changes[team, default: Change()].add(Int64(bytes.addingSaturated(rows)), Int64(stalls), Int64(runs))
    }

    func write(_ database: Database) throws {
        for (team, change) in changes {
            try database.cachedStatement(
                sql: """
                    INSERT INTO usage (team, bytes, stalls, runs) VALUES (?, ?, ?, ?)
                    ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes, stalls = stalls + excluded.stalls, runs = runs + excluded.runs
                    """
            ).execute(arguments: [team, change.bytes, change.stalls, change.runs])
        }
    }
}
