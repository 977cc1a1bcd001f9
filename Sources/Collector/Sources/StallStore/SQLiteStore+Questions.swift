import Foundation
import GRDB
public import StallReading
public import StallReports

extension SQLiteStore {
    /// Answers in one transaction, so that sums and watched time are from the same moment.
    public func faults(_ query: StallQuery, by order: FaultOrder, limit: Int) async throws -> FaultList {
        try await database.read { database in
            let question = SQLiteQuestion(database, query)
            let (watchedNs, runs) = try question.watched()
            let faults = try question.faults(of: nil, order, limit, watchedNs)
            return FaultList(faults: faults, watchedNs: watchedNs, runs: runs)
        }
    }

    /// Sums one fault over all its fingerprints.
    public func fault(_ fingerprint: Fingerprint, _ query: StallQuery) async throws -> Fault? {
        try await database.read { database in
            let question = SQLiteQuestion(database, query)
            let current = try question.current(fingerprint)
            return try question.faults(of: [current], .total, 1, question.watched().ns).first
        }
    }

    /// Selects the stalls of all fingerprints of the fault.
    public func stalls(
        _ query: StallQuery,
        of fingerprint: Fingerprint?,
        before place: StoredReport.Place?,
        longestFirst: Bool,
        limit: Int
    ) async throws -> [StoredStall] {
        try await database.read { database in
            let question = SQLiteQuestion(database, query.ending(at: place))
            let current = try fingerprint.map { try question.current($0) }
            return try question.stalls(of: current, before: place, longestFirst, limit)
        }
    }

    /// Counts reports in the range.
    public func count(_ query: StallQuery, limit: Int) async throws -> Int {
        try await database.read { try SQLiteQuestion($0, query).count(limit) }
    }

    /// Returns at most about 4 MiB of reports at once.
    public func reports(
        _ query: StallQuery,
        after last: StoredReport.Place?,
        limit: Int
    ) async throws -> [StoredReport] {
        let packed = try await database.read { try SQLiteQuestion($0, query).reports(after: last, limit) }
        return try DocumentPage.first(of: packed, size: \.json.count) {
            StoredReport(place: $0.place, json: try unpacked($0.body))
        }
    }

    /// Returns at most about 4 MiB of records at once.
    public func runs(_ query: StallQuery, after last: ULID?, limit: Int) async throws -> [StoredRun] {
        let packed = try await database.read { try SQLiteQuestion($0, query).runs(after: last, limit) }
        return try DocumentPage.first(of: packed, size: \.json.count) {
            StoredRun(id: $0.id, json: try unpacked($0.body))
        }
    }

    /// Returns stalls in the order of the column `place`.
    public func arrivals(
        team: String,
        after place: Int64,
        limit: Int
    ) async throws -> [(place: Int64, stall: StoredStall)] {
        try await database.read { database in
            try Row.fetchAll(
                database,
                sql:
                    "SELECT \(SQLiteQuestion.stallColumns) FROM stall WHERE team = ? AND place > ? ORDER BY place LIMIT ?",
                arguments: [team, place, max(0, limit)]
            ).compactMap { row in StoredStall(row).map { (row["place"], $0) } }
        }
    }

    /// Returns the last value of `place` that was given to a stall.
    public func lastPlace() async throws -> Int64 {
        try await database.read { try Int64.fetchOne($0, sql: "SELECT place FROM sequence") ?? 0 }
    }

    /// Counts by day over all fingerprints of the fault.
    public func days(of fingerprint: Fingerprint, _ query: StallQuery) async throws -> [DayCount] {
        try await database.read { database in
            let question = SQLiteQuestion(database, query)
            return try question.days(of: question.current(fingerprint))
        }
    }

    /// Sums all faults of each service.
    public func services(_ query: StallQuery) async throws -> ServiceList {
        try await database.read { ServiceList(services: try SQLiteQuestion($0, query).services()) }
    }

    /// Returns at most 256 names of each kind.
    public func choices(_ query: StallQuery) async throws -> Choices {
        try await database.read { try SQLiteQuestion($0, query).choices() }
    }
}
