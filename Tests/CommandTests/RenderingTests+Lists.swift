import StallReading
import StallReports
import Testing

@testable import stall_monitor

// The lines of list and tail.

extension RenderingTests {
    @Test("tail: what follows the verdict begins in the same column for each of them")
    func verdictColumn() {
        let starts = Verdict.known.map { verdict in
            var report = Sample.report()
            report.cause.verdict = verdict
            return StallLine.lines(report, isFirst: true, width: nil)[0].plain.split(separator: "main")[0].count
        }
        #expect(Set(starts).count == 1, "\(starts)")
    }

    @Test("list: no state or verdict is cut, and columns are left out before the culprit", arguments: [60, 80, 120])
    func wholeWords(width: Int) {
        var report = Sample.report(state: .terminated)
        (report.cause.verdict, report.watched.label) = (.diskWait, "a loop with a long name")
        report.culprit?.function = String(repeating: "g", count: 100)
        let list = StallList(
            stalls: [StallOutline(report)],
            ids: ShortIDs([report.id]),
            faults: ShortFingerprints([report.fingerprint]),
            width: width
        )
        let line = Array(list.lines)[1].plain
        #expect(line.contains("disk_wait") && line.contains("terminated") == line.contains("termin"), "\(line)")
        #expect(line.count { $0 == "g" } >= width * 3 / 8 - 1, "\(line)")
    }

    @Test("list: stalls of several services have theirs, and where there is little room their fault before their state")
    func services() {
        let reports = ["shop", "payments"].map { service in
            var report = Sample.report(id: .make(), state: .terminated)
            report.service = .init(name: service)
            return report
        }
        func list(_ reports: [StallReport], _ width: Int?) -> [String] {
            StallList(
                stalls: reports.map { StallOutline($0) },
                ids: ShortIDs(reports.map(\.id)),
                faults: ShortFingerprints(reports.map(\.fingerprint)),
                width: width
            ).lines.map(\.plain)
        }
        let whole = list(reports, nil)
        #expect(whole[0].hasSuffix("CULPRIT                         SERVICE   LABEL  FAULT"), "\(whole)")
        #expect(whole[2].contains("  payments  main   aa296773"), "\(whole)")
        #expect(!list([reports[1], reports[1]], nil)[0].contains("SERVICE"))
        let narrow = list(reports, 88)
        #expect(narrow[1].contains("612ms+") && narrow[1].hasSuffix("aa296773"), "\(narrow)")
        #expect(!narrow[0].contains("STATE"), "\(narrow)")
    }

    @Test("tail -f: the largest possible count, again and again")
    func hugeRepeats() {
        var (lines, run) = (RepeatLines(), Sample.run())
        let fault = Sample.report().fingerprint
        run.repeated = [Int.max, .max, 3, 5, 6].map {
            .init(fingerprint: fault, repeats: Sample.repeats(of: .make(), count: $0))
        }
        let told = lines.lines(run, culprits: [:]).map(\.plain)
        #expect(told.count == 3 && told[1].contains("×3 ") && told[2].contains("×6 "))
    }

    @Test("tail -f: two processes with one fault, and two programs of one watcher, are counted each for itself")
    func repeatsOfRuns() {
        var (lines, runs) = (RepeatLines(), [Sample.run(), Sample.run()])
        for index in 0..<2 { runs[index].id = ULID(rawValue: UInt128(index + 1) << 80) }
        func told(_ index: Int, _ count: Int, _ services: String?...) -> Int {
            runs[index].repeated = services.enumerated().map { number, service in
                let repeats = Sample.repeats(of: .make(), count: number == 0 ? count : 3)
                var fault = RunRecord.Repeated(fingerprint: Sample.report().fingerprint, repeats: repeats)
                fault.service = service
                return fault
            }
            return lines.lines(runs[index], culprits: [:]).count
        }
        #expect(told(0, 10, nil) == 1 && told(1, 3, nil) == 1)
        #expect(told(0, 11, nil) == 0 && told(1, 4, nil) == 0 && told(0, 20, nil) == 1)
        #expect(told(1, 10, "node", "redis") == 2 && told(1, 11, "node", "redis") == 0)
    }
}
