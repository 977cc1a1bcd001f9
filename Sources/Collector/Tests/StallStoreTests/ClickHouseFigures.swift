import Foundation
import StallReading
import StallReports
import StallStore
import Testing

@testable import ClickHouseStore

/// Figures, not assertions: `TEST_FIGURES=10000000 scripts/clickhouse` prints them.
@Suite(
    "ClickHouse figures",
    .enabled(
        if: TestedStore.server != nil && TestedStore.figureRows != nil,
        "only where TEST_FIGURES says how many stalls"
    )
)
struct ClickHouseFigures {
    private func print(_ name: String, _ times: [Duration], per rows: Int? = nil) {
        let times = times.sorted()
        let rate = rows.map { " (\(Int(Double($0) / (times[times.count / 2] / .seconds(1)))) a second)" } ?? ""
        Swift.print(
            "figure: \(name): \(times[times.count / 2]), the worst of \(times.count) \(times[times.count - 1])\(rate)"
        )
    }

    private func time(_ count: Int, _ work: () async throws -> Void) async throws -> [Duration] {
        var times: [Duration] = []
        for _ in 0..<count { times.append(try await ContinuousClock().measure { try await work() }) }
        return times
    }

    @Test("Faults of a service over 30 days")
    func questions() async throws {
        let rows = try #require(TestedStore.figureRows)
        try await TestedStore.withDatabase { address in
            let store = try await ClickHouseStore(address)
            try await make(rows, in: store)
            var query = StoreContract.query()
            query.until = StoreContract.now
            query.services = ["service3"]
            let list = try await store.faults(query, by: .total, limit: 100)
            Swift.print(
                "figure: \(list.faults.count) faults, \(list.faults.map(\.count).reduce(0, +)) stalls of one service"
            )
            try await printFaults(query, store)
            query.services = []
            print(
                "the latest 100 stalls",
                try await time(9) { _ = try await store.stalls(query, of: nil, longestFirst: false, limit: 100) }
            )
            let fault = list.faults.first?.fingerprint
            print(
                "the longest 200 of a fault",
                try await time(5) { _ = try await store.stalls(query, of: fault, longestFirst: true, limit: 200) }
            )
            print("its size", try await time(3) { _ = try await store.size() })
            Swift.print("figure: \(try await store.size().bytes / Int64(rows)) bytes a stall, without its report")
        }
    }

    private func printFaults(_ query: StallQuery, _ store: ClickHouseStore) async throws {
        var (all, host) = (query, query)
        all.services = []
        (host.services, host.hosts) = ([], ["host7"])
        for (name, query) in [("a service", query), ("all services", all), ("a host", host)] {
            print(
                "top faults of \(name), 30 days",
                try await time(9) { _ = try await store.faults(query, by: .total, limit: 20) }
            )
        }
    }

    /// Creates stalls on the server, spread over 30 days, and their sums.
    private func make(_ rows: Int, in store: ClickHouseStore) async throws {
        let start = StoreContract.now.advanced(byNanoseconds: -30 * 86_400_000_000_000).sinceEpoch
        let end = StoreContract.now.sinceEpoch
        var statement = ClickHouseClient.Statement(Self.stalls(rows, start, end, table: store.table("stall")))
        statement.timeout = .seconds(600)
        statement.settings = [("max_memory_usage", "8000000000")]
        print(
            "making \(rows) stalls on the server",
            try await time(1) { _ = try await store.client.send(statement) },
            per: rows
        )
        let hours = Set((Hours.hour(start)...Hours.hour(end)).map { HourKey(team: "a", hour: $0) })
        try await store.touch(hours)
        print("making all sums", try await time(1) { try await store.settle(after: .zero) })
    }

    /// A few faults cause most of the stalls. There are a thousand hosts, ten services, and four releases, one after
    /// the other.
    private static func stalls(_ rows: Int, _ start: Int64, _ end: Int64, table: String) -> String {
        """
        INSERT INTO \(table) SELECT 'a' AS team, toUInt32(intDiv(m, 86400000000000)) AS day,
            toUInt32(intDiv(m, 3600000000000)) AS hour, concat('01', leftPad) AS id, toUInt64(9223372036854775807) AS version,
            toUInt64(number + 1) AS arrived, m AS started, m AS last, toInt64(d) AS duration, toInt64(1) AS count, toInt64(d) AS total,
            toInt64(d) AS longest, concat('service', toString(intHash32(number) % 10)) AS service,
            concat('1.', toString(intDiv(number * 4, \(rows)))) AS release, concat('host', toString(intHash32(number + 7) % 1000)) AS host,
            'main' AS label, 'on_cpu' AS verdict, concat('v1:00000000', lower(hex(bitOr(toUInt32(f), toUInt32(2147483648))))) AS fingerprint,
            concat('function', toString(f)) AS culprit, '' AS place
        FROM (
            SELECT number, toInt64(\(start) + number * \((end - start) / Int64(rows))) AS m, 250000000 + intHash32(number + 3) % 1000000000 AS d,
                toUInt64(exp2((intHash32(number + 5) % 1000) / 100.)) AS f,
                concat('00000000', hex(toUInt64(number + 1152921504606846976))) AS leftPad
            FROM numbers(\(rows))
        )
        """
    }

    @Test("The store's inserts compared with plain ones")
    func inserts() async throws {
        try await TestedStore.withDatabase { address in
            let store = try await ClickHouseStore(address)
            let arrivals = try (0..<50_000).map { index in
                try StoreContract.arrival(
                    StoreContract.report(
                        hoursAgo: 1 + Double(index % 3600) / 3600,
                        function: "function\(index % 100)()"
                    )
                )
            }
            let parts = stride(from: 0, to: arrivals.count, by: 10_000).map { Array(arrivals[$0..<$0 + 10_000]) }
            var inserted = 0
            let times = try await time(1) { for part in parts { inserted += try await store.insert(part) } }
            #expect(inserted == arrivals.count)
            print("the store takes \(arrivals.count)", times, per: arrivals.count)
            // The same rows from the table, in as many blocks, with their reports.
            for table in ["stall", "body"] {
                var statement = ClickHouseClient.Statement("SELECT * FROM \(store.table(table)) FORMAT TabSeparated")
                statement.maximumBytes = 1 << 30
                let lines = try await store.client.send(statement).split(separator: UInt8(ascii: "\n"))
                _ = try await store.client.send(
                    .init("CREATE TABLE \(store.table("bare_\(table)")) AS \(store.table(table))")
                )
                let blocks = stride(from: 0, to: lines.count, by: 10_000).map { start in
                    Array("INSERT INTO \(store.table("bare_\(table)")) FORMAT TabSeparated\n".utf8)
                        + Array(lines[start..<min(start + 10_000, lines.count)].joined(separator: [10])) + [10]
                }
                let times = try await time(1) {
                    for block in blocks {
                        var statement = ClickHouseClient.Statement("")
                        statement.sql = block
                        _ = try await store.client.send(statement)
                    }
                }
                print("a bare insert of the same rows of '\(table)'", times, per: lines.count)
            }
        }
    }
}
