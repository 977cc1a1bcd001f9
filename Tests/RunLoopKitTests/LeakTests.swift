import Glibc
import LoopTestSupport
import Testing

/// Everything that a loop owns is created and dropped many times, and nothing is left. A separate program counts.
///
/// The environment variable `RUN_LOOP_CHURN=1000000` sets the number of cycles.
@Suite(.timeLimit(.minutes(60)))
struct LeakTests {
    @Test(
        "R2, R48: cycles of creating and dropping leave no memory, no descriptor and no closure",
        arguments: ["sources", "timers", "observers", "blocks", "descriptors", "wake-ups"]
    )
    func items(_ kind: String) throws {
        try expectNoLeak(kind, cycles: cycles ?? 20_000)
    }

    @Test("R2: threads that end with items on their loops, which refer to each other, leave nothing")
    func loops() throws {
        try expectNoLeak("loops", cycles: cycles ?? 2_000)
    }

    private var cycles: Int? { unsafe getenv("RUN_LOOP_CHURN").flatMap { unsafe Int(String(cString: $0)) } }

    private func expectNoLeak(_ kind: String, cycles: Int) throws {
        let run = try Fixture.run("LoopChurn", "\(kind) \(cycles)", seconds: 3000)
        #expect(run.status == 0)
        let line = try #require(run.lines.first)
        // A leak of one byte in ten cycles would exceed this.
        #expect(try number(after: "bytes ", in: line) < max(2000, cycles / 10), "\(line)")
        #expect(try number(after: "resident KiB ", in: line) < 4096, "\(line)")
        #expect(try number(after: "descriptors ", in: line) == 0, "\(line)")
        #expect(try number(after: "closures ", in: line) == 0, "\(line)")
    }

    private func number(after label: String, in line: String) throws -> Int {
        let fields = line.split { $0 == " " || $0 == "," }.map(String.init)
        let words = label.split(separator: " ").map(String.init)
        let place = try #require(fields.firstIndex(of: words[words.count - 1]))
        return try #require(Int(fields[place + 1]))
    }
}
