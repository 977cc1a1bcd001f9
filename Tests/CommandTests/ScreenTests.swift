import Foundation
import ProcessWatch
import StallGate
import StallReading
import StallReports
import StallShipping
import Testing

@testable import stall_monitor

/// The command's screens at three widths, compared with the files in Tests/Fixtures/screens. After an intended
/// change, UPDATE_SCREENS=1 rewrites them; read the difference before you commit it.
@Suite("Screens")
struct ScreenTests {
    private static let directory = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .appending(path: "Fixtures/screens")
    static let now = Sample.start.advanced(byNanoseconds: 3 * 3_600_000_000_000)

    enum Screen: String, CaseIterable, Sendable {
        case list, tail, faults, stall, full, fault, doctor, diff, runs, runsByHost, runsByLoop
        case top, topFaults = "top-faults", gate, sample, watch, symbolicate, export, ship
    }

    @Test("they are unchanged, and no line is wider than the terminal", arguments: Screen.allCases, [60, 80, 120])
    func screens(_ screen: Screen, width: Int) throws {
        let lines = try Self.lines(screen, width)
        for line in lines { #expect(line.width <= width, "\(line.plain)") }
        let text = lines.map { Self.trimmed($0.plain) + "\n" }.joined()
        let file = Self.directory.appending(path: "\(screen)-\(width).txt")
        if ProcessInfo.processInfo.environment["UPDATE_SCREENS"] != nil {
            try FileManager.default.createDirectory(at: Self.directory, withIntermediateDirectories: true)
            try Data(text.utf8).write(to: file)
        }
        #expect(text == (try String(contentsOf: file, encoding: .utf8)))
    }

    /// The first process, the last one, and the stall below them.
    @Test("a low window of top has the picked row, and above it the heading of its table", arguments: 4...12)
    func lowWindow(height: Int) throws {
        let screens = [
            Self.top(.home, width: 80, height: height), Self.top(.down, .down, .down, width: 80, height: height),
            Self.top(.end, width: 80, height: height),
        ]
        for (lines, (row, heading)) in zip(screens, [("4711", "PID"), ("4714", "PID"), ("0000", "ID ")]) {
            let lines = lines.map(\.plain)
            let picked = try #require(lines.firstIndex { $0.hasPrefix("> \(row)") }, "\(lines)")
            #expect(lines.count == height && lines[..<picked].contains { $0.hasPrefix("  \(heading)") }, "\(lines)")
        }
    }

    private static func trimmed(_ line: String) -> String {
        var line = line[...]
        while line.last == " " { line.removeLast() }
        return String(line)
    }

    private static func lines(_ screen: Screen, _ width: Int) throws -> [StyledText] {
        ShownTime.useUTC()
        let reports = reports
        let stalls = reports.map { StallOutline($0) }
        switch screen {
        case .list:
            let faults = ShortFingerprints(stalls.map(\.fingerprint))
            let ids = ShortIDs(stalls.map(\.id))
            return Array(StallList(stalls: stalls, ids: ids, faults: faults, now: now, width: width).lines)
        case .tail:
            return reports.flatMap { StallLine.lines($0, isFirst: true, width: width) }
        case .faults:
            let faults = tally.all(watchedNs: 600_000_000_000, by: .total)
            return FaultTable(
                faults: faults,
                names: ShortFingerprints(faults.map(\.fingerprint)),
                now: now,
                width: width
            ).lines
        case .stall: return StallBrief(report: reports[1], now: now, style: .init(width: width)).lines
        case .full: return StallPage(report: reports[0]).lines.flatMap { $0.wrapped(to: width, hanging: 14) }
        case .fault: return page(width).lines
        case .diff:
            let sides = try [[reports[0], reports[0], reports[1]], Array(repeating: reports[2], count: 30)].map {
                try #require(Baseline(watched($0), at: now))
            }
            let difference = FaultDifference(sides[0], sides[1])
            return DifferenceTable(
                before: .init(name: "release=1.4", set: sides[0]),
                after: .init(name: "release=1.5", set: sides[1]),
                difference: difference,
                width: width
            ).lines
        case .doctor:
            var facts = DoctorFacts(
                ptraceScope: 1,
                clockSource: "hpet",
                hasPressure: false,
                hasSchedstat: true,
                version: "0.1.0"
            )
            facts.directory = .init(
                path: "/srv/stalls",
                mode: 0o777,
                freeBytes: 1 << 20,
                runs: 2,
                stale: 1,
                reports: 9,
                withoutNames: 9
            )
            let doctor = Doctor(facts: facts)
            return (DoctorCommand.lines(nil, doctor.machine) + DoctorCommand.lines("/srv/stalls", doctor.reports))
                .flatMap { $0.wrapped(to: width, hanging: 11) }
        case .runs: return runs(by: .run, width)
        case .runsByHost: return runs(by: .host, width)
        case .runsByLoop: return runs(by: .loop, width)
        case .top: return top(.down, width: width)
        case .topFaults: return top(.character("f"), width: width)
        case .gate: return gate(width)
        case .sample: return SamplePage(document: sample, width: width).lines
        case .watch:
            return StallLine.lines(reports[1], isFirst: true, width: width)
                + Output.noteLines(WatchNote.watching(processID: 4711, name: "redis-server").words, width: width)
        case .symbolicate:
            let gain = NamingGain(from: Sample.report(), to: Sample.report())
            return Output.dataLines("\(ReportFileName(.stall, reports[0].id)): \(gain.description)", width: width)
        case .export: return Output.noteLines("3 stalls in /var/lib/shop/stalls.speedscope.json", width: width)
        case .ship:
            let json = #"{"stalls":1204,"runs":12,"refused":3,"lost":0,"unreadable":0,"unsent":17,"requests":31}"#
            let totals = try JSONDecoder().decode(ShippingTotals.self, from: Data(json.utf8))
            return Output.dataLines("\(totals)", width: width)
        }
    }

    /// A wait that occurred again and again, and one for a lock with a known owner.
    static var reports: [StallReport] {
        var reports = (0..<3).map { Sample.report(id: ULID(rawValue: UInt128($0 + 1) << 80)) }
        var other = reports[1]
        (other.severity, other.durationNs, other.watched.label) = (.critical, 6_100_000_000, "requests")
        other.fingerprint = Fingerprint(rawValue: "v2:0123456789abcdef") ?? other.fingerprint
        let owner = StallReport.Thread(id: 4720, name: "backup", state: "R")
        other.cause = .init(verdict: .blocked, summary: "The thread waited for a mutex that thread 4720 backup holds.")
        other.cause.lock = .init(kind: .mutex, address: 0x7f00, owner: owner, knownBy: .lockWord)
        var stack = other.stacks[0]
        stack.count = 5
        stack.frames.removeFirst()
        other.stacks += [stack, .init(role: .lockOwner, thread: owner, capturedAt: Sample.start, frames: stack.frames)]
        reports[1] = other
        return reports
    }

    /// From a run of ten minutes.
    static func watched(_ reports: [StallReport]) -> ReportReader.Overview {
        var run = Sample.run()
        run.watched = [.init(label: "main", watchedNs: 600_000_000_000)]
        var contents = ReportReader.Contents()
        (contents.reports, contents.runs) = (reports, [run])
        return .init(contents)
    }

    static var tally: FaultTally {
        var tally = FaultTally(span: TimeSpan(start: Sample.start, end: now))
        for report in reports { tally.add(StallOutline(report)) }
        return tally
    }

    private static func runs(by grouping: WatchedTime.Grouping, _ width: Int) -> [StyledText] {
        let rows = WatchedTime(RunsTests.overview, .everything, by: grouping).sorted
        return WatchedTable(rows: rows, grouping: grouping, width: width).lines
    }

    private static func page(_ width: Int) -> FaultPage {
        let fault = tally.all(watchedNs: 600_000_000_000, by: .count)[0]
        var evidence = FaultEvidence()
        let same = reports.filter { $0.fingerprint == fault.fingerprint }
        for report in same { evidence.add(StallOutline(report)) }
        evidence.read { id in same.first { $0.id == id } }
        return FaultPage(
            fault: fault,
            evidence: evidence,
            ids: ShortIDs(same.map(\.id)),
            now: now,
            style: .init(width: width)
        )
    }
}
