import Foundation
import StallReading
import StallReports
import Testing

@testable import stall_monitor

// Stalls that were only counted: what a choice includes of them.

extension SelectionTests {
    /// This many stalls of the sample's fault without a report.
    private func counted(_ count: Int = 1, label: String? = "main") -> RunRecord.Repeated {
        let repeats = Sample.repeats(of: .make(), count: count)
        guard let label else { return .init(fingerprint: stall.fingerprint, repeats: repeats) }
        return .init(fingerprint: stall.fingerprint, repeats: repeats, label: label, type: .runLoop, kind: .blocked)
    }

    @Test(
        "of counted-only stalls a selection has as many as if they had come evenly, also of those that a report after its time counted"
    )
    func countedInTime() {
        func second(_ number: Int64) -> Timestamp { Sample.start.advanced(byNanoseconds: number * 1_000_000_000) }
        var (run, late) = (Sample.run(), Sample.report(id: .make()))
        (run.updatedAt, run.repeated) = (second(60), [counted(37)])
        (late.run, late.startedAt, late.endedAt) = (run.id, second(20), second(21))
        (late.suppressed, late.repeats) = (10, Sample.repeats(of: .make(), count: 10))
        var contents = ReportReader.Contents()
        (contents.runs, contents.reports) = ([run], [late])
        let whole = ReportReader.Overview(contents)
        func counts(_ since: Int64?, _ until: Int64?, _ counting: CountedPart = .even) -> [[Int]] {
            let selection = StallSelection(since: since.map(second), until: until.map(second))
            let chosen = whole.chosen(by: selection, counting: counting)
            return [chosen.stalls.map(\.suppressed), chosen.runs.flatMap { $0.repeated ?? [] }.map(\.repeats.count)]
        }
        #expect(counts(nil, nil) == [[10], [37]] && counts(0, 30) == [[10], [37]])
        #expect(counts(5, nil) == [[5], [19]] && counts(10, nil) == [[0], []])
        #expect(counts(nil, 5) == [[], [19, 5]] && counts(3, 5) == [[], [9, 3]])
        // No more than all of them can have come in that time.
        #expect(counts(5, nil, .whole) == [[10], [37]] && counts(nil, 5, .whole) == [[], [37, 10]])
    }

    private func membership(
        _ counted: RunRecord.Repeated,
        _ traits: FaultTraits = .unknown,
        _ change: (inout StallSelection) -> Void
    ) -> Membership {
        var selection = StallSelection()
        change(&selection)
        return counted.membership(in: selection, traits: traits)
    }

    @Test("counted-only stalls are selected by loop and kind; if the record does not name them it is unknown")
    func countedByLoop() {
        let conditions: [(yes: (inout StallSelection) -> Void, no: (inout StallSelection) -> Void)] = [
            ({ $0.labels = [NamePattern("ma*")] }, { $0.labels = [NamePattern("io")] }),
            ({ $0.types = [.runLoop] }, { $0.types = [.queue] }),
            ({ $0.kinds = [.blocked] }, { $0.kinds = [.congested] }),
        ]
        for (yes, no) in conditions {
            #expect(membership(counted(), .unknown, yes) == .wanted && membership(counted(), .unknown, no) == .unwanted)
            #expect(
                membership(counted(label: nil), .unknown, yes) == .unknown
                    && membership(counted(label: nil), .unknown, no) == .unknown
            )
        }
        #expect(membership(counted(label: nil)) { _ in } == .wanted)
        // One failed condition is enough.
        let late = end.advanced(byNanoseconds: 3_600_000_000_000)
        #expect(membership(counted(label: nil)) { ($0.labels, $0.since) = ([NamePattern("main")], late) } == .unwanted)
    }

    @Test(
        "counted-only stalls are selected by the longest's length, and by cause if the fault's reports agree"
    )
    func countedByReports() {
        #expect(membership(counted()) { $0.minDurationNs = 590_000_000 } == .wanted)
        #expect(membership(counted(2)) { $0.minDurationNs = 590_000_000 } == .unknown)
        #expect(membership(counted(2)) { $0.minDurationNs = 590_000_001 } == .unwanted)
        #expect(membership(counted()) { $0.severity = .error } == .unwanted)
        #expect(membership(counted()) { $0.states = [.ongoing] } == .unwanted)
        let traits = FaultTraits([stall])
        #expect(membership(counted()) { $0.verdicts = [.waiting] } == .unknown)
        #expect(membership(counted(), traits) { $0.verdicts = [.waiting] } == .wanted)
        #expect(membership(counted(), traits) { $0.verdicts = [.starved] } == .unwanted)
        #expect(membership(counted(), traits) { $0.functions = [NamePattern("cart", isPart: true)] } == .wanted)
        var other = Sample.report()
        other.cause.verdict = .starved
        let both = FaultTraits([stall, StallOutline(other)])
        #expect(membership(counted(), both) { $0.verdicts = [.starved] } == .unknown)
    }

    @Test("counted-only stalls are selected by function and verdict also under a former fingerprint of their fault")
    func countedUnderFormerName() throws {
        let former = try #require(Fingerprint(rawValue: "v2:1111222233334444"))
        var report = Sample.report()
        report.aliases = [former]
        let traits = FaultTraits([StallOutline(report)])
        var earlier = counted()
        earlier.fingerprint = former
        #expect(membership(earlier, traits) { $0.verdicts = [.blocked.canonical] } == .wanted)
        #expect(membership(earlier, traits) { $0.verdicts = [.starved] } == .unwanted)
        #expect(membership(earlier, traits) { $0.functions = [NamePattern("Cart", isPart: true)] } == .wanted)
        #expect(membership(earlier, traits) { $0.functions = [NamePattern("tax", isPart: true)] } == .unwanted)
    }

    @Test("if no stall of a fault matches, the note has those that were counted by its former fingerprint")
    func countedByFormerFingerprint() throws {
        let fixture = try ReportsFixture()
        var report = Sample.report()
        let former = report.fingerprint
        report.fingerprint = try #require(Fingerprint(rawValue: "v2:bbbb000000000000"))
        report.aliases = [former]
        var run = Sample.run()
        run.updatedAt = Sample.start.advanced(byNanoseconds: 60_000_000_000)
        run.repeated = [.init(fingerprint: former, repeats: Sample.repeats(of: report.id, count: 40))]
        try fixture.store.write(report)
        try fixture.store.write(run)
        let choice = ["--fingerprint", "v2:bbbb000000000000", "--since", "2026-11-18T11:06:42Z", fixture.path]
        for reader in [["list"], ["tail"], ["export", "--format", "csv"], ["faults", "--flame"], ["show", "latest"]] {
            let run = try CommandRun(arguments: reader + choice)
            let note = "were only counted: 'stall-monitor faults' has them"
            #expect(run.errors.contains(note), "\(reader): \(run.errors)")
        }
        let faults = try CommandRun(arguments: ["faults"] + choice)
        #expect(faults.output.contains(former.rawValue.dropFirst(3).prefix(4)), "\(faults.output) \(faults.errors)")
    }
}
