import RunLoopKit
import TestSupport
import StallReports
import Testing

@testable import StallDetection

@Suite("Which kind of stall")
struct StallPolicyTests {
    // MARK: - Congested

    @Test("A turn of short callouts is congested when it reaches the threshold; the stall ends with the turn")
    func congestedTurn() {
        let run = KindsRun([.turn(Array(repeating: 7, count: 100)), .rest(500)])
        #expect(run.summary == ["congested 0–700"] && run.disorder == 0)
        #expect(run.stalls.first?.hasEnded == true && run.stalls.first?.told == 250)
    }

    @Test("The same work in turns that each poll for events is a busy loop, not a stall")
    func pollingTurns() {
        let steps = (0..<200).map { _ in KindsRun.Step.turn([7, 7]) }
        #expect(KindsRun(steps).stalls.isEmpty)
    }

    @Test("A turn just below the threshold is not congested; the threshold is configurable", arguments: [240, 249])
    func belowThreshold(_ length: Int) {
        let turn = [KindsRun.Step.turn(Array(repeating: 1, count: length)), .rest(300)]
        #expect(KindsRun(turn).stalls.isEmpty)
        let strict = StallRule(congested: .init(ticks: 3))
        #expect(KindsRun(turn, rule: strict).summary == ["congested 0–\(length)"])
        #expect(KindsRun(turn, rule: StallRule(repeated: nil, congested: nil)).stalls.isEmpty)
    }

    @Test("A turn that ends between two looks is reported after its end")
    func passedCongestion() {
        let run = KindsRun([.turn(Array(repeating: 10, count: 26)), .rest(500)], offset: 10)
        #expect(run.summary == ["congested 0–260"] && run.stalls[0].hasEnded)
    }

    @Test("Of several long turns between two looks each is reported, also after a stall that ends in that time")
    func passedTurns() {
        func at(_ milliseconds: Int) -> MonotonicInstant { KindsRun.start + .milliseconds(milliseconds) }
        func spans(_ turns: [ClosedRange<Int>], after looks: [LoopSample]) -> [(endsStall: Bool, span: StallSpan)] {
            var policy = StallPolicy(rule: StallRule())
            for look in looks { _ = policy.decideAndConfirm(look) }
            let look = LoopSample(
                time: at(1_500),
                pulse: .init(phase: .waiting, modeIndex: 0, turn: 9),
                turns: turns.map { BusyTurn(start: at($0.lowerBound), end: at($0.upperBound)) }
            )
            return policy.decideAndConfirm(look).compactMap { finding in
                switch finding.decision {
                case .ended(let span), .passed(let span, _): (finding.endsStall, span)
                default: nil
                }
            }
        }
        let passed = spans([0...300, 310...610, 620...700, 710...1_010], after: [])
        #expect(passed.map(\.span) == [0, 310, 710].map { .exact(from: at($0), to: at($0 + 300)) })
        let congested = stride(from: 50, through: 300, by: 50).map { look($0, UInt64($0)) }
        let later = spans([0...350, 400...700], after: congested)
        #expect(later.map(\.endsStall) == [true, false])
        #expect(later.map(\.span) == [.exact(from: at(0), to: at(350)), .exact(from: at(400), to: at(700))])
    }

    @Test("A callout that does not return is blocked, not congested, whatever came before it in the turn")
    func blockedWins() {
        #expect(KindsRun([.turn([600]), .rest(300)]).summary == ["blocked 0–600"])
        #expect(KindsRun([.turn([1, 1, 1, 600]), .rest(300)]).summary == ["blocked 0–603"])
        let late = KindsRun([.turn(Array(repeating: 10, count: 6) + [600]), .rest(300)])
        #expect(late.stalls.map(\.category) == [.blocked] && late.stalls[0].to == 660 && late.disorder == 0)
    }

    @Test("In a congested turn, a callout that does not return ends one stall and begins another, without overlap")
    func blockedInCongestion() {
        let short = Array(repeating: 10, count: 40)
        let run = KindsRun([.turn(short + [600] + short), .rest(300)])
        #expect(run.stalls.map(\.category) == [.congested, .blocked, .congested] && run.disorder == 0)
        #expect(run.haveAllEnded)
        for (a, b) in zip(run.stalls, run.stalls.dropFirst()) { #expect(a.to <= b.from) }
        #expect(run.stalls[0].from == 0 && run.stalls[2].to == 1_400)
        #expect((350...400).contains(run.stalls[1].from) && (1_000...1_050).contains(run.stalls[1].to))
    }

    @Test("A loop that counts no callouts is blocked")
    func withoutCallouts() {
        var policy = StallPolicy(rule: StallRule())
        let start = KindsRun.start
        var findings: [StallFinding] = []
        for time in stride(from: 50, through: 400, by: 50) {
            findings += policy.decideAndConfirm(
                LoopSample(
                    time: start + .milliseconds(time),
                    pulse: .init(phase: .beforeSources, modeIndex: 0, turn: 1),
                    turnStart: start,
                    busySince: start
                )
            )
        }
        #expect(findings.map(\.category) == [.blocked])
    }

    @Test("A turn whose thread was kept from running from outside is not congested when it ends")
    func excludedTurn() {
        var policy = StallPolicy(rule: StallRule())
        let (start, length) = (KindsRun.start, 620)
        var findings: [StallFinding] = []
        for time in stride(from: 50, through: 700, by: 50) {
            let (now, end) = (start + .milliseconds(time), start + .milliseconds(length))
            let (isBusy, endsNow) = (time < length, time >= length && time < length + 50)
            let look = LoopSample(
                time: now,
                pulse: .init(phase: isBusy ? .beforeSources : .waiting, modeIndex: 0, turn: 1),
                turnStart: start,
                firstTransition: endsNow ? end : nil,
                callouts: 1,
                busySince: isBusy ? start : nil,
                turns: endsNow ? [BusyTurn(start: start, end: end)] : []
            )
            findings += policy.decide(look)
            // As the watchdog does: the candidate is dismissed, and from then on the time between two looks is excluded.
            if time == 250 { policy.dismiss(.blocked, because: .traced, at: now) }
            if time > 250, isBusy { policy.exclude(.milliseconds(50), because: .traced) }
        }
        #expect(findings.map(\.category) == [.blocked])
    }

    /// A look at a turn of short callouts that began at 0.
    private func look(_ time: Int, _ callouts: UInt64, without excluded: Int = 0, ended: Int? = nil) -> LoopSample {
        let (start, isBusy) = (KindsRun.start, ended == nil)
        return LoopSample(
            time: start + .milliseconds(time),
            pulse: .init(phase: isBusy ? .beforeSources : .waiting, modeIndex: 0, turn: 1),
            turnStart: start,
            firstTransition: ended.map { start + .milliseconds($0) },
            late: excluded > 0,
            excluded: excluded > 0 ? ExcludedTime(length: .milliseconds(excluded), reason: .stopped) : nil,
            callouts: callouts,
            busySince: isBusy ? start : nil,
            turns: ended.map { [BusyTurn(start: start, end: start + .milliseconds($0))] } ?? []
        )
    }

    /// The spans of the stalls that ended, by category.
    private func ends(_ looks: [LoopSample]) -> [(category: StallCategory, span: StallSpan)] {
        var policy = StallPolicy(rule: StallRule())
        return looks.flatMap { policy.decideAndConfirm($0) }.compactMap { finding in
            guard case .ended(let span) = finding.decision else { return nil }
            return (finding.category, span)
        }
    }

    @Test("A stop of the process during a congested stall is not in its length, whether the turn goes on or ends")
    func stopInCongestion() throws {
        let before = stride(from: 50, through: 300, by: 50).map { look($0, UInt64($0)) }
        let after = [look(60_350, 351, without: 60_000), look(60_400, 400), look(60_450, 450, ended: 60_420)]
        let goesOn = ends(before + after)
        #expect(goesOn.map(\.category) == [.congested])
        let span = try #require(goesOn.first?.span)
        // Nothing is known of the time since the look before the stop.
        #expect(span.length == .milliseconds(370) && span.longest == .milliseconds(60_420))
        let endsAtOnce = ends(before + [look(60_350, 351, without: 60_000, ended: 60_340)])
        #expect(endsAtOnce.map(\.span.length) == [.milliseconds(300)])
    }

    @Test(
        "A stop in a callout that becomes a stall of its own is left out of that one alone",
        arguments: [true, false]
    )
    func stopAfterCongestion(seesCalloutBefore: Bool) throws {
        let before = stride(from: 50, through: 300, by: 50).map { look($0, UInt64($0)) }
        let stop = (seesCalloutBefore ? [look(350, 301)] : []) + [look(60_400, 301, without: 60_000)]
        let after = stride(from: 60_450, through: 60_700, by: 50).map { look($0, 301) }
        let stalls = ends(before + stop + after + [look(60_750, 301, ended: 60_740)])
        #expect(stalls.map(\.category) == [.congested, .blocked])
        #expect(stalls[0].span.excluded == .zero && stalls[0].span.length == .milliseconds(300))
        #expect(stalls[1].span.length < .milliseconds(500) && stalls[1].span.longest > .seconds(60))
    }

    @Test("A turn that begins before a stop, right after a congested one, does not count from its beginning")
    func stopAfterTheTurn() {
        var policy = StallPolicy(rule: StallRule())
        for time in stride(from: 50, through: 300, by: 50) { _ = policy.decideAndConfirm(look(time, UInt64(time))) }
        // The turn has ended at 310, and the next one has begun.
        var next = look(60_350, 320, without: 60_000, ended: 310)
        next.pulse = .init(phase: .beforeSources, modeIndex: 0, turn: 2)
        next.busySince = KindsRun.start + .milliseconds(311)
        next.turnStart = next.busySince
        #expect(policy.decideAndConfirm(next).map(\.endsStall) == [true])
        for time in stride(from: 60_400, to: 60_600, by: 50) {
            (next.time, next.late, next.excluded) = (KindsRun.start + .milliseconds(time), false, nil)
            (next.firstTransition, next.turns) = (nil, [])
            next.callouts += 1
            #expect(policy.decideAndConfirm(next).isEmpty)
        }
    }

    // MARK: - Repeated

    @Test("Five turns in a row longer than a tick are one stall, from the first one's start to the last one's end")
    func fiveTurns() {
        let run = KindsRun(KindsRun.Step.turns(6, of: 80, pause: 20) + [.rest(1_000)])
        #expect(run.summary == ["repeated 0–580"] && run.disorder == 0 && run.stalls[0].hasEnded)
        #expect(run.stalls[0].told <= 500)
        #expect(KindsRun(KindsRun.Step.turns(4, of: 80, pause: 20)).stalls.isEmpty)
    }

    @Test("While a row is open, its stall is never longer than in the end", arguments: [1, 8, 15, 22, 29, 36, 43, 50])
    func openRow(_ offset: Int) {
        let run = KindsRun(KindsRun.Step.turns(7, of: 70, pause: 60) + [.rest(500)], offset: offset)
        #expect(run.summary == ["repeated 0–850"])
        #expect((500...850).contains(run.latestOpenEnd))
    }

    @Test("The result does not depend on when the looks come", arguments: [1, 8, 15, 22, 29, 36, 43, 50])
    func anyOffset(_ offset: Int) {
        let run = KindsRun(KindsRun.Step.turns(7, of: 70, pause: 25) + [.rest(500)], offset: offset)
        #expect(run.summary == ["repeated 0–640"] && run.disorder == 0)
    }

    @Test("Turns of a tick or less do not count, however many there are")
    func shortTurns() {
        #expect(KindsRun(KindsRun.Step.turns(100, of: 50, pause: 1)).stalls.isEmpty)
    }

    @Test("If a row ends and long turns follow before the next look, all of them are in the next row")
    func turnsAfterARow() {
        var policy = StallPolicy(rule: StallRule())
        func at(_ milliseconds: Int) -> MonotonicInstant { KindsRun.start + .milliseconds(milliseconds) }
        func look(at time: Int, _ turns: [Int]) -> LoopSample {
            LoopSample(
                time: at(time),
                pulse: .init(phase: .waiting, modeIndex: 0, turn: UInt64(time)),
                turns: turns.map { BusyTurn(start: at($0), end: at($0 + 80)) }
            )
        }
        #expect(policy.decideAndConfirm(look(at: 490, [0, 100, 200, 300, 400])).map(\.category) == [.repeated])
        #expect(policy.decideAndConfirm(look(at: 1_300, [1_000, 1_100, 1_200])).map(\.endsStall) == [true])
        #expect(policy.repeated?.row?.count == 3)
        #expect(policy.decideAndConfirm(look(at: 1_490, [1_300, 1_400])).map(\.category) == [.repeated])
    }

    @Test("Long turns after the end of another stall are in the next row, also if the same look sees both")
    func turnsAfterAnotherStall() {
        var policy = StallPolicy(rule: StallRule())
        func look(at time: Int, _ turns: [ClosedRange<Int>]) -> LoopSample {
            LoopSample(
                time: KindsRun.start + .milliseconds(time),
                pulse: .init(phase: .waiting, modeIndex: 0, turn: UInt64(time)),
                turns: turns.map { turn in
                    BusyTurn(
                        start: KindsRun.start + .milliseconds(turn.lowerBound),
                        end: KindsRun.start + .milliseconds(turn.upperBound)
                    )
                }
            )
        }
        let first = policy.decideAndConfirm(look(at: 700, [0...300, 310...390, 400...480, 490...570, 580...660]))
        #expect(first.map(\.category) == [.congested] && policy.repeated?.row?.count == 4)
        #expect(policy.decideAndConfirm(look(at: 760, [670...750])).map(\.category) == [.repeated])
    }

    @Test("A short turn in between does not end the row; a pause does")
    func shortTurnBetween() {
        let pair: [KindsRun.Step] = [.turn([80]), .rest(5), .turn([1]), .rest(5)]
        let run = KindsRun((0..<6).flatMap { _ in pair } + [.rest(500)])
        #expect(run.stalls.map(\.category) == [.repeated] && run.stalls[0].to == 535)
    }

    @Test("A loop that is free most of the time is not stalled", arguments: [120, 200, 1_000])
    func pausesEndTheRow(_ pause: Int) {
        #expect(KindsRun(KindsRun.Step.turns(40, of: 80, pause: pause)).stalls.isEmpty)
    }

    @Test("Pauses may be as long as the turns")
    func longPauses() {
        let run = KindsRun(KindsRun.Step.turns(6, of: 200, pause: 180) + [.rest(1_000)])
        #expect(run.summary == ["repeated 0–2100"])
    }

    @Test("A turn that ends while the loop is read, and is seen both as present and as ended, counts once")
    func turnThatEndsInALook() {
        var policy = StallPolicy(rule: StallRule())
        for number in 1...5 {
            let start = KindsRun.start + .milliseconds(100 * number)
            let look = LoopSample(
                time: start + .milliseconds(79),
                pulse: .init(phase: .beforeSources, modeIndex: 0, turn: UInt64(number)),
                turnStart: start,
                callouts: UInt64(number),
                calloutsAtTurn: UInt64(number - 1),
                busySince: start,
                turns: [BusyTurn(start: start, end: start + .milliseconds(80))]
            )
            #expect(policy.decideAndConfirm(look).map(\.category) == (number == 5 ? [.repeated] : []))
            #expect(policy.present(at: look)?.count == number)
        }
    }

    @Test("Turns without a rest between them form a row, too")
    func withoutRest() {
        let run = KindsRun((0..<6).map { _ in .turn([80]) } + [.rest(500)])
        #expect(run.summary == ["repeated 0–480"])
    }

    @Test("A blocked stall does not overlap a row: the row before it ends, and another begins after it")
    func blockedEndsRow() {
        let row = KindsRun.Step.turns(6, of: 80, pause: 20)
        let run = KindsRun(row + [.turn([400]), .rest(20)] + row + [.rest(500)])
        #expect(run.stalls.map(\.category) == [.repeated, .blocked, .repeated] && run.disorder == 0)
        #expect(run.summary == ["repeated 0–580", "blocked 600–1000", "repeated 1020–1600"])
    }

    @Test("Turns that are reported as blocked do not form a row of repeated stalls")
    func blockedTurnsAreNoRow() {
        let run = KindsRun(KindsRun.Step.turns(7, of: 300, pause: 20) + [.rest(500)])
        #expect(run.stalls.map(\.category) == Array(repeating: .blocked, count: 7) && run.disorder == 0)
    }

    @Test("Turns that are reported as congested do not form a row of repeated stalls")
    func congestedTurnsAreNoRow() {
        let turn = KindsRun.Step.turn(Array(repeating: 10, count: 40))
        let run = KindsRun((0..<7).flatMap { _ in [turn, .rest(20)] } + [.rest(500)])
        #expect(run.stalls.map(\.category) == Array(repeating: .congested, count: 7) && run.disorder == 0)
    }

    @Test("The time before a late look does not count")
    func lateLooks() {
        let late = Set(stride(from: 50, through: 2_000, by: 50))
        #expect(KindsRun(KindsRun.Step.turns(6, of: 80, pause: 20), late: late).stalls.isEmpty)
        #expect(KindsRun([.turn(Array(repeating: 7, count: 60)), .rest(500)], late: late).stalls.isEmpty)
    }

    @Test("What was seen of a turn before a late look stays in the row: none is shorter than when it was found")
    func interruptedTurn() {
        let four = KindsRun.Step.turns(4, of: 80, pause: 20)
        // The fifth turn is under way at 460, and the look at 510 is late.
        let run = KindsRun(four + [.turn([80]), .rest(500)], offset: 10, late: [510])
        #expect(run.summary == ["repeated 0–460"] && run.stalls[0].hasEnded)
        let twice = KindsRun(four + [.turn([80]), .rest(1_000)], offset: 10, late: [510, 560])
        #expect(twice.summary == ["repeated 0–460"] && twice.stalls[0].hasEnded)
        // It goes on until it is a stall of its own, which has all of its time.
        let longer = KindsRun(four + [.turn([500]), .rest(500)], offset: 10, late: [510])
        #expect(longer.summary == ["repeated 0–380", "blocked 400–900"] && longer.disorder == 0)
        // The next turn is not the interrupted one.
        let next = KindsRun(four + [.turn([80]), .rest(30), .turn([500]), .rest(500)], offset: 10, late: [510])
        #expect(next.summary == ["repeated 0–460", "blocked 510–1010"] && next.disorder == 0)
    }

    @Test("Its own settings apply; without them there is no repeated stall")
    func ownNumbers() {
        let steps = KindsRun.Step.turns(3, of: 120, pause: 20) + [.rest(500)]
        #expect(KindsRun(steps, rule: StallRule(repeated: .init(turns: 3, ticks: 2))).summary == ["repeated 0–400"])
        #expect(KindsRun(steps, rule: StallRule(repeated: .init(turns: 3, ticks: 3))).stalls.isEmpty)
        let many = KindsRun.Step.turns(30, of: 80, pause: 20)
        #expect(KindsRun(many, rule: StallRule(repeated: nil)).stalls.isEmpty)
    }

    @Test("A row that continues is reported again as it grows, and keeps the watchdog awake until the pause")
    func growth() {
        let run = KindsRun(KindsRun.Step.turns(60, of: 80, pause: 20) + [.rest(500)])
        #expect(run.summary == ["repeated 0–5980"] && run.disorder == 0)
    }

    // MARK: - All

    @Test("In random runs no stalls overlap, and each begins and ends once, also with late looks", arguments: 1...60)
    func randomLives(_ seed: Int) {
        var random = SplitMix64(seed: UInt64(seed))
        var steps: [KindsRun.Step] = []
        for _ in 0..<80 {
            let callouts = (0..<Int.random(in: 1...30, using: &random)).map { _ in
                Int.random(in: 0..<12, using: &random) == 0
                    ? Int.random(in: 60...400, using: &random) : Int.random(in: 1...12, using: &random)
            }
            steps.append(.turn(callouts))
            if Bool.random(using: &random) { steps.append(.rest(Int.random(in: 1...150, using: &random))) }
        }
        let offset = Int.random(in: 1...50, using: &random)
        let late = stride(from: offset, to: 60_000, by: 50).filter { _ in Int.random(in: 0..<8, using: &random) == 0 }
        for run in [[], late].map({ KindsRun(steps + [.rest(1_000)], offset: offset, late: Set($0)) }) {
            #expect(run.disorder == 0 && run.haveAllEnded)
            for (a, b) in zip(run.stalls, run.stalls.dropFirst()) { #expect(a.to <= b.from, "\(a), \(b)") }
            #expect(Set(run.stalls.map(\.category)).count > 1)
        }
    }

    @Test("By default the other rules derive from the rule for blocked stalls")
    func numbersNotGiven() {
        #expect(StallRule(tick: .milliseconds(10), ticks: 7).congestion == .milliseconds(70))
        #expect(StallRule(tick: .milliseconds(10)).longTurn == .milliseconds(10))
        #expect(StallRule() == StallRule(tick: .milliseconds(50), ticks: 5))
    }
}
