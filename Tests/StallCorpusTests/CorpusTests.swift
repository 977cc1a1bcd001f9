import Foundation
import StallCorpus
import TestSupport
import Testing

@Suite("The corpus", .serialized, .timeLimit(.minutes(60)))
struct CorpusTests {
    /// Every scenario in this build, or the first stall and the first look-alike of each part. A scenario that a busy
    /// machine disturbs is repeated, at most three times: an error of the monitor occurs each time. A false alarm is
    /// not repeated. The goals are those of the long form (`scripts/corpus`).
    @Test("Every stall is found, with its kind, cause, culprit and owner; nothing else is reported")
    func goals() async throws {
        let directory = FileManager.default.temporaryDirectory.appending(path: "corpus-tests-\(UUID())").path
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let program = URL.built("stall-corpus").path
        var run = CorpusRun(command: [program], directory: directory)
        (run.retries, run.jobs) = (3, 6)
        let result = await run.play(testsAllForms ? Scenario.all : Scenario.firstOfEachPart)
        #expect(result.figures.missedGoals.isEmpty, "\n\(result.text)")
        #expect(result.figures.skipped < 10, "\n\(result.text)")
    }
}

extension Scenario {
    fileprivate static var firstOfEachPart: [Scenario] {
        var seen: Set<String> = []
        // A thread that gets no CPU time after the first sample has no stack. The goal for all scenarios permits that
        // miss; for ten scenarios it does not.
        return all.filter { $0.name != "starved-by-threads" && seen.insert("\($0.part) \($0.isStall)").inserted }
    }
}
