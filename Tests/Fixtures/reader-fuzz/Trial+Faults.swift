import Foundation
import StallGate
import StallReading
import StallReports

extension Trial {
    /// As `faults` and `show FAULT` do.
    mutating func faults(_ reports: [StallReport], _ runs: [RunRecord]) {
        let stalls = reports.map(StallOutline.init)
        let moments = stalls.map(\.startedAt).sorted()
        var tally = FaultTally(span: TimeSpan(start: moments.first ?? .now(), end: moments.last ?? .now()))
        for stall in stalls { tally.add(stall) }
        for run in runs { for repeated in run.repeated ?? [] { tally.add(repeated, of: run) } }
        let watched: Int64 = dice.pick([0, 1, 3_600_000_000_000, .max])
        let faults = tally.all(watchedNs: watched, by: dice.pick(FaultOrder.allCases))
        let width = dice.pick([nil, 1 + dice.below(200)])
        let now = dice.pick([stalls.first?.startedAt, nil]) ?? .now()
        let names = ShortFingerprints(faults.map(\.fingerprint))
        check("faults", FaultTable(faults: faults, names: names, now: now, width: width).lines, width: width)
        for fault in faults.prefix(2) {
            var evidence = FaultEvidence()
            for stall in stalls where fault.fingerprint == stall.fingerprint { evidence.add(stall) }
            evidence.read { id in reports.first { $0.id == id } }
            let page = FaultPage(
                fault: fault,
                evidence: evidence,
                ids: ShortIDs(stalls.map(\.id)),
                now: now,
                style: .init(showsAllFrames: dice.happens(1, in: 2), width: width)
            )
            check("fault page", page.lines)
        }
    }

    /// As `runs` does, with the time of some of the runs.
    mutating func watched(_ reports: [StallReport], _ runs: [RunRecord]) {
        var overview = ReportReader.Overview()
        (overview.stalls, overview.runs) = (reports.map(StallOutline.init), runs)
        let moments = runs.map(\.startedAt) + runs.map(\.updatedAt)
        let selection = dice.pick([
            .everything, StallSelection(since: moments.first),
            StallSelection(since: moments.first, until: moments.last),
        ])
        for grouping in WatchedTime.Grouping.allCases {
            let rows = WatchedTime(overview, selection, by: grouping).sorted
            let width = dice.pick([nil, 1 + dice.below(200)])
            check("runs", WatchedTable(rows: rows, grouping: grouping, width: width).lines, width: width)
            do {
                check("runs json", JSONText.escaped(String(decoding: try ReportJSON.encode(rows), as: UTF8.self)))
            } catch {
                problems.append("runs: \(error)")
            }
        }
    }

    /// As `diff` does: the documents of an input compared with some of them.
    mutating func compare(_ reports: [StallReport], _ runs: [RunRecord]) {
        var (one, other) = (ReportReader.Overview(), ReportReader.Overview())
        (one.stalls, one.runs) = (reports.map(StallOutline.init), runs)
        other.stalls = Array(one.stalls.dropFirst(dice.below(3)))
        other.runs = Array(runs.prefix(1 + dice.below(2)))
        guard let before = Baseline(one, at: .now()), let after = Baseline(other, at: .now()) else { return }
        let difference = FaultDifference(before, after)
        let width = dice.pick([nil, 1 + dice.below(200)])
        let table = DifferenceTable(
            before: .init(name: HostileText.any(&dice), set: before),
            after: .init(name: "after", set: after),
            difference: difference,
            showsUnchanged: dice.happens(1, in: 2),
            width: width
        )
        check("diff", table.lines)
        do {
            let document = DifferenceDocument(before: before, after: after, difference: difference)
            check("diff json", JSONText.escaped(String(decoding: try ReportJSON.encode(document), as: UTF8.self)))
            if try Baseline(json: before.json()) != before { problems.append("baseline: another one") }
        } catch {
            problems.append("diff: \(error)")
        }
    }
}
