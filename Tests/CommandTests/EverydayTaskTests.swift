import Foundation
import StallReports
import Testing

/// The table of everyday tasks in ReadingReports.md: each command runs as written there, on two days with two
/// releases.
@Suite("Everyday tasks", .timeLimit(.minutes(5)))
struct EverydayTaskTests {
    private let fixture: ReportsFixture
    /// The fault that release 1.5 introduced.
    private let fault = Fingerprint(rawValue: "v2:8a0d3d4acbfa9be8")

    init() throws {
        fixture = try ReportsFixture()
        let fault = try #require(fault)
        let (yesterday, today) = (Timestamp.now().advanced(byNanoseconds: -86_400_000_000_000), Timestamp.now())
        for (version, host, start, count) in [("1.4", "web1", yesterday, 1), ("1.5", "web2", today, 40)] {
            var run = Sample.run()
            (run.service, run.host.name) = (.init(name: "shop", version: version), host)
            (run.startedAt, run.updatedAt) = (start, start)
            run.watched = [.init(label: "main", watchedNs: 3_600_000_000_000)]
            try fixture.store.write(run)
            for index in 0..<count {
                try fixture.store.write(
                    Self.report(version, host, start, index, of: run, isNew: version == "1.5", fault)
                )
            }
        }
    }

    private static func report(
        _ version: String,
        _ host: String,
        _ start: Timestamp,
        _ index: Int,
        of run: RunRecord,
        isNew: Bool,
        _ fault: Fingerprint
    ) -> StallReport {
        let milliseconds = UInt128(start.seconds) * 1000 + UInt128(index)
        var report = Sample.report(id: ULID(rawValue: milliseconds << 80 | 1))
        (report.startedAt, report.run) = (
            start.advanced(byNanoseconds: Int64(index) * 1_000_000 - 2_000_000_000), run.id
        )
        report.detectedAt = report.startedAt.advanced(byNanoseconds: 250_000_000)
        report.endedAt = report.startedAt.advanced(byNanoseconds: report.durationNs)
        (report.service, report.host.name) = (.init(name: "shop", version: version), host)
        guard isNew else { return report }
        report.fingerprint = fault
        report.cause = .init(verdict: .deadlock, summary: "The thread waits for a mutex that thread 4720 backup holds.")
        report.cause.lock = .init(
            kind: .mutex,
            address: 0x7f00,
            owner: .init(id: 4720, name: "backup", state: "S"),
            knownBy: .lockWord
        )
        return report
    }

    /// What each row's last command must print, in the table's order.
    private static let wanted = [
        "v2:8a0d3d4acbfa9be8", "To do", "held by thread 4720 backup", "new", "within budget",
        "Flame graph of 40 stalls",
        "processes watched", "web2", "web2", "main", "web2", "This machine", "file-format-schema",
    ]

    @Test("each takes at most two commands")
    func table() throws {
        let rows = try Self.rows()
        #expect(rows.count == Self.wanted.count)
        for (commands, wanted) in zip(rows, Self.wanted) {
            #expect((1...2).contains(commands.count), "\(commands)")
            var last = ("", "")
            for command in commands {
                #expect(command.hasPrefix("stall-monitor "), "\(command)")
                let run = try run(command)
                last = (run.output, run.errors)
            }
            #expect((last.0 + last.1).contains(wanted), "\(commands): \(last)")
        }
    }

    private func run(_ command: String) throws -> CommandRun {
        let folder = CommandRun.executable.deletingLastPathComponent().path
        let text = command.replacing("FAULT", with: "8a0d3d4a")
        return try CommandRun(
            tool: "/bin/sh",
            ["-c", "cd '\(fixture.root)' && PATH='\(folder)':$PATH STALL_MONITOR_DIRECTORY=reports \(text)"]
        )
    }

    /// The commands of each row.
    private static func rows() throws -> [[String]] {
        let article = URL(filePath: #filePath).deletingLastPathComponent()
            .appending(path: "../../Sources/StallReports/StallReports.docc/ReadingReports.md").standardized
        let text = try String(contentsOf: article, encoding: .utf8)
        let section =
            text.components(separatedBy: "## Everyday tasks\n").last?.components(separatedBy: "\n## ").first ?? ""
        return section.split(separator: "\n").filter { $0.hasPrefix("| ") }.dropFirst().map { row in
            row.split(separator: "`", omittingEmptySubsequences: false).enumerated().filter {
                !$0.offset.isMultiple(of: 2)
            }
            .map { String($0.element) }
        }
    }
}
