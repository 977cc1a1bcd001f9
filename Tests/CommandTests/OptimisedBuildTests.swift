import Foundation
import StallReports
import Testing

private let optimisedCommand = ProcessInfo.processInfo.environment["RELEASE_COMMAND"]

/// The command as users build it: `RELEASE_COMMAND` names a release build.
@Suite(
    "The command, optimised",
    .timeLimit(.minutes(5)),
    .enabled(if: optimisedCommand != nil, "RELEASE_COMMAND names no release build of the command")
)
struct OptimisedBuildTests {
    private static let formats = [
        "html", "svg", "speedscope", "pprof", "collapsed", "chrome", "firefox", "otlp-logs", "otlp-metrics",
        "prometheus",
        "sentry", "csv", "ndjson",
    ]
    private static let calls =
        [
            ["list"], ["list", "--format", "json"], ["show", "latest"], ["show", "latest", "--format", "json"],
            ["tail", "--format", "json"],
            ["faults"], ["faults", "--flame"], ["gate"], ["gate", "--format", "json"],
            ["gate", "--format", "junit"],
        ] + formats.map { ["export", "--format", $0] }

    @Test("it prints the same for the same reports as the debug build", arguments: calls)
    func same(call: [String]) throws {
        let fixture = try ReportsFixture()
        for index in 0..<3 {
            try fixture.store.write(Sample.report(id: ULID(rawValue: UInt128(index + 1) << 90)))
        }
        try fixture.store.write(Sample.run())
        let arguments = call + [fixture.path]
        let program = try #require(optimisedCommand)
        let optimised = try CommandRun(tool: "/usr/bin/env", ["-i", "PATH=/usr/bin:/bin", program] + arguments)
        let other = try CommandRun(arguments: arguments)
        #expect(optimised.status == other.status && optimised.errors == other.errors)
        #expect(masked(optimised.output) == masked(other.output))
        #expect(optimised.status <= 2)
    }

    /// Without parts that depend on the time of printing.
    private func masked(_ text: String) -> String {
        text.replacing(/\d+ ?(d|h|m|s|min|days|hours)\b ?(ago)?/, with: "#")
            .replacing(/"at":"[^"]*"/, with: "at").replacing(/\d{10,}/, with: "#")
    }
}
