import Foundation
import NIOHTTP1
import StallReports
import StallStore
import Testing

@testable import ClickHouseStore

// The statements of a store, to a server that answers each by its text.

extension ClickHouseClientTests {
    @Test(
        "A column that exists is added again without harm, and any other error of a cluster's server is one",
        arguments: [
            // A current version, and one that does not know 'IF NOT EXISTS' for columns.
            (isOld: false, error: nil as Int?), (isOld: false, error: 242), (isOld: true, error: 44),
            (isOld: true, error: 242),
        ]
    )
    func addedColumn(server: (isOld: Bool, error: Int?)) async throws {
        let answers = try await StatementServer { statement in
            if statement.hasPrefix("SELECT") { return (.ok, "2\t.\n") }
            guard statement.hasPrefix("ALTER") else { return (.ok, "") }
            if server.isOld, statement.contains("IF NOT EXISTS") { return (.internalServerError, "Code: 62, syntax") }
            return server.error.map { (.internalServerError, "Code: \($0), on one server") } ?? (.ok, "")
        }
        let address = try ClickHouseAddress("clickhouse://127.0.0.1:\(answers.port)/db?cluster=fleet")
        let isKnown = server.error == nil || server.error == 44
        do {
            _ = try await ClickHouseStore(address)
            #expect(isKnown)
        } catch {
            #expect(!isKnown, "\(error)")
        }
        // What failed is done again at the next start.
        #expect(answers.statements.contains { $0.hasPrefix("INSERT INTO db.migration") } == isKnown)
        let plain = answers.statements.contains { $0.hasPrefix("ALTER") && !$0.contains("IF NOT EXISTS") }
        #expect(plain == server.isOld)
    }

    @Test("If a server refuses to make the sums of one team's hours, those of others are made")
    func refusedSums() async throws {
        let server = try await StatementServer { statement in
            if statement.hasPrefix("SELECT w, t, h, n, g") {
                return (.ok, "touch\tblue\t480000\t1\t0\t.\ntouch\tred\t480000\t1\t0\t.\n")
            }
            if statement.hasPrefix("SELECT") { return (.ok, "1\t.\n") }
            return statement.contains("team = 'blue'") ? (.internalServerError, "Code: 241, memory") : (.ok, "")
        }
        let store = try await ClickHouseStore(try ClickHouseAddress("clickhouse://127.0.0.1:\(server.port)/db"))
        await #expect { try await store.settle(after: .zero) } throws: { ($0 as? ClickHouseError)?.code == 241 }
        let done = server.statements.filter { $0.hasPrefix("INSERT INTO db.done") }
        #expect(done.count == 1 && done.allSatisfy { $0.contains("red\t") }, "\(server.statements)")
    }

    @Test("Documents that are removed while they are read do not end the list", .timeLimit(.minutes(1)))
    func removedDocuments() async throws {
        let reports = [2.0, 1.0].map { StoreContract.report(hoursAgo: $0) }
        let stalls = try reports.compactMap { report in
            if case .stall(let stall) = try StoreContract.arrival(report) { stall } else { nil }
        }
        let (gone, left) = (stalls[0], stalls[1])
        let server = try await StatementServer { statement in
            let isLast = statement.contains("id > '\(gone.id)'")
            let last = statement.contains("id > '\(left.id)'")
            let listed = last ? [] : isLast ? [left] : stalls
            let rows: [[String]]
            if statement.hasPrefix("SELECT toInt64(hour), id, started") {
                rows = listed.map { ["\(Hours.hour($0.startedNs))", "\($0.id)", "\($0.startedNs)"] }
            } else if statement.hasPrefix("SELECT id, fingerprint") {
                rows = listed.filter { statement.contains("\($0.id)") }.map { stall in
                    let numbers = [stall.startedNs, stall.durationNs, stall.version].map { "\($0)" }
                    let names = [stall.verdict, stall.service, stall.release, stall.host, stall.label, stall.culprit]
                    return ["\(stall.id)", stall.fingerprint] + numbers + names
                }
            } else if statement.hasPrefix("SELECT id, '.' FROM db.run") {
                rows = listed.prefix(1).map { ["\($0.id)"] }
            } else if statement.hasPrefix("SELECT id, ") {
                let body = Data(left.body).base64EncodedString()
                let value = statement.contains("length(") ? "\(body.utf8.count)" : body
                rows = statement.contains("\(left.id)") ? [["\(left.id)", value]] : []
            } else {
                rows = statement.hasPrefix("SELECT") ? [["4"]] : []
            }
            return (.ok, rows.map { ($0 + [".\n"]).joined(separator: "\t") }.joined())
        }
        let store = try await ClickHouseStore(try ClickHouseAddress("clickhouse://127.0.0.1:\(server.port)/db"))
        let page = try await store.reports(StoreContract.query(), after: nil, limit: 1)
        #expect(page.map(\.place.id) == [left.id])
        #expect(try await store.reports(StoreContract.query(), after: page.last?.place, limit: 1).isEmpty)
        let runs = try await store.runs(StoreContract.query(), after: nil, limit: 1)
        #expect(runs.map(\.id) == [left.id])
        #expect(try await store.runs(StoreContract.query(), after: left.id, limit: 1).isEmpty)
    }

    @Test("If a server refuses to drop a day, the other tables' days are dropped, and sums are made")
    func refusedDrop() async throws {
        let server = try await StatementServer { statement in
            if statement.hasPrefix("SELECT w, t, h, n, g") { return (.ok, "") }
            if statement.hasPrefix("SELECT toInt64(partition)") { return (.ok, "10\t.\n") }
            if statement.hasPrefix("SELECT") { return (.ok, "1\t.\n") }
            guard statement.hasPrefix("ALTER TABLE db.stall ") else { return (.ok, "") }
            return (.internalServerError, "Code: 359, too large")
        }
        let store = try await ClickHouseStore(try ClickHouseAddress("clickhouse://127.0.0.1:\(server.port)/db"))
        await #expect {
            try await store.removeOld(before: Timestamp(sinceEpoch: 20 * Hours.dayNs), maximumBytes: nil)
        } throws: {
            ($0 as? ClickHouseError)?.code == 359
        }
        let statements = server.statements
        #expect(statements.count { $0.hasSuffix(" DROP PARTITION 10") } == ClickHouseSchema.aged.count)
        #expect(statements.last?.hasPrefix("SELECT w, t, h, n, g") == true, "\(statements)")
    }

    @Test("A replica that still has a dropped day does not hold up the removal", .timeLimit(.minutes(1)))
    func laggingReplica() async throws {
        let server = try await StatementServer { statement in
            if statement.hasPrefix("SELECT w, t, h, n, g") { return (.ok, "") }
            if statement.hasPrefix("SELECT toInt64(partition)") { return (.ok, "10\t.\n11\t.\n") }
            if statement.contains("bytes_on_disk") { return (.ok, "1000\t.\n") }
            return (.ok, statement.hasPrefix("SELECT") ? "1\t.\n" : "")
        }
        let store = try await ClickHouseStore(try ClickHouseAddress("clickhouse://127.0.0.1:\(server.port)/db"))
        _ = try await store.removeOld(before: Timestamp(sinceEpoch: 5 * Hours.dayNs), maximumBytes: 1)
        let statements = server.statements
        #expect(statements.count { $0.hasSuffix(" DROP PARTITION 10") } == ClickHouseSchema.aged.count)
        #expect(!statements.contains { $0.hasSuffix(" DROP PARTITION 11") })
        #expect(statements.last?.hasPrefix("SELECT w, t, h, n, g") == true, "\(statements)")
    }
}
