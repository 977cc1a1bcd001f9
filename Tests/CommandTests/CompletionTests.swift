import Glibc
import StallReports
import Testing

@testable import stall_monitor

@Suite("Completion")
struct CompletionTests {
    private let fixture: ReportsFixture

    init() throws { fixture = try ReportsFixture() }

    /// The completions that the command offers for the last of the words, as the shells' scripts ask for them.
    private func offered(_ words: [String], for argument: [String], environment: [String: String] = [:]) throws -> Set<
        String
    > {
        let index = words.count - 1
        let asked = ["---completion"] + argument + ["\(index)", "\(words[index].count)"] + words
        let run = try CommandRun(arguments: asked, environment: environment.merging(["SAP_SHELL": "bash"]) { $1 })
        #expect(run.status == 0, "\(run.errors)")
        return Set(run.output.split(separator: "\n").map(String.init))
    }

    @Test("show completes ids, faults and 'latest' from the directory on the line, or from the default one")
    func stalls() throws {
        let report = Sample.report(id: .make())
        try fixture.store.write(report)
        let id = String(report.id.description.prefix(8))
        let fault = ShortFingerprints.prefix(of: report.fingerprint)
        let place = ["STALL_MONITOR_DIRECTORY": fixture.path]
        let argument = ["show", "--", "positional@0"]
        #expect(
            try offered(["stall-monitor", "show", ""], for: argument, environment: place) == ["latest", id, fault]
        )
        #expect(try offered(["stall-monitor", "show", "la"], for: argument, environment: place) == ["latest"])
        let named = ["stall-monitor", "show", fixture.path, String(fault.prefix(4))]
        #expect(try offered(named, for: argument) == [fault])
        #expect(
            try offered(
                ["stall-monitor", "show", ""],
                for: argument,
                environment: ["STALL_MONITOR_DIRECTORY": "/none"]
            ) == ["latest"]
        )
    }

    @Test("names are completed from the reports; a name that a shell would split is not offered")
    func names() throws {
        try fixture.store.write(Sample.report(id: .make()))
        var hostile = Sample.report(id: .make())
        hostile.host.name = "$(reboot)"
        try fixture.store.write(hostile)
        let found = try offered(
            ["stall-monitor", "list", "--host", ""],
            for: ["list", "--", "--host"],
            environment: ["STALL_MONITOR_DIRECTORY": fixture.path]
        )
        #expect(found == ["web1"])
        #expect(Completions.offered(["a b", "-f", "a\nb", "", "ok", "OK1", "ok"], "o") == ["ok", "OK1"])
    }

    @Test("sample completes process ids")
    func processes() throws {
        let found = try offered(["stall-monitor", "sample", ""], for: ["sample", "--", "positional@0"])
        #expect(found.contains("\(getpid())") && found.allSatisfy { Int32($0) != nil })
    }
}
