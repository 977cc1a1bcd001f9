import Foundation
import StallReports
import Testing

@Suite("ship", .timeLimit(.minutes(10)))
struct ShipCommandTests {
    private let fixture: ReportsFixture
    private var answers: String { fixture.root + "/receiver" }

    init() throws { fixture = try ReportsFixture() }

    @discardableResult
    private func write(_ count: Int, metadata: [String: String]? = nil) throws -> [String] {
        try (0..<count).map { _ in
            var report = Sample.report(id: .make())
            report.metadata = metadata ?? report.metadata
            _ = try fixture.store.write(report)
            return "\(report.id)"
        }
    }

    private func ship(_ receiver: OTLPReceiver, _ arguments: String..., environment: [String: String] = [:]) throws
        -> CommandRun
    {
        let all = ["ship", fixture.path, "--to", receiver.url, "--checkpoint", fixture.root + "/sent", "--once"]
        return try CommandRun(arguments: all + arguments, environment: environment)
    }

    /// A ship command that runs until it is ended.
    private func follow(_ receiver: OTLPReceiver, _ directory: String? = nil) throws -> RunningCommand {
        let all = ["ship", directory ?? fixture.path, "--to", receiver.url, "--checkpoint", fixture.root + "/sent"]
        return try RunningCommand(arguments: all)
    }

    @Test("Existing reports are sent once and not again by the next run; an ongoing stall is sent when it has ended")
    func once() throws {
        let ids = try write(3)
        _ = try fixture.store.write(Sample.report(id: .make(), state: .ongoing))
        let receiver = try OTLPReceiver(in: answers)
        let first = try ship(receiver)
        #expect(first.status == 0 && first.output.hasPrefix("sent 3 stalls and 0 run records in 1 request"), "\(first)")
        let request = try #require(try receiver.accepted().first)
        #expect(request.path == "/v1/logs" && request.headers["Content-Type"] == "application/json")
        #expect(request.headers["Content-Encoding"] == "gzip" && request.headers["Authorization"] == nil)
        #expect(request.headers["Date"]?.hasSuffix(" GMT") == true)
        #expect(request.all("stall.id") == ids)
        let stacks = request.all("code.stacktrace")
        #expect(stacks.count == 3 && Set(stacks).count == 1)
        #expect(stacks.first?.hasPrefix("clock_nanosleep\nusleep\nshop.Cart.total()") == true)
        #expect(request.all("stall.metadata.region").count == 3)
        let next = try write(1)
        #expect(try ship(receiver, "--format", "json").output.contains("\"stalls\":1,"))
        #expect(try receiver.stalls() == ids + next)
    }

    @Test("A report that was made without names is sent again once it has them")
    func named() throws {
        var report = Sample.report(id: .make())
        let receiver = try OTLPReceiver(in: answers)
        for (isProvisional, sent) in [(true, 1), (true, 0), (nil, 1), (nil, 0)] as [(Bool?, Int)] {
            report.isProvisional = isProvisional
            _ = try fixture.store.write(report)
            #expect(try ship(receiver, "--format", "json").output.contains("\"stalls\":\(sent),"))
        }
    }

    @Test("New reports are sent as they appear; one SIGTERM ends the command cleanly")
    func follows() throws {
        try write(1)
        let receiver = try OTLPReceiver(in: answers)
        let run = try RunningCommand(
            "ship",
            fixture.path,
            "--checkpoint",
            fixture.root + "/sent",
            environment: ["OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_EXPORTER_OTLP_HEADERS": "x-team=a%20b"]
        )
        try receiver.awaitStalls(1)
        try write(1)
        try receiver.awaitStalls(2)
        // Nothing waits for it: the last reports are sent before the end.
        let last = try write(1)
        run.send(SIGTERM)
        #expect(run.status() == 0)
        #expect(try run.line()?.hasPrefix("sent ") == true)
        #expect(try ship(receiver).status == 0)
        let stalls = try receiver.stalls()
        #expect(stalls.count == 3 && stalls.last == last[0])
        #expect(try receiver.accepted()[0].headers["x-team"] == "a b")
    }

    @Test("Directories below the given one are followed, including later ones")
    func tree() throws {
        func write(_ folder: String) throws -> String {
            let id = ULID.make()
            _ = try ReportDirectory(path: "\(fixture.root)/hosts/\(folder)").write(Sample.report(id: id))
            return "\(id)"
        }
        let receiver = try OTLPReceiver(in: answers)
        var ids = [try write("web1"), try write("web2/shop")]
        let run = try follow(receiver, fixture.root + "/hosts")
        try receiver.awaitStalls(2)
        for (count, folder) in [(3, "web3"), (4, "web2/shop"), (5, "web3")] {
            ids.append(try write(folder))
            try receiver.awaitStalls(count)
        }
        run.send(SIGTERM)
        #expect(run.status() == 0)
        #expect(try receiver.stalls().sorted() == ids.sorted())
    }

    @Test("Killed at any moment, it loses nothing: each stall arrives")
    func killed() throws {
        let receiver = try OTLPReceiver(in: answers)
        var ids: [String] = []
        for round in 1...6 {
            ids += try write(20)
            let run = try follow(receiver)
            // Somewhere between its start and the moment it has recorded an acknowledgement.
            if round.isMultiple(of: 2) { try receiver.awaitStalls(ids.count) } else { usleep(UInt32(round) * 60_000) }
            run.send(SIGKILL)
            #expect(run.status() == 128 + SIGKILL)
        }
        #expect(try ship(receiver).status == 0)
        #expect(try Set(receiver.stalls()) == Set(ids))
    }

    @Test("It waits until the receiver is back, for as long as the receiver asks; nothing arrives twice")
    func outage() throws {
        let ids = try write(2)
        let plan = """
            {"status": 503, "headers": {"Retry-After": "1"}}
            {"close": true}
            {"status": 429, "body": "slow down"}
            """
        let receiver = try OTLPReceiver(in: answers, plan: plan)
        let run = try RunningCommand("ship", fixture.path, "--to", receiver.url)
        var notes: [String] = []
        while notes.last?.contains("again") != true, let note = try run.errorLine() { notes.append(note) }
        run.send(SIGINT)
        #expect(run.status() == 130)
        #expect(
            notes.count == 4 && notes[0].contains("it answers 503") && notes[2].contains("429: slow down"),
            "\(notes)"
        )
        #expect(try receiver.stalls() == ids)
    }

    @Test("Reports that a receiver rejects are reported and skipped; the others are accepted")
    func hostile() throws {
        let ids = try write(9)
        // The first ones: at the first try the receiver has accepted nothing that would show that these are at fault.
        let minded = ids.prefix(4)
        let plan = minded.map { "{\"where\": \"\($0)\", \"status\": 400, \"body\": \"no\"}" }
        let receiver = try OTLPReceiver(in: answers, plan: plan.joined(separator: "\n"))
        let run = try ship(receiver)
        #expect(run.status == 1 && run.output.contains("; 4 refused"), "\(run.output)")
        for id in minded {
            #expect(run.errors.contains("refuses stall \(id), which is not sent again: 400: no"), "\(run.errors)")
        }
        #expect(try receiver.stalls().sorted() == ids.dropFirst(4) + [])
        #expect(try ship(receiver).status == 0)
    }

    @Test("If a receiver accepts nothing, no report is given up", arguments: [400, 401, 404, 413])
    func refusesEverything(status: Int) throws {
        let ids = try write(5)
        let receiver = try OTLPReceiver(in: answers, plan: "{\"status\": \(status), \"stays\": true}")
        let run = try ship(receiver)
        #expect(run.status == 1 && run.output.contains("; 5 not sent") && run.errors.contains("\(status)"), "\(run)")
        #expect(run.errors.matches(of: /next try in/).count == 2, "the third try is the last: \(run.errors)")
        receiver.end()
        let next = try OTLPReceiver(in: fixture.root + "/next")
        #expect(try ship(next).status == 0)
        #expect(try next.stalls() == ids)
    }

    @Test("Run records that are not accepted do not keep reports from being tried again")
    func kinds() throws {
        let ids = try write(2)
        _ = try fixture.store.write(Sample.run())
        // The reports are due again after the third attempt to send the run record. The pauses before that take three seconds at most, and the
        // requests what the machine needs.
        let plan = """
            {"status": 503, "headers": {"Retry-After": "15"}}
            {"status": 503}
            {"status": 503}
            {"status": 503}
            """
        let receiver = try OTLPReceiver(in: answers, plan: plan)
        let run = try ship(receiver)
        #expect(run.errors.contains("takes no run records"), "\(run.errors)")
        #expect(try receiver.stalls() == ids)
    }

    @Test("If there is no collector at the address, run records wait like reports")
    func noCollector() throws {
        _ = try fixture.store.write(Sample.run())
        let receiver = try OTLPReceiver(in: answers, plan: "{\"status\": 404, \"stays\": true}")
        let run = try CommandRun(arguments: [
            "ship", fixture.path, "--collector", receiver.url, "--checkpoint", fixture.root + "/sent", "--once",
        ])
        #expect(run.status == 1 && run.output.contains("; 1 not sent") && run.errors.contains("404"), "\(run)")
    }

    @Test("A redirect is reported, and the token is sent nowhere else")
    func redirect() throws {
        try write(1)
        let other = try OTLPReceiver(in: fixture.root + "/other")
        let plan = "{\"status\": 307, \"headers\": {\"Location\": \"\(other.url)/v1/logs\"}, \"stays\": true}"
        let run = try ship(OTLPReceiver(in: answers, plan: plan), environment: ["STALL_MONITOR_TOKEN": "secret"])
        #expect(run.status == 1 && run.errors.contains("redirect to \(other.url)"))
        #expect(try other.accepted().isEmpty)
    }

    @Test("The token comes from a file, read each time, or the environment; an invalid one is reported at once")
    func token() throws {
        try write(1)
        let receiver = try OTLPReceiver(in: answers)
        let file = fixture.root + "/token"
        try "first\n".write(toFile: file, atomically: true, encoding: .utf8)
        #expect(try ship(receiver, "--token-file", file).status == 0)
        try write(1)
        #expect(try ship(receiver, environment: ["STALL_MONITOR_TOKEN": "second\n"]).status == 0)
        try write(1)
        // The token takes precedence over a header.
        let both = ["STALL_MONITOR_TOKEN": "third", "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Basic%20x"]
        #expect(try ship(receiver, environment: both).status == 0)
        let sent = try receiver.accepted().map { $0.headers.filter { $0.key.lowercased() == "authorization" } }
        #expect(sent == ["Bearer first", "Bearer second", "Bearer third"].map { ["Authorization": $0] })
        try "two\nlines".write(toFile: file, atomically: true, encoding: .utf8)
        for path in [file, fixture.root + "/none"] {
            let run = try ship(receiver, "--token-file", path)
            #expect(run.status == 1 && run.errors.contains("the token's file \(path)"), "\(run.errors)")
        }
        let torn = try ship(receiver, environment: ["STALL_MONITOR_TOKEN": "two\nlines"])
        #expect(torn.status == 1 && torn.errors.contains("the given token cannot be sent"), "\(torn.errors)")
        let header = try ship(receiver, environment: ["OTEL_EXPORTER_OTLP_HEADERS": "x-é=1"])
        #expect(header.status != 0 && header.errors.contains("the header x-é cannot be sent"), "\(header.errors)")
    }

    @Test("Reports that were deleted for newer ones before they could be sent are counted")
    func lost() throws {
        let ids = try write(3)
        let receiver = try OTLPReceiver(in: answers, plan: "{\"status\": 503, \"stays\": true}")
        let run = try follow(receiver)
        #expect(try run.errorLine()?.contains("503") == true)
        // 40 MB: more than is kept ready (32 MiB).
        let before = bytesRead(by: run.pid) ?? 0
        let text = String(repeating: "x", count: 490)
        let megabyte = Dictionary(uniqueKeysWithValues: (0..<2000).map { ("\($0)", text) })
        let size = try write(40, metadata: megabyte).reduce(0) { sum, id in
            let file = try FileManager.default.attributesOfItem(atPath: "\(fixture.path)/stall-\(id).json")
            return sum + (file[.size] as? Int ?? 0)
        }
        // The command reports only losses of reports that it has read. On a busy machine it reads them late.
        let deadline = ContinuousClock.now + .seconds(180)
        while (bytesRead(by: run.pid) ?? .max) - before < size, ContinuousClock.now < deadline { usleep(10_000) }
        for id in try FileManager.default.contentsOfDirectory(atPath: fixture.path) {
            try FileManager.default.removeItem(atPath: fixture.path + "/" + id)
        }
        try FileManager.default.removeItem(atPath: answers + "/plan")
        var note: String?
        repeat { note = try run.errorLine() } while note != nil && note?.contains("made room") != true
        #expect(note?.contains("reports made room for newer ones before they could be sent") == true)
        run.send(SIGTERM)
        #expect(run.status() == 0)
        #expect(try receiver.stalls().starts(with: ids))
    }

    /// How much a process has read from files so far. Nil if the kernel does not count it: proc(5), /proc/PID/io.
    private func bytesRead(by process: Int32) -> Int? {
        let counts = (try? String(contentsOfFile: "/proc/\(process)/io", encoding: .utf8)) ?? ""
        return counts.split(separator: "\n").first { $0.hasPrefix("rchar: ") }.flatMap { Int($0.dropFirst(7)) }
    }

    @Test(
        "It waits for a missing directory also if the checkpoint will be in it; SIGTERM ends that, too",
        arguments: [true, false]
    )
    func waits(_ appears: Bool) throws {
        let receiver = try OTLPReceiver(in: answers)
        let run = try RunningCommand("ship", fixture.path, "--to", receiver.url)
        #expect(try run.errorLine()?.contains("waiting for the report directory \(fixture.path) to appear") == true)
        if appears {
            try write(1)
            try receiver.awaitStalls(1)
        }
        run.send(SIGTERM)
        #expect(run.status() == 0)
    }

    @Test("A command that cannot start says what to do")
    func refusals() throws {
        try write(1)
        let receiver = try OTLPReceiver(in: answers)
        let file = fixture.root + "/notes"
        try "my notes\n".write(toFile: file, atomically: true, encoding: .utf8)
        let foreign = try CommandRun("ship", fixture.path, "--to", receiver.url, "--checkpoint", file, "--once")
        #expect(foreign.status == 1 && foreign.errors.contains("is no checkpoint of 'ship'"))
        #expect(try String(contentsOfFile: file, encoding: .utf8) == "my notes\n")
        #expect(try CommandRun("ship", fixture.path).status == 64)
        let none = fixture.root + "/none"
        let missing = try CommandRun("ship", none, "--to", receiver.url, "--checkpoint", fixture.root + "/m", "--once")
        #expect(missing.status == 1 && missing.errors.contains("\(none): there is no such report directory"))
        for (way, status) in [("--to", Int32(64)), ("--collector", 1)] {
            let options = [way, receiver.url, "--checkpoint", fixture.root + "/n", "--once"]
            let variable = ["OTEL_EXPORTER_OTLP_HEADERS": "not a header"]
            let headed = try CommandRun(arguments: ["ship", none] + options, environment: variable)
            #expect(headed.status == status, "a collector gets no headers: \(headed.errors)")
        }
        let waiting = try RunningCommand("ship", none, "--to", receiver.url, "--checkpoint", fixture.root + "/m")
        #expect(try waiting.errorLine()?.contains("waiting for the report directory \(none) to appear") == true)
        let variable = ["OTEL_EXPORTER_OTLP_ENDPOINT": "example.com:4318"]
        let address = try CommandRun("ship", fixture.path, "--once", environment: variable)
        #expect(address.status == 64, "\(address.errors)")
        #expect(
            address.errors.contains("$OTEL_EXPORTER_OTLP_ENDPOINT: 'example.com:4318' is not the address of a receiver")
        )

        let first = try follow(receiver)
        try receiver.awaitStalls(1)
        let second = try ship(receiver)
        #expect(second.status == 1 && second.errors.contains("another process ships with this checkpoint"))
        first.send(SIGTERM)
        #expect(first.status() == 0)
    }
}
