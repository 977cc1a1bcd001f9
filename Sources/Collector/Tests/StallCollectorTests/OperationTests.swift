import Foundation
import HTTPTypes
import Logging
import ServiceLifecycle
import StallReports
import StallStore
import Synchronization
import Testing

@testable import StallCollector

/// What an operator sees and does.
@Suite("Running a collector", .timeLimit(.minutes(5)))
struct OperationTests {
    @Test("It is healthy as long as its store answers")
    func health() async throws {
        struct Broken: Error {}
        for (store, status) in [
            (StubStore(), HTTPResponse.Status.ok), (StubStore(checking: { throw Broken() }), .serviceUnavailable),
        ] {
            try await Client.withServer(store, CollectorOptions()) { client in
                let found = try await client.execute(uri: "/health", method: .get) { $0.status }
                #expect(found == status)
            }
        }
        let barrier = Barrier()
        let hanging = Health(StubStore(checking: { await barrier.pass() }), patience: .milliseconds(10))
        #expect(await hanging.isWell() == false)
        await barrier.open()
    }

    @Test("Where it cannot listen, it says so in one sentence, with the system's reason")
    func listening() async throws {
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        try await Client.withServer(StubStore(), CollectorOptions()) { client in
            var options = CollectorOptions()
            options.port = client.port
            let second = try Collector(StubStore(), options, logger: logger)
            let expected = CollectorError(
                "it cannot listen on 127.0.0.1:\(client.port): Address already in use; '--listen' names another address or port"
            )
            await #expect(throws: expected) {
                try await Collector.group(second, options, logger: logger).run()
            }
        }
    }

    @Test("Any number of requests for its health are one query, also while the store does not answer")
    func oneHealthQuery() async throws {
        let barrier = Barrier()
        let health = Health(
            StubStore(checking: { await barrier.pass() }),
            patience: .seconds(600),
            validity: .seconds(3600)
        )
        final class Begun: Sendable { let count = Atomic(0) }
        let begun = Begun()
        try await withThrowingTaskGroup(of: Bool.self) { group in
            for _ in 0..<20 {
                group.addTask {
                    begun.count.wrappingAdd(1, ordering: .relaxed)
                    return await health.isWell()
                }
            }
            while begun.count.load(ordering: .relaxed) < 20 { await Task.yield() }
            while await barrier.arrived == 0 { try await Task.sleep(for: .milliseconds(10)) }
            // Time for the others to arrive, if they did.
            try await Task.sleep(for: .milliseconds(100))
            await barrier.open()
            for try await isWell in group { #expect(isWell) }
        }
        #expect(await barrier.arrived == 1)
    }

    @Test("However many requests the store fails, there is a second between two removals")
    func removals() async throws {
        struct Full: Error {}
        var options = CollectorOptions()
        options.maximumBytes = 10_000_000
        let moments = Mutex<[ContinuousClock.Instant]>([])
        var store = StubStore(inserting: { _ in throw Full() })
        store.removing = { _ in moments.withLock { $0.append(.now) } }
        let report = try Samples.report().json()
        try await Client.withServer(store, options) { client in
            while moments.withLock({ $0.count }) < 2 {
                try await client.execute(
                    uri: "/v1/reports",
                    method: .post,
                    headers: [.contentType: "application/x-ndjson"],
                    body: report
                ) { #expect($0.status == .serviceUnavailable) }
            }
        }
        let found = moments.withLock { $0 }
        #expect(found[1] - found[0] >= .seconds(1))
    }

    @Test("A removal that the collector's end interrupts is not recorded as a failure", arguments: [true, false])
    func interruptedRemoval(isEnding: Bool) async throws {
        struct Broken: Error {}
        try await Samples.withStore { _, directory in
            var store = StubStore()
            store.removing = { _ in throw Broken() }
            let retention = Retention(
                store,
                CollectorOptions(),
                CollectorMetrics(),
                try AuditLog(path: directory + "/audit"),
                Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
            )
            let removal = Task {
                while isEnding, !Task.isCancelled { await Task.yield() }
                await retention.remove()
            }
            if isEnding { removal.cancel() }
            await removal.value
            let text = try String(contentsOfFile: directory + "/audit", encoding: .utf8)
            #expect(text.contains("failed") == !isEnding, "\(text)")
        }
    }

    @Test("Nothing is removed for its age at the start, or after the clock was set by more than a day")
    func clockAhead() async {
        let removed = Mutex<[Timestamp]>([])
        var store = StubStore()
        store.removing = { moment in removed.withLock { $0.append(moment) } }
        let options = CollectorOptions()
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let retention = Retention(store, options, CollectorMetrics(), nil, logger)
        let (right, instant) = (Timestamp(seconds: 1_800_000_000), ContinuousClock.now)
        func remove(after seconds: Int64, aheadBy days: Int64 = 0) async {
            let ahead = Timestamp(seconds: right.seconds + seconds + days * 86_400)
            await retention.remove(at: ahead, instant + .seconds(seconds))
        }
        await remove(after: 0, aheadBy: 400)
        await remove(after: 60, aheadBy: 400)
        await remove(after: 120)
        await remove(after: 600)
        #expect(removed.withLock { $0 }.allSatisfy { $0 == Timestamp(seconds: 0) })
        await remove(after: 1200)
        let kept = options.keep.components.seconds
        #expect(removed.withLock { $0.last } == Timestamp(seconds: right.seconds + 1200 - kept))
        await remove(after: 1800, aheadBy: 20)
        #expect(removed.withLock { $0.last } == Timestamp(seconds: 0))
    }

    @Test("Its own counts are in the metrics also while the store does not answer", arguments: [true, false])
    func metrics(hasSize: Bool) async throws {
        var store = StubStore()
        store.hasSize = hasSize
        try await Client.withServer(store, CollectorOptions()) { client in
            try await client.execute(uri: "/metrics", method: .get) {
                let text = String(decoding: $0.body, as: UTF8.self)
                #expect($0.status == .ok && text.contains("stall_collector_ingest_requests_total 0\n"), "\(text)")
                #expect(text.contains("stall_collector_store_stalls 2\n") == hasSize, "\(text)")
            }
        }
    }

    @Test("Requests that the store does not take are counted")
    func failures() async throws {
        let report = try Samples.report().json()
        let store = StubStore(inserting: { _ in throw StubStore.Failure() })
        try await Client.withServer(store, CollectorOptions()) { client in
            for count in 1...2 {
                let fields: HTTPFields = [.contentType: "application/x-ndjson"]
                try await client.execute(uri: "/v1/reports", method: .post, headers: fields, body: report) {
                    #expect($0.status == .serviceUnavailable)
                }
                try await client.execute(uri: "/metrics", method: .get) {
                    let text = String(decoding: $0.body, as: UTF8.self)
                    #expect(text.contains("stall_collector_ingest_failures_total \(count)\n"), "\(text)")
                }
            }
        }
    }

    @Test("The audit log has a line for each request with reports")
    func audit() async throws {
        try await Samples.withStore { store, directory in
            var options = CollectorOptions()
            options.audit = directory + "/audit"
            try await Client.withServer(store, options) { client in
                for body in [try Samples.report().json(), Array("nonsense\n".utf8)] {
                    try await client.execute(
                        uri: "/v1/reports",
                        method: .post,
                        headers: [.contentType: "application/x-ndjson"],
                        body: body
                    ) { #expect($0.status == .accepted) }
                }
                try await client.execute(uri: "/v1/reports", method: .post, headers: [.contentType: "text/plain"]) {
                    #expect($0.status == .unsupportedMediaType)
                }
            }
            struct Line: Decodable {
                var action: String
                var outcome: String
                var team: String?
                var peer: String?
                var accepted: Int?
                var refused: Int?
                var reason: String?
            }
            let lines = try String(contentsOfFile: directory + "/audit", encoding: .utf8).split(separator: "\n")
                .map { try JSONDecoder().decode(Line.self, from: Data($0.utf8)) }.filter { $0.action == "ingest" }
            #expect(lines.map(\.outcome) == ["202", "202", "415"])
            #expect(lines.map(\.accepted) == [1, 0, nil] && lines.map(\.refused) == [0, 1, nil])
            #expect(lines.allSatisfy { $0.team == "default" && $0.peer == "127.0.0.1" })
            #expect(lines[2].reason?.contains("application/x-ndjson") == true)
        }
    }

    @Test("The audit log's size is limited, each line is whole, and a file that was removed is made again")
    func auditFile() async throws {
        try await Samples.withStore { _, directory in
            let log = try AuditLog(path: directory + "/small", maximumBytes: 1000)
            for _ in 0..<100 { log.write(.init(action: "start", outcome: "ok")) }
            for name in ["/small", "/small.1"] {
                let size = try FileManager.default.attributesOfItem(atPath: directory + name)[.size] as? Int
                #expect((1...1000).contains(size ?? 0))
            }
            // The disk was full in the middle of a line.
            try Data(#"{"action":"sta"#.utf8).write(to: URL(filePath: directory + "/cut"))
            try AuditLog(path: directory + "/cut").write(.init(action: "start", outcome: "ok"))
            let cut = try String(contentsOfFile: directory + "/cut", encoding: .utf8).split(separator: "\n")
            #expect(cut.count == 2 && cut.last?.hasPrefix(#"{"action":"start""#) == true, "\(cut)")
            // The collector may only write to it.
            let blind = directory + "/blind"
            try Data("{}\n".utf8).write(to: URL(filePath: blind))
            try FileManager.default.setAttributes([.posixPermissions: 0o200], ofItemAtPath: blind)
            try AuditLog(path: blind).write(.init(action: "start", outcome: "ok"))
            try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: blind)
            #expect(try String(contentsOfFile: blind, encoding: .utf8).hasPrefix("{}\n{"))
            // An operator removes the file.
            try FileManager.default.removeItem(atPath: directory + "/small")
            for _ in 0..<100 { log.write(.init(action: "start", outcome: "ok")) }
            #expect(FileManager.default.fileExists(atPath: directory + "/small"))
        }
    }

    @Test("The systemd service permits as many open files as connections")
    func unit() throws {
        let root = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../../..")
        let unit = try String(
            contentsOf: root.appending(path: "config/systemd/stall-collector.service"),
            encoding: .utf8
        )
        let limit = try #require(unit.firstMatch(of: /(?m)^LimitNOFILE=(\d+)$/).flatMap { Int($0.1) })
        #expect(limit >= CollectorOptions().maximumConnections + 64)
    }
}
