import Foundation
import TestSupport
import Testing

@Suite("Readers and generated documents", .timeLimit(.minutes(60)))
struct FuzzTests {
    private static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().path
    private static let program = URL.built("reader-fuzz")

    private func fuzz(_ arguments: String...) throws -> CommandRun {
        try CommandRun(tool: Self.program.path, ["--schemas", Self.root + "/config"] + arguments)
    }

    @Test(
        "documents that the schemas permit make no reader trap and send no commands to the terminal",
        arguments: [1, 1_000_000]
    )
    func valid(seed: Int) throws {
        let run = try fuzz("--inputs", "30", "--seed", "\(seed)")
        #expect(run.status == 0, "\(run.output.suffix(2000)) \(run.errors)")
        #expect(run.output.contains("30 inputs, 0 problems"))
    }

    @Test("short documents go through every reader and every format")
    func every() throws {
        let run = try fuzz("--every", "--inputs", "20", "--seed", "1")
        #expect(run.status == 0, "\(run.output.suffix(2000)) \(run.errors)")
        #expect(run.output.contains("20 inputs, 0 problems"))
        for reader in ["export csv", "export firefox", "gate sarif", "list", "runs", "runs json"] {
            #expect(run.output.contains("\(reader) "))
        }
    }

    @Test("damaged documents make no reader trap or hang", arguments: [1, 1_000_000])
    func broken(seed: Int) throws {
        let run = try fuzz("--broken", "--inputs", "30", "--seed", "\(seed)")
        #expect(run.status == 0, "\(run.output.suffix(2000)) \(run.errors)")
        #expect(run.output.contains("30 inputs, 0 problems"))
    }

    @Test("two thousand inputs of short documents, each through every reader", .longForm)
    func manyThroughEvery() throws {
        let run = try fuzz("--every", "--inputs", "2000", "--seed", "8000000")
        #expect(run.status == 0, "\(run.output.suffix(2000)) \(run.errors)")
    }

    @Test("six thousand damaged inputs", .longForm)
    func manyBroken() throws {
        let run = try fuzz("--broken", "--inputs", "6000", "--seed", "7000000")
        #expect(run.status == 0, "\(run.output.suffix(2000)) \(run.errors)")
    }

    // Seeds. The documents made from them change with the schemas; the cause of each failure has its own test.
    @Test("inputs that once failed", arguments: [1])
    func failed(seed: Int) throws {
        let run = try fuzz("--inputs", "1", "--seed", "\(seed)")
        #expect(run.status == 0, "\(run.output.suffix(2000)) \(run.errors)")
    }

    @Test("the fuzzer's documents are valid by the schemas")
    func schemas() throws {
        let documents = try fuzz("--inputs", "60", "--seed", "5", "--print")
        let file = "\(NSTemporaryDirectory())/reader-fuzz-\(UUID().uuidString)"
        try Data(documents.output.utf8).write(to: URL(filePath: file))
        defer { try? FileManager.default.removeItem(atPath: file) }
        let script = """
            import json, sys, jsonschema
            kinds = {name: jsonschema.Draft202012Validator(json.load(open(f"{sys.argv[2]}/{name}.schema.json")))
                     for name in ("stall-report", "stall-run")}
            count = 0
            for line in open(sys.argv[1], encoding="utf-8", newline="\\n"):
                document = json.loads(line)
                kinds[document["schema"].split("/")[0]].validate(document)
                count += 1
            print(count)
            """
        let check = try CommandRun(tool: "/usr/bin/python3", ["-c", script, file, Self.root + "/config"])
        #expect(check.output == "120\n", "\(check.errors.suffix(1000))")
    }
}
