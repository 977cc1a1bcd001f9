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

    @Test("HEAD is answered as GET is, without the body")
    func head() async throws {
        let store = StubStore(counted: RecordRoutes.stallLimit + 1)
        try await Client.withServer(store, CollectorOptions()) { client in
            for (path, status) in [
                ("/health", 200), ("/", 200), ("/api/v1/faults", 200), ("/assets/style.css", 200),
                ("/api/v1/records", 413), ("/nothing", 404), ("/v1/reports", 404),
            ] {
                let connection = try Connection(port: client.port)
                #expect(connection.send("HEAD \(path) HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
                var text = ""
                while let more = await connection.receive() { text += more }
                #expect(text.hasPrefix("HTTP/1.1 \(status)") && text.hasSuffix("\r\n\r\n"), "\(path): \(text)")
                #expect(text.contains("Content-Length: ") && !text.contains("Content-Length: 0"), "\(path): \(text)")
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

    @Test("Its own metrics need access to all teams; tokens change with their file")
    func tokens() async throws {
        try await Samples.withStore { store, directory in
            let file = directory + "/tokens"
            // It gets its name when it has its mode: otherwise it could be refused in between.
            @Sendable func write(_ text: String, mode: Int = 0o600) throws {
                let next = file + ".next"
                try text.write(toFile: next, atomically: false, encoding: .utf8)
                try FileManager.default.setAttributes([.posixPermissions: mode], ofItemAtPath: next)
                try #require(unsafe rename(next, file) == 0)
            }
            try write("red read,write red-token-0123456789\nops metrics ops-token-0123456789\n")
            var options = CollectorOptions()
            options.tokens = try Tokens(path: file)
            options.tokensEvery = .milliseconds(10)
            options.audit = directory + "/audit"
            try await Client.withServer(store, options) { client in
                func get(_ path: String, _ token: String) async throws -> HTTPResponse.Status {
                    try await client.execute(
                        uri: path,
                        method: .get,
                        headers: [.authorization: "Bearer \(token)-token-0123456789"]
                    ) { $0.status }
                }
                #expect(try await get("/metrics", "red") == .forbidden)
                #expect(try await get("/metrics", "ops") == .ok)
                #expect(try await get("/api/v1/faults", "ops") == .forbidden)
                #expect(try await get("/api/v1/faults", "red") == .ok)
                // Does not try the new token meanwhile: an address that sends many wrong ones is answered by 429.
                func awaitOutcome(_ outcome: String, times: Int = 1) async throws {
                    while try String(contentsOfFile: directory + "/audit", encoding: .utf8)
                        .components(separatedBy: "\"outcome\":\"\(outcome)\"").count <= times
                    { try await Task.sleep(for: .milliseconds(10)) }
                }
                let viewer = try Connection(port: client.port)
                _ = viewer.send(
                    "GET /api/v1/live HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer red-token-0123456789\r\n\r\n"
                )
                var events = try #require(await viewer.receive())
                #expect(events.hasPrefix("HTTP/1.1 200"))
                try write("blue read,write blue-token-0123456789\n")
                try await awaitOutcome("read")
                // Nobody is shown more with a token that was removed: the answer ends.
                for _ in 0..<20 where !events.hasSuffix("\r\n0\r\n\r\n") { events += await viewer.receive() ?? "" }
                #expect(events.hasSuffix("\r\n0\r\n\r\n"))
                #expect(try await get("/api/v1/faults", "blue") == .ok)
                #expect(try await get("/api/v1/faults", "red") == .unauthorized)
                // An unusable file changes nothing.
                try write("nonsense\n")
                try await awaitOutcome("refused")
                #expect(try await get("/api/v1/faults", "blue") == .ok)
                // One that everybody may read is taken once its mode is mended.
                try write("green read green-token-0123456789\n", mode: 0o644)
                try await awaitOutcome("refused", times: 2)
                try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: file)
                try await awaitOutcome("read", times: 2)
                #expect(try await get("/api/v1/faults", "green") == .ok)
            }
        }
    }

    @Test("A change of the tokens' file while the collector starts is noticed")
    func changeAtStart() async throws {
        try await Samples.withStore { _, directory in
            let path = directory + "/tokens"
            func write(_ text: String) throws {
                try text.write(toFile: path, atomically: true, encoding: .utf8)
                try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: path)
            }
            try write("red read red-token-0123456789\n")
            let tokens = try Tokens(path: path)
            try write("green read green-token-0123456789\n")
            let file = TokenFile(
                tokens,
                every: .seconds(3600),
                audit: nil,
                logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
            )
            file.refresh()
            #expect(file.caller(of: "green-token-0123456789".utf8)?.team == "green")
            #expect(file.caller(of: "red-token-0123456789".utf8) == nil)
        }
    }

    @Test("The tokens' file may be a link, as Kubernetes mounts a secret: the file to which it leads counts")
    func mountedTokens() async throws {
        try await Samples.withStore { _, directory in
            /// Changes the secret as Kubernetes does: a link to the directory of its new version replaces the one to the old.
            func mount(_ version: String, _ text: String, mode: Int = 0o440) throws {
                let folder = "\(directory)/\(version)"
                try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
                try text.write(toFile: folder + "/tokens", atomically: false, encoding: .utf8)
                try FileManager.default.setAttributes([.posixPermissions: mode], ofItemAtPath: folder + "/tokens")
                try FileManager.default.createSymbolicLink(
                    atPath: directory + "/..data_tmp",
                    withDestinationPath: version
                )
                try #require(unsafe rename(directory + "/..data_tmp", directory + "/..data") == 0)
            }
            let path = directory + "/tokens"
            try mount("first", "red read red-token-0123456789\n")
            try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: "..data/tokens")
            let file = TokenFile(
                try Tokens(path: path),
                every: .seconds(3600),
                audit: nil,
                logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
            )
            func team(_ token: String) -> String? { file.caller(of: token.utf8)?.team }
            #expect(team("red-token-0123456789") == "red")
            try mount("second", "blue read blue-token-0123456789\n")
            file.refresh()
            #expect(team("blue-token-0123456789") == "blue" && team("red-token-0123456789") == nil)
            try mount("third", "green read green-token-0123456789\n", mode: 0o444)
            file.refresh()
            #expect(team("blue-token-0123456789") == "blue" && team("green-token-0123456789") == nil)
        }
    }

    @Test("A tokens' file for which no descriptor was left is read again, although it has not changed since")
    func tokensWithoutDescriptors() async {
        await #expect(processExitsWith: .success) {
            let path = FileManager.default.temporaryDirectory.path + "/stall-tokens-\(UUID())"
            defer { try? FileManager.default.removeItem(atPath: path) }
            func write(_ text: String) throws {
                try text.write(toFile: path, atomically: true, encoding: .utf8)
                try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: path)
            }
            try write("red read red-token-0123456789\n")
            let file = TokenFile(
                try Tokens(path: path),
                every: .seconds(3600),
                audit: nil,
                logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
            )
            try write("green read green-token-0123456789\n")
            var limit = rlimit(rlim_cur: 256, rlim_max: 256)
            try #require(unsafe setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0)
            var hoard: [Int32] = []
            while true {
                let descriptor = unsafe open("/dev/null", O_RDONLY)
                guard descriptor >= 0 else { break }
                hoard.append(descriptor)
            }
            file.refresh()
            for descriptor in hoard { close(descriptor) }
            #expect(file.caller(of: "green-token-0123456789".utf8) == nil)
            file.refresh()
            #expect(file.caller(of: "green-token-0123456789".utf8)?.team == "green")
        }
    }

    @Test("The audit log has a line for each request with reports, and its size is limited")
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

    @Test("As many clients as the limit are admitted, also before their answers have begun, and one for each that left")
    func clientLimit() {
        let limit = ClientLimit(2, "too many")
        var clients = [try? limit.admit("a"), try? limit.admit("a"), try? limit.admit("a")]
        #expect(clients.map { $0 != nil } == [true, true, false])
        clients[0] = nil
        clients = [clients[1], try? limit.admit("a"), try? limit.admit("b")]
        #expect(clients.map { $0 != nil } == [true, true, false])
    }

    @Test("Clients of one team leave some places to other teams")
    func clientsOfTeams() {
        let limit = ClientLimit(8, "too many")
        let clients = (0..<7).map { _ in try? limit.admit("a") } + (0..<3).map { _ in try? limit.admit("b") }
        #expect(clients.map { $0 != nil } == Array(repeating: true, count: 6) + [false, true, true, false])
    }

    @Test("Exports and flame graphs count as readers: more than the limit are refused")
    func readers() async throws {
        var options = CollectorOptions()
        options.maximumReaders = 0
        let fault = "faults/v2:0000000000000000"
        try await Client.withServer(StubStore(), options) { client in
            for path in ["/api/v1/records", "/api/v1/\(fault)/export/csv", "/\(fault)/flame"] {
                let status = try await client.execute(uri: path, method: .get) { $0.status }
                #expect(status == .tooManyRequests, "\(path)")
            }
        }
    }

    @Test("A large answer counts as a reader until it is sent, a small one does not", arguments: [0, 1])
    func largeAnswers(limit: Int) async throws {
        var options = CollectorOptions()
        options.maximumReaders = limit
        try await Samples.withStore { store, _ in
            let small = Samples.report()
            var large = Samples.report()
            large.metadata = ["noise": String(repeating: "x", count: 300_000)]
            _ = try await store.insert([small, large].map { try Arrival(json: $0.json(), team: "default") })
            try await Client.withServer(store, options) { [large] client in
                func status(_ report: StallReport) async throws -> HTTPResponse.Status {
                    try await client.execute(uri: "/api/v1/reports/\(report.id)", method: .get) { $0.status }
                }
                #expect(try await status(small) == .ok)
                #expect(try await status(large) == (limit == 0 ? .tooManyRequests : .ok))
                // The client has the whole answer a little before the collector knows that it is sent.
                while try await status(large) != (limit == 0 ? .tooManyRequests : .ok) {}
            }
        }
    }

    @Test("Refusals also have the headers that protect pages, and each says why")
    func safetyHeaders() async throws {
        try await Client.withServer(StubStore(), CollectorOptions()) { client in
            for path in ["/", "/nothing", "/faults/x", "/api/v1/faults?limit=x", "/faults/v2:0000000000000000"] {
                try await client.execute(uri: path, method: .get) { answer in
                    #expect(answer.headers[.contentSecurityPolicy]?.hasPrefix("default-src 'none'") == true, "\(path)")
                    #expect(answer.headers[.xContentTypeOptions] == "nosniff", "\(path)")
                    let isMessage = answer.body.starts(with: #"{"message":""#.utf8)
                    #expect(isMessage == (answer.status != .ok), "\(path)")
                }
            }
        }
    }

    @Test("A query for a distant future time is answered")
    func farAhead() async throws {
        try await Samples.withStore { store, _ in
            try await Client.withServer(store, CollectorOptions()) { client in
                for path in ["/", "/api/v1/faults", "/api/v1/records", "/live"] {
                    let uri = path + "?since=9000-01-01T00:00:00Z&until=9001-01-01T00:00:00Z"
                    let status = try await client.execute(uri: uri, method: .get) { $0.status }
                    #expect(status == .ok, "\(path)")
                }
            }
        }
    }

    @Test("The exported page can run its own script and style, and nothing else")
    func exportedPage() async throws {
        // FIPS 180-4, with its examples.
        func hex(_ text: String) -> String {
            SHA256.hash(Array(text.utf8)).map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined()
        }
        #expect(hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
        #expect(
            hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")
                == "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
        )
        try await Samples.withStore { store, _ in
            let report = Samples.report()
            _ = try await store.insert([Arrival(json: report.json(), team: "default")])
            try await Client.withServer(store, CollectorOptions()) { client in
                let path = "/api/v1/faults/\(report.fingerprint.rawValue)/export/"
                try await client.execute(uri: path + "html", method: .get) { answer in
                    let policy = answer.headers[.contentSecurityPolicy] ?? ""
                    #expect(!policy.contains("unsafe") && policy.contains("sandbox allow-scripts"), "\(policy)")
                    let page = String(decoding: answer.body, as: UTF8.self)
                    func content(_ tag: String) -> String? {
                        page.split(separator: "<\(tag)>").dropFirst().first?.split(separator: "</\(tag)>").first.map(
                            String.init
                        )
                    }
                    for (tag, directive) in [("style", "style-src"), ("script", "script-src")] {
                        let text = try #require(content(tag))
                        let hash = Data(SHA256.hash(Array(text.utf8))).base64EncodedString()
                        #expect(policy.contains("\(directive) 'sha256-\(hash)'"), "\(tag)")
                    }
                }
                for format in ["svg", "csv"] {
                    try await client.execute(uri: path + format, method: .get) {
                        #expect($0.headers[.contentSecurityPolicy] == "sandbox; default-src 'none'")
                    }
                }
            }
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
