import Foundation
import Testing

@testable import StallReports

/// Validates written documents against the schemas, with Debian's python3-jsonschema.
@Suite("JSON Schema", .timeLimit(.minutes(10)))
struct SchemaTests {
    @Test("real reports of every shape are valid")
    func validReports() throws {
        var bare = Sample.ongoing()
        (bare.service, bare.run, bare.culprit, bare.trace) = (nil, nil, nil, nil)
        (bare.cause, bare.modules, bare.metadata) = (.init(), [], [:])
        bare.stacks = [.init(thread: .init(id: 1), capturedAt: Sample.start, complete: false, error: "refused")]
        var novel = Sample.recovered()
        (novel.kind, novel.cause.verdict) = (StallKind(rawValue: "melted"), Verdict(rawValue: "eclipse"))
        var terminated = Sample.ongoing()
        terminated.state = .terminated
        terminated.processEnd = ProcessEnd(.init(exitStatus: 511, lastSeenAt: Sample.start))
        var abandoned = Sample.ongoing()
        abandoned.state = .abandoned
        var nameless = Sample.recovered()
        (nameless.isProvisional, nameless.aliases) = (true, [nameless.fingerprint])
        var longJob = Sample.starved()
        (longJob.kind, longJob.rule.name) = (.longJob, .longJob)
        let pools = [Sample.starved(), longJob]
        let reports = pools + [Sample.recovered(), Sample.ongoing(), bare, novel, terminated, abandoned, nameless]
        #expect(try verdicts(schema: "stall-report", reports.map { try $0.json() }) == reports.map { _ in "ok" })
    }

    @Test("real run records are valid")
    func validRuns() throws {
        var killed = Sample.run(state: .terminated)
        killed.processEnd = ProcessEnd(.init())
        var older = Sample.run()
        (older.pauseLog, older.dismissed) = (nil, nil)
        var pools = Sample.run()
        pools.watched[0].type = .taskPool
        pools.watched[0].jobLengths = [.init(upToNs: 10_000, count: 3), .init(upToNs: nil, count: .max)]
        pools.watched[0].longestJob = "goOn()"
        let runs = [pools, Sample.run(), Sample.run(state: .stopped), killed, older]
        #expect(try verdicts(schema: "stall-run", runs.map { try $0.json() }) == runs.map { _ in "ok" })
    }

    @Test("every key that is written is described")
    func describedKeys() throws {
        var outside = Sample.recovered()
        outside.watcher = .current()
        outside.stacks[0].loop = 0
        let reports = try [outside, Sample.starved()].map { try $0.json() }
        #expect(try verdicts(schema: "stall-report", reports, allowsOtherKeys: false) == ["ok", "ok"])
        var run = Sample.run()
        run.targets = [.current()]
        run.watched[0].service = "redis-server"
        run.repeated?[0].service = "redis-server"
        #expect(try verdicts(schema: "stall-run", [run.json()], allowsOtherKeys: false) == ["ok"])
    }

    @Test("broken reports are rejected, each at its broken place")
    func brokenReports() throws {
        let cases: [(old: String, new: String, place: String)] = [
            ("stall-report/1", "stall-report/2", "schema"),
            (#""own":true"#, #""own":"yes""#, "own"),
            (#""ended_at""#, #""finished_at""#, ""),
            (#""duration_min_ns""#, #""duration_minimum""#, ""),
            (#""fingerprint":"v2:"#, #""fingerprint":"v2"#, "fingerprint"),
            (#""longest_ns":250000000"#, #""longest_ns":-1"#, "longest_ns"),
            (#""address":"0x"#, #""address":"0X"#, "address"),
            (#""count":1"#, #""count":0"#, "count"),
            (#""region":"eu""#, #""region":1"#, "region"),
            (#""tick_ns":50000000,"#, "", "rule"),
            (#""started_at":"2026-11-18T"#, #""started_at":"2026-11-18 "#, "started_at"),
            (#""number":230"#, #""number":"230""#, "number"),
        ]
        let text = String(decoding: try Sample.recovered().json(), as: UTF8.self)
        let broken = try cases.map { change in
            try #require(text.contains(change.old))
            return Array(text.replacing(change.old, with: change.new, maxReplacements: 1).utf8)
        }
        #expect(try verdicts(schema: "stall-report", broken) == cases.map { "invalid: \($0.place)" })
    }

    @Test("broken run records are rejected")
    func brokenRuns() throws {
        let text = String(decoding: try Sample.run(state: .stopped).json(), as: UTF8.self)
        let broken = [
            ("stopped_at", "halted_at"), ("\"ticks\":1200", "\"ticks\":-1"), ("watched_ns", "watched"),
            ("skipped_stacks", "skipped"), ("\"dropped\":{\"stalls\":6}", "\"dropped\":{\"stalls\":-1}"),
            ("writer_cpu_ns\":2", "writer_cpu_ns\":-2"), ("\"byte_rate\":2", "\"byte_rate\":\"2\""),
            ("first_at", "first"),
            ("\"kind\":\"traced\"", "\"kind\":\"\""),
        ]
        .map { Array(text.replacing($0.0, with: $0.1).utf8) }
        let places = [
            "", "ticks", "0", "budget", "stalls", "writer_cpu_ns", "byte_rate", "repeats", "kind",
        ]
        #expect(try verdicts(schema: "stall-run", broken) == places.map { "invalid: \($0)" })
    }

    /// For each document "ok", or "invalid: " and the key of the first invalid value.
    private func verdicts(
        schema: String,
        _ documents: [[UInt8]],
        allowsOtherKeys: Bool = true
    ) throws -> [String] {
        let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        let validator = Process()
        validator.executableURL = URL(filePath: "/usr/bin/python3")
        validator.arguments = ["-c", Self.script, root.path + "/config/\(schema).schema.json", "\(allowsOtherKeys)"]
        let (input, output) = (Pipe(), Pipe())
        (validator.standardInput, validator.standardOutput) = (input, output)
        try validator.run()
        try input.fileHandleForWriting.write(contentsOf: Data(documents.joined()))
        try input.fileHandleForWriting.close()
        let lines = String(decoding: try output.fileHandleForReading.readToEnd() ?? Data(), as: UTF8.self)
        validator.waitUntilExit()
        try #require(validator.terminationStatus != 9, "the validator is missing: apt-get install python3-jsonschema")
        try #require(validator.terminationStatus == 0, "the validator failed: see its message above")
        return lines.split(separator: "\n").map(String.init)
    }

    private static let script = """
        import json, sys
        try:
            from jsonschema import Draft202012Validator as Validator
        except ImportError:
            sys.exit(9)
        def close(part):
            if isinstance(part, dict):
                if "properties" in part: part.setdefault("additionalProperties", False)
                part = list(part.values())
            if isinstance(part, list):
                for each in part: close(each)
        schema = json.load(open(sys.argv[1]))
        if sys.argv[2] == "false": close(schema)
        Validator.check_schema(schema)
        for line in sys.stdin:
            errors = sorted(Validator(schema).iter_errors(json.loads(line)), key=lambda e: [str(p) for p in e.absolute_path])
            print("invalid: " + str(list(errors[0].absolute_path)[-1] if errors[0].absolute_path else "") if errors else "ok")
        """
}
