import Foundation
import StallCorpus
import Testing

@Suite("The corpus", .serialized, .timeLimit(.minutes(20)))
struct CorpusTests {
    /// Every scenario in this build, one after the other. What a busy machine spoils once is played once more: a fault of the monitor comes
    /// again. A false alarm stands. The goals are those of the long form (`scripts/corpus`).
    @Test("Every stall is found, with its kind, cause, culprit and owner; nothing else is")
    func goals() async throws {
        let directory = FileManager.default.temporaryDirectory.appending(path: "corpus-tests-\(UUID())").path
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let program = URL(filePath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent()
            .appending(path: "stall-corpus").path
        var run = CorpusRun(command: [program], directory: directory)
        run.retries = 1
        let result = await run.play(Scenario.all)
        #expect(result.figures.missedGoals.isEmpty, "\n\(result.text)")
        #expect(result.figures.skipped < 10, "\n\(result.text)")
    }
}
