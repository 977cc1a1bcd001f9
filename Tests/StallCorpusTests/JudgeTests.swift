import StallReports
import Testing

@testable import StallCorpus

@Suite("How the corpus judges a report")
struct JudgeTests {
    private let stall = Made.scenario
    private let lookAlike = Scenario.lookAlike("quiet", .traffic, on: .worker) { _ in }

    @Test("A complete report passes, and its ends are measured")
    func right() throws {
        let outcome = Outcome(stall, Made.receipt(100, 700), [Made.report(101, 704)])
        let finding = try #require(outcome.stalls.first)
        #expect(outcome.passed && finding.isKindRight && finding.isVerdictRight && finding.isCulpritRight)
        #expect(finding.isOwnerRight == true && finding.startErrorMs == 1 && finding.endErrorMs == 4)
    }

    @Test("No report, one of another loop, or one of another time is a miss; the other reports are false alarms")
    func missed() {
        #expect(!Outcome(stall, Made.receipt(100, 700), []).passed)
        for other in [Made.report(101, 700, label: "main"), Made.report(1_000, 1_700)] {
            let outcome = Outcome(stall, Made.receipt(100, 700), [other])
            #expect(
                outcome.stalls.map { $0.found == nil } == [true] && outcome.falseAlarms.count == 1 && !outcome.passed
            )
        }
    }

    @Test("Each wrong value in a report fails it", arguments: ["kind", "verdict", "culprit", "owner"])
    func wrong(word: String) throws {
        let report =
            switch word {
            case "kind": Made.report(101, 704, kind: .repeated)
            case "verdict": Made.report(101, 704, verdict: .onCPU)
            case "culprit": Made.report(101, 704, culprit: "waitForItAll(_:)")
            default: Made.report(101, 704, owner: nil)
            }
        let finding = try #require(Outcome(stall, Made.receipt(100, 700), [report]).stalls.first)
        let answers = [
            finding.isKindRight, finding.isVerdictRight, finding.isCulpritRight, finding.isOwnerRight == true,
        ]
        #expect(finding.found != nil && !finding.passed && answers.count { !$0 } == 1)
    }

    @Test(
        "A second report of one stall fails, unless the thread was kept from a CPU: then the stall may be split"
    )
    func twice() {
        let reports = [Made.report(101, 400), Made.report(400, 704)]
        let outcome = Outcome(stall, Made.receipt(100, 700), reports)
        #expect(outcome.stalls.map(\.passed) == [true] && outcome.toldAgain.count == 1 && !outcome.passed)
        #expect(outcome.falseAlarms.isEmpty && CorpusFigures([outcome]).missedGoals.count == 1)
        #expect(Outcome(stall, Made.receipt(100, 700, runDelay: 400), reports).passed)
    }

    @Test("Starved is right for a thread that was kept from a CPU for most of the time")
    func starved() throws {
        let report = Made.report(101, 704, verdict: .starved)
        let outcome = Outcome(stall, Made.receipt(100, 700, runDelay: 400), [report])
        #expect(outcome.stalls.map(\.isVerdictRight) == [true])
        #expect(Outcome(stall, Made.receipt(100, 700, runDelay: 100), [report]).stalls.map(\.isVerdictRight) == [false])
    }

    @Test("Any report of a look-alike is a false alarm, except for a turn that really was long")
    func lookAlikes() {
        let report = Made.report(100, 400)
        let short = Receipt(slowTurns: [Made.span(100, 330)])
        let long = Receipt(slowTurns: [Made.span(100, 400)])
        #expect(Outcome(lookAlike, Receipt(), []).passed)
        #expect(Outcome(lookAlike, Receipt(), [report]).falseAlarms.count == 1)
        #expect(Outcome(lookAlike, short, [report]).falseAlarms.count == 1)
        let excused = Outcome(lookAlike, long, [report])
        #expect(excused.passed && excused.excused == 1)
    }

    @Test("Enough turns longer than a tick excuse a report of repeated stalls")
    func repeatedLookAlikes() {
        let report = Made.report(100, 500, kind: .repeated)
        let turns = (0..<6).map { Made.span(100 + $0 * 60, 155 + $0 * 60) }
        #expect(Outcome(lookAlike, Receipt(slowTurns: turns), [report]).passed)
        #expect(Outcome(lookAlike, Receipt(slowTurns: turns), [Made.report(100, 500)]).falseAlarms.count == 1)
        #expect(Outcome(lookAlike, Receipt(slowTurns: Array(turns.prefix(3))), [report]).falseAlarms.count == 1)
    }

    @Test("A scenario that could not run fails, a skipped one does not; neither counts in the figures")
    func notPlayed() {
        let (broken, skipped) = (Outcome(stall, failure: "it crashed"), Outcome(stall, skipped: "no cgroup"))
        #expect(!broken.passed && skipped.passed)
        let figures = CorpusFigures([broken, skipped])
        #expect(figures.found.of == 0 && figures.broken == 1 && figures.skipped == 1)
        #expect(figures.missedGoals == ["scenarios that broke: 1, goal none"])
    }
}

@Suite("The sums of the corpus")
struct FiguresTests {
    private let stall = Made.scenario
    private let quiet = Scenario.lookAlike("quiet", .traffic) { _ in }

    private func outcomes(_ reports: StallReport?...) -> [Outcome] {
        reports.map { Outcome(stall, Made.receipt(100, 700), [$0].compactMap(\.self)) }
    }

    @Test("Shares are relative to the found stalls; errors have a median and a maximum")
    func figures() {
        let figures = CorpusFigures(
            outcomes(Made.report(101, 704), Made.report(103, 720, verdict: .onCPU), Made.report(105, 701), nil)
                + [Outcome(quiet, Receipt(), [])]
        )
        #expect(figures.found == Share([true, true, true, false]) && figures.verdict == Share([true, false, true]))
        #expect(figures.silent == Share([true]) && figures.falseAlarms == 0)
        #expect(figures.startError.median == 3 && figures.startError.maximum == 5 && figures.endError.maximum == 20)
    }

    @Test("The goals: all found, no false alarm, 98 % culprits, 95 % verdicts, all owners")
    func goals() {
        #expect(CorpusFigures(outcomes(Made.report(101, 704))).missedGoals.isEmpty)
        #expect(CorpusFigures(outcomes(nil)).missedGoals.count == 1)
        #expect(CorpusFigures(outcomes(Made.report(101, 704, culprit: nil))).missedGoals.count == 1)
        #expect(CorpusFigures(outcomes(Made.report(101, 704, verdict: .unknown))).missedGoals.count == 1)
        #expect(CorpusFigures(outcomes(Made.report(101, 704, owner: "another"))).missedGoals.count == 1)
        #expect(CorpusFigures([Outcome(quiet, Receipt(), [Made.report(1, 300)])]).missedGoals.count == 1)
    }

    @Test("The matrix has a row for each true verdict and a column for each reported one")
    func matrix() {
        let all =
            outcomes(Made.report(101, 704), Made.report(103, 720, verdict: .onCPU), nil)
            + [Outcome(quiet, Receipt(), []), Outcome(quiet, Receipt(), [Made.report(1, 300)])]
        let matrix = ConfusionMatrix.verdicts(all)
        #expect(matrix.columns == ["blocked", "on_cpu", "missed", "silence"])
        #expect(matrix.rows.map(\.name) == ["blocked", "silence"])
        #expect(matrix.rows.map(\.counts) == [[1, 1, 1, 0], [1, 0, 0, 1]])
    }

    @Test("Text and JSON name each failed scenario, with what was expected and found")
    func texts() throws {
        let result = CorpusResult(outcomes: outcomes(Made.report(103, 720, verdict: .onCPU)))
        #expect(result.text.contains("expected blocked, blocked, waitForIt, held by holder"))
        #expect(result.text.contains("found    blocked, on_cpu, waitForIt(_:), held by holder"))
        #expect(try result.json().contains(#""goals_met" : false"#))
    }
}

@Suite("The declaration of the corpus")
struct CatalogueTests {
    @Test("At least 40 stalls and 20 look-alikes, each with a unique name")
    func size() {
        let all = Scenario.all
        #expect(all.count { $0.isStall } >= 40 && all.count { !$0.isStall } >= 20)
        #expect(Set(all.map(\.name)).count == all.count)
    }

    @Test("Every kind, verdict and place is covered")
    func breadth() {
        var (kinds, verdicts): (Set<StallKind>, Set<Verdict>) = ([], [])
        for case .stall(let expected) in Scenario.all.map(\.expectation) {
            kinds.formUnion(expected.kinds)
            verdicts.formUnion(expected.verdicts)
        }
        #expect(kinds == [.blocked, .repeated, .congested])
        #expect(verdicts == [.onCPU, .blocked, .deadlock, .starved, .diskWait])
        #expect(Set(Scenario.all.map(\.place)) == [.mainLoop, .worker, .mainActor])
    }
}
