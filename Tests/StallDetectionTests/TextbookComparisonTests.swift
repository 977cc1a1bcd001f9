import RunLoopKit
import TestSupport
import Testing

@testable import StallDetection

@Suite("Compared with the textbook algorithm on random traces", .timeLimit(.minutes(10)))
struct TextbookComparisonTests {
    static let seeds = 1...250

    static func trace(seed: Int) -> Trace {
        var random = SplitMix64(seed: UInt64(seed))
        return .random(turns: 120, using: &random)
    }

    @Test("Wherever the textbook reports, so does the policy")
    func reportsEveryTextbookStall() {
        var compared = 0
        for seed in Self.seeds {
            let trace = Self.trace(seed: seed)
            let ours = PolicyRun(trace).reports
            for theirs in TextbookWatcher.reports(on: trace) {
                compared += 1
                let found = ours.contains {
                    $0.span.earliestStart < theirs.upperBound && theirs.lowerBound < $0.span.latestEnd
                }
                #expect(found, "seed \(seed): nothing for \(theirs)")
            }
        }
        // The traces must contain stalls for the comparison to mean anything.
        #expect(compared > 1_000)
    }

    @Test("Each additional report is about a phase that the textbook ignores, or about a turn of that length")
    func explainsEveryDifference() {
        var otherPhases = 0
        for seed in Self.seeds {
            let trace = Self.trace(seed: seed)
            let theirs = TextbookWatcher.reports(on: trace)
            for report in PolicyRun(trace).reports {
                let agrees = theirs.contains {
                    report.span.earliestStart < $0.upperBound && $0.lowerBound < report.span.latestEnd
                }
                if agrees { continue }
                let explained = Self.explanation(of: report, in: trace)
                otherPhases += explained == .otherPhase ? 1 : 0
                #expect(explained != nil, "seed \(seed): \(report)")
            }
        }
        #expect(otherPhases > 100)
    }

    enum Explanation { case otherPhase, wholeTurn }

    /// Product terms: every phase but the wait counts; and 250 ms in which the loop did not turn.
    static func explanation(of report: PolicyRun.Report, in trace: Trace) -> Explanation? {
        let inside = trace.segments.filter {
            $0.start < report.span.latestEnd && report.span.earliestStart < $0.end && !$0.phase.isAtRest
        }
        let longest = inside.max { $0.end - $0.start < $1.end - $1.start }
        if let longest, longest.end - longest.start >= StallRule().threshold { return .otherPhase }
        let turn = turn(around: report.span, in: trace)
        return turn >= StallRule().threshold ? .wholeTurn : nil
    }

    /// How long the loop was busy without beginning another turn or resting.
    static func turn(around span: StallSpan, in trace: Trace) -> Duration {
        let start = trace.transitions.last { $0.isStamped && $0.time < span.earliestEnd }?.time ?? Trace.start
        let end = trace.transitions.first { $0.time > start && ($0.isStamped || $0.pulse.isAtRest) }?.time ?? trace.end
        return end - start
    }

    @Test("Each stall has one start and one end, and no report of rest alone")
    func keepsOrder() {
        for seed in Self.seeds {
            let run = PolicyRun(Self.trace(seed: seed))
            #expect(run.disorder == 0)
            for (a, b) in zip(run.reports, run.reports.dropFirst()) {
                #expect(a.span.latestEnd <= b.span.latestEnd && a.span.earliestStart < b.span.earliestStart)
            }
        }
    }

    @Test("The true end lies within the reported bounds; an exact one is equal")
    func knowsTheEnd() {
        var exact = 0
        for seed in Self.seeds {
            let trace = Self.trace(seed: seed)
            let ends = Set(trace.transitions.map(\.time))
            for report in PolicyRun(trace).reports where report.span.isExact {
                exact += 1
                #expect(ends.contains(report.span.latestEnd))
                #expect(ends.contains(report.span.earliestStart))
                #expect(report.span.longest >= StallRule().threshold)
            }
        }
        #expect(exact > 1_000)
    }

    @Test("There is at most one look per tick, besides those at a threshold")
    func looksAtMostOnceATick() {
        for seed in Self.seeds {
            let run = PolicyRun(Self.trace(seed: seed))
            let early = zip(run.looks, run.looks.dropFirst()).filter { $1 - $0 < StallRule().tick }.count
            #expect(early <= run.reports.count, "seed \(seed)")
        }
    }
}
