import Foundation
import NIOCore
import NIOHTTP1
import StallReports
import StallStore
import Testing

@testable import ClickHouseStore

@Suite("The ClickHouse client")
struct ClickHouseClientTests {
    @Test("An address has hosts, a database and options, and shows no password")
    func addresses() throws {
        var address = try ClickHouseAddress("clickhouse://ch1/stalls")
        #expect(address.endpoints == [.init(host: "ch1", port: 8123)])
        #expect((address.database, address.user, address.cluster) == ("stalls", nil, nil))
        address = try ClickHouseAddress("clickhouse://me:a%3Ab@ch1:81,[::1]:82,[::1]/db_2?cluster=fleet&quorum=2")
        #expect(address.endpoints.map(\.host) == ["ch1", "::1", "::1"])
        #expect(address.endpoints.map(\.port) == [81, 82, 8123])
        #expect((address.user, address.password) == ("me", "a:b"))
        #expect((address.cluster, address.quorum) == ("fleet", 2))
        #expect(address.description == "clickhouse://ch1:81,[::1]:82,[::1]:8123/db_2?cluster=fleet")
    }

    @Test(
        "An invalid address is refused",
        arguments: [
            "http://ch1/db", "clickhouse://ch1", "clickhouse:///db", "clickhouse://ch1/", "clickhouse://ch1/a-b",
            "clickhouse://ch1/a`b",
            "clickhouse://ch1:0/db", "clickhouse://ch1:x/db", "clickhouse://ch1,/db", "clickhouse://ch1/db?cluster=a'b",
            "clickhouse://ch1/db?quorum=2", "clickhouse://ch1/db?x=1", "clickhouse://ch1/db?cluster",
            "clickhouse://a b/db", "clickhouse://me:100%@ch1/db",
            "clickhouse://ch1/db?password-file=/none",
        ]
    )
    func wrongAddresses(text: String) {
        #expect(throws: StoreError.self) { try ClickHouseAddress(text) }
    }

    @Test("Escaped text has no byte that ends a field, row or literal, and decodes to the same text")
    func literals() {
        var generator = SeededGenerator.ofThisRun()
        let special: [UInt8] = [0, 8, 9, 10, 12, 13, 39, 92, 34, 96]
        for _ in 0..<20_000 {
            let bytes = (0..<Int.random(in: 0...20, using: &generator)).map { _ in
                Bool.random(using: &generator)
                    ? special.randomElement(using: &generator)! : UInt8.random(in: 0...255, using: &generator)
            }
            var escaped: [UInt8] = []
            SQLLiteral.escape(bytes, into: &escaped)
            #expect(SQLLiteral.unescaped(escaped) == bytes)
            #expect(!escaped.contains { [0, 9, 10, 13].contains($0) })
            // Each quote is behind a backslash that is itself behind an even number of them.
            var isEscape = false
            for byte in escaped {
                if byte == 39 { #expect(isEscape) }
                isEscape = byte == 92 && !isEscape
            }
            #expect(!isEscape)
        }
    }

    @Test("An answer is accepted only if each of its rows is complete")
    func answers() throws {
        func rows(_ text: String) throws -> [[String]] {
            try TabbedAnswer(Array(text.utf8), columns: 2).rows.map { [$0.text(0), $0.text(1)] }
        }
        #expect(try rows("") == [])
        #expect(try rows("a\\tb\t1\t.\n\t\t.\n") == [["a\tb", "1"], ["", ""]])
        // Such a name is no error.
        #expect(try rows("Code: 5, DB::Exception\t.\t.\n") == [["Code: 5, DB::Exception", "."]])
        for text in ["a\t1\t.", "a\t1\t.\nb", "a\t1\n", "a\t.\n", "a\t1\t2\t.\n", "\n", "a\t1\t.\nb\t2\n"] {
            #expect(throws: ClickHouseError.self) { try rows(text) }
        }
        let late = "a\t1\t.\nb\tCode: 160, e.displayText() = DB::Exception: Estimated query execution time\n"
        #expect { try rows(late) } throws: { ($0 as? ClickHouseError)?.code == 160 }
    }

    @Test("A time range is split into whole hours also where time ends")
    func hours() {
        let (unit, states) = (Hours.hourNs, HourStates(touches: [1: 1, 2: 1], done: [1: (1, 7)]))
        let (generations, raw) = states.split(unit / 2..<4 * unit)
        #expect(generations == [7] && raw == [unit / 2..<unit, 2 * unit..<3 * unit])
        for range in [Int64.max..<Int64.max, Int64.max - 1..<Int64.max] {
            #expect(states.split(range).raw == [range].filter { !$0.isEmpty })
        }
    }

    @Test("What arrives after the clock was set back comes behind what was there, and is visible soon")
    func clockSetBack() {
        let (begin, system, hour) = (ContinuousClock.now, 1_780_000_000_000_000 as UInt64, 3_600_000_000 as UInt64)
        var clock = ArrivalClock(begin)
        let first = clock.begin(2, system: system, begin)
        #expect(first == system)
        clock.end(first)
        let second = clock.begin(1, system: system - hour, begin + .milliseconds(10))
        #expect(second > first + 1 && second < system + 1_000_000)
        let whileOpen = clock.bound(system: system - hour + 5_000_000, begin + .seconds(5))
        #expect(whileOpen == second)
        clock.end(second)
        let afterEnd = clock.bound(system: system - hour + 5_000_000, begin + .seconds(5))
        #expect(afterEnd > second)
        // Twice the hour later it is the system's time again.
        let later = clock.bound(system: system + 2 * hour, begin + .seconds(3 * 3600))
        #expect(later == system + 2 * hour - ArrivalClock.delay)
        let third = clock.begin(1, system: system + 2 * hour + 7, begin + .seconds(3 * 3600))
        #expect(third == system + 2 * hour + 7)
    }

    @Test("With a quorum a stored version is written again: it may be on one replica only")
    func quorum() {
        func due(_ version: UInt64, _ stored: UInt64?) -> [Bool] {
            [0, 2].map { ClickHouseWriter.isDue(version, stored: stored, quorum: $0) }
        }
        #expect(due(7, nil) == [true, true] && due(0, nil) == [true, true])
        #expect(due(7, 6) == [true, true])
        #expect(due(7, 7) == [false, true])
        #expect(due(7, 8) == [false, false])
    }

    // MARK: Against a server with preset answers

    private static func head(_ length: Int, status: String = "200 OK") -> String {
        "HTTP/1.1 \(status)\r\nContent-Length: \(length)\r\n\r\n"
    }

    private static func address(_ servers: [ScriptedServer]) throws -> ClickHouseAddress {
        try ClickHouseAddress("clickhouse://\(servers.map { "127.0.0.1:\($0.port)" }.joined(separator: ","))/db")
    }

    private static func statement(_ sql: String = "SELECT 1", seconds: Double = 20) -> ClickHouseClient.Statement {
        var statement = ClickHouseClient.Statement(sql)
        statement.timeout = .seconds(seconds)
        return statement
    }

    @Test("If a server is unreachable or cuts off, the next one is used")
    func nextServer() async throws {
        let good = try await ScriptedServer(Self.head(2) + "1\n")
        let cut = try await ScriptedServer(Self.head(20) + "1\n", closes: true)
        let readOnly = try await ScriptedServer(Self.head(10, status: "500 Error") + "Code: 242,")
        let closed = try await ScriptedServer("")
        try await closed.close()
        for bad in [cut, readOnly, closed] {
            let client = ClickHouseClient(try Self.address([bad, good]))
            for _ in 0..<3 { #expect(try await client.send(Self.statement()) == Array("1\n".utf8)) }
        }
        #expect(cut.connections == 1)
        // A statement that may have run and must not run twice is not sent again.
        let client = ClickHouseClient(try Self.address([cut, good]))
        var once = Self.statement("INSERT INTO t SELECT 1")
        once.isIdempotent = false
        await #expect { try await client.send(once) } throws: { ($0 as? ClickHouseError)?.kind == .cut }
    }

    @Test("Each server is asked by its own address")
    func hosts() async throws {
        let closed = try await ScriptedServer("")
        try await closed.close()
        let server = try await StatementServer { _ in (.ok, "1\n") }
        let address = try ClickHouseAddress("clickhouse://127.0.0.1:\(closed.port),127.0.0.1:\(server.port)/db")
        _ = try await ClickHouseClient(address).send(Self.statement())
        #expect(server.hosts == ["127.0.0.1:\(server.port)"])
        #expect(ClickHouseAddress.Endpoint(host: "::1", port: 82).authority == "[::1]:82")
    }

    @Test("A server that is silent, sends too much or refuses gives distinct errors")
    func failures() async throws {
        let silent = try await ScriptedServer(Self.head(2) + "1\n", answers: 1)
        let large = try await ScriptedServer(Self.head(2000) + String(repeating: "1", count: 2000))
        let refusing = try await ScriptedServer(Self.head(9, status: "404 Not Found") + "Code: 60,")
        let garbage = try await ScriptedServer("what?\r\n\r\n")
        let expected: [(ScriptedServer, ClickHouseError.Kind)] = [
            (silent, .timedOut), (large, .tooLarge), (refusing, .refused(60)), (garbage, .cut),
        ]
        for (server, kind) in expected {
            let client = ClickHouseClient(try Self.address([server]))
            // It is connected before: on a busy machine that may take longer than the time below, and is another error.
            if kind == .timedOut { _ = try await client.send(Self.statement()) }
            var statement = Self.statement(seconds: kind == .timedOut ? 0.2 : 20)
            statement.maximumBytes = 1000
            await #expect { try await client.send(statement) } throws: { ($0 as? ClickHouseError)?.kind == kind }
        }
    }

    @Test("A request on a connection that has ended fails, and does not wait for ever", .timeLimit(.minutes(1)))
    func endedConnection() async throws {
        let server = try await ScriptedServer(Self.head(2) + "1\n")
        let endpoint = ClickHouseAddress.Endpoint(host: "127.0.0.1", port: server.port)
        let channel = try await HTTPExchange.connect(endpoint, deadline: .now() + .seconds(20))
        try await channel.close()
        // Its handlers have been removed.
        try await channel.closeFuture.get()
        let answer = channel.eventLoop.makePromise(of: HTTPAnswer.self)
        let request = HTTPRequest(
            head: HTTPRequestHead(version: .http1_1, method: .POST, uri: "/"),
            body: ByteBuffer(string: "SELECT 1"),
            deadline: .now() + .seconds(20),
            maximumBytes: 1000,
            answer: answer
        )
        HTTPExchange.send(request, on: channel)
        await #expect(throws: HTTPFailure.cut) { try await answer.futureResult.get() }
    }

    @Test("A connection is reused")
    func keepsAlive() async throws {
        let server = try await ScriptedServer(Self.head(2) + "1\n")
        let client = ClickHouseClient(try Self.address([server]))
        // After a longer pause than this it opens another one, as the servers close theirs.
        let idleTime = Duration.nanoseconds(ClickHouseClient.idleTime.nanoseconds)
        var (begun, pauses) = (ContinuousClock.now, 0)
        for _ in 0..<5 {
            let former = begun
            begun = .now
            _ = try await client.send(Self.statement())
            if former.duration(to: .now) >= idleTime { pauses += 1 }
        }
        #expect((1...1 + pauses).contains(server.connections), "\(server.connections), \(pauses) pauses")
    }
}
