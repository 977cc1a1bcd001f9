import RunLoopKit
import StallDetection
import TestSupport
import Testing

@testable import ProcessWatch

/// What a loop does between two rests of 400 ms, and what must be reported of it.
struct RuleRow: Sendable, CustomTestStringConvertible {
    enum Verdict: Hashable, Sendable {
        case none
        case blocked
        case congested
    }

    var testDescription: String
    var expected: Verdict
    /// The expected verdict without breakpoints.
    var withoutBreakpoints = Verdict.none
    /// Whether it is then busy so long that the rest is reported as unproven.
    var isUnproven = true
    var story: LoopStory
    /// The true beginning and end.
    var began: MonotonicInstant
    var ended: MonotonicInstant
    /// If false, looks at the stack find only the wait.
    var findsLoop = true
    /// Whether a breakpoint hits the end.
    var endIsExact = true
    /// How many looks the earliest and the latest reported beginning may be apart.
    var looksUntilBegin = 1

    init(
        _ name: String,
        _ expected: Verdict,
        withoutBreakpoints: Verdict = .none,
        isUnproven: Bool = true,
        endIsExact: Bool = true,
        findsLoop: Bool = true,
        looksUntilBegin: Int = 1,
        _ act: (inout LoopStory) -> Void
    ) {
        (testDescription, self.expected, self.withoutBreakpoints) = (name, expected, withoutBreakpoints)
        (self.isUnproven, self.endIsExact, self.findsLoop) = (isUnproven, endIsExact, findsLoop)
        self.looksUntilBegin = looksUntilBegin
        story = LoopStory()
        story.rest(.milliseconds(400))
        began = story.end
        act(&story)
        ended = story.end
        story.rest(.milliseconds(400))
    }

    static let all: [RuleRow] = [
        RuleRow("a callout computes", .blocked) { $0.compute(.milliseconds(600)) },
        RuleRow("a callout computes for 330 ms", .blocked) { $0.compute(.milliseconds(330)) },
        RuleRow("one call", .blocked, withoutBreakpoints: .blocked, isUnproven: false, looksUntilBegin: 2) {
            $0.call(.milliseconds(600))
        },
        RuleRow("one call of 330 ms", .blocked, withoutBreakpoints: .blocked, isUnproven: false, looksUntilBegin: 2) {
            $0.call(.milliseconds(330))
        },
        RuleRow("many short sleeps", .blocked) { $0.shortCalls(.milliseconds(600), each: .milliseconds(5)) },
        RuleRow("a nested loop", .blocked, looksUntilBegin: 2) {
            $0.shortCalls(.milliseconds(600), each: .milliseconds(5), passing: .nestedTurn)
        },
        RuleRow("a nested loop that comes by rarely", .blocked, looksUntilBegin: 3) {
            $0.shortCalls(.milliseconds(600), each: .milliseconds(70), passing: .nestedTurn)
        },
        RuleRow("a callout that computes after a short call", .blocked) {
            $0.firstCall(.milliseconds(120))
            $0.compute(.milliseconds(480))
        },
        RuleRow("one turn of 600 callbacks", .congested) { $0.callbacks(600, each: .milliseconds(1)) },
        RuleRow("one turn of three callbacks", .congested) { $0.callbacks(3, each: .milliseconds(190)) },
        RuleRow("a turn each millisecond", .none) { $0.turns(.seconds(2), each: .milliseconds(1)) },
        RuleRow("a turn each 30 µs", .none) { $0.turns(.milliseconds(600), each: .microseconds(30)) },
        RuleRow("turns of 120 ms", .none) { $0.turns(.milliseconds(1200), each: .milliseconds(120)) },
        RuleRow("150 ms of computing", .none, isUnproven: false) { $0.compute(.milliseconds(150)) },
        RuleRow("150 ms in a call", .none, isUnproven: false) { $0.call(.milliseconds(150)) },
        RuleRow("stopped by a signal in a callout", .none, isUnproven: false) {
            $0.compute(.milliseconds(20))
            $0.stop(.milliseconds(800))
            $0.compute(.milliseconds(20))
        },
        RuleRow("no more than a rest", .none, isUnproven: false) { $0.rest(.seconds(2)) },
        RuleRow("rests of a millisecond", .none, isUnproven: false) { story in
            for _ in 0..<500 {
                story.rest(.milliseconds(1))
                story.turns(.microseconds(100), each: .microseconds(100))
            }
        },
        RuleRow(
            "a callout computes, and no frame of the loop's is found",
            .blocked,
            endIsExact: false,
            findsLoop: false
        ) {
            $0.compute(.milliseconds(600))
        },
    ]
}

@Suite("When a loop seen from outside is stalled")
struct LoopRuleTests {
    /// Where in a tick the looks fall.
    private static let phases = stride(from: 0, to: 50, by: 3).map { Duration.milliseconds($0) }

    @Test(
        "Each way of stalling and turning is judged correctly, wherever in it the looks fall",
        arguments: RuleRow.all
    )
    func decides(_ row: RuleRow) {
        for phase in Self.phases {
            let run = RuleRun(row.story, .init(phase: phase, findsLoop: row.findsLoop))
            expect(run, row.expected, row, phase)
        }
    }

    @Test(
        "Without breakpoints one uninterrupted call is reported, and nothing else is called a stall",
        arguments: RuleRow.all
    )
    func withoutBreakpoints(_ row: RuleRow) {
        for phase in Self.phases {
            let run = RuleRun(row.story, .init(hasBreakpoints: false, phase: phase, findsLoop: row.findsLoop))
            expect(run, row.withoutBreakpoints, row, phase, isExact: false)
            // A loop that rests in between may have been seen resting, or not.
            if row.expected != .none { #expect((run.unproven > 0) == row.isUnproven, "\(phase)") }
            #expect(row.isUnproven || run.unproven == 0, "\(phase)")
        }
    }

    private func expect(
        _ run: RuleRun,
        _ expected: RuleRow.Verdict,
        _ row: RuleRow,
        _ phase: Duration,
        isExact: Bool = true
    ) {
        #expect(run.disorder == 0 && run.stacksAtRest == 0, "\(phase)")
        guard expected != .none else {
            #expect(run.stalls.isEmpty, "\(phase)")
            return
        }
        #expect(run.stalls.count == 1 && run.stalls.allSatisfy(\.hasEnded), "\(phase)")
        guard let stall = run.stalls.first else { return }
        #expect(stall.isCongested == (expected == .congested), "\(phase)")
        let (began, ended) = (stall.times.began, stall.times.ended)
        #expect(began.contains(row.began), "\(phase): \(began), in truth \(row.began)")
        #expect(ended.contains(row.ended), "\(phase): \(ended), in truth \(row.ended)")
        // Two looks bound the beginning; they also bound the end if no breakpoint hit it.
        #expect(began.upperBound - began.lowerBound <= .milliseconds(50) * row.looksUntilBegin, "\(phase)")
        #expect(ended.upperBound - ended.lowerBound <= .milliseconds(50), "\(phase)")
        if isExact, row.endIsExact { #expect(ended.lowerBound == ended.upperBound, "\(phase)") }
        #expect(stall.detectedAt - row.began <= .milliseconds(300 + 50 * row.looksUntilBegin), "\(phase)")
    }

    @Test("A callout of 300 ms is always found, one of 200 ms never")
    func bounds() {
        for phase in (0..<50).map({ Duration.milliseconds($0) }) {
            for (length, expected) in [(301, 1), (200, 0)] {
                let row = RuleRow("", .blocked) { $0.compute(.milliseconds(length)) }
                #expect(RuleRun(row.story, .init(phase: phase)).stalls.count == expected, "\(length) ms, \(phase)")
            }
        }
    }

    @Test("A standstill becomes a stall one threshold after its breakpoint was set; late time is excluded")
    func maturity() {
        var rule = LoopRule(tick: .milliseconds(50), threshold: .milliseconds(250))
        let time = LoopStory.start
        #expect(rule.maturity == nil)
        let schedule = Schedule(ran: 1, waited: 0, slices: 1)
        _ = rule.look(.init(time: time, schedule: schedule, position: .running, rests: false))
        #expect(rule.maturity == nil)
        rule.armed(true, at: time + .milliseconds(7))
        rule.exclude(.milliseconds(20))
        #expect(rule.maturity == time + .milliseconds(277))
    }

    @Test("A turn that has ended when its stack is taken is told by the next look, once", arguments: [false, true])
    func foundInWait(rests: Bool) {
        var rule = LoopRule(tick: .milliseconds(50), threshold: .milliseconds(250))
        func look(_ milliseconds: Int) -> LoopRule.Look {
            let schedule = Schedule(ran: UInt64(milliseconds), waited: 0, slices: 1)
            let time = LoopStory.start + .milliseconds(milliseconds)
            return .init(time: time, schedule: schedule, position: .running, rests: rests && milliseconds > 101)
        }
        _ = rule.look(look(0))
        rule.armed(true, at: look(1).time)
        _ = rule.look(look(50))
        #expect(rule.look(look(101)).contains(.locate))
        _ = rule.foundInWait(at: look(101).time)
        rule.armed(true, at: look(102).time)
        _ = rule.look(look(150))
        #expect(rule.endedTurn?.proven == look(1).time...look(101).time)
        _ = rule.look(look(200))
        #expect(rule.endedTurn == nil)
    }

    @Test("Time in which the watcher itself did not run proves nothing")
    func lateness() {
        for phase in Self.phases {
            let row = RuleRow("", .none) { $0.compute(.milliseconds(500)) }
            // The whole machine was suspended: the loop computed for 100 ms of the 500.
            let absence = (row.began + .milliseconds(60))...(row.began + .milliseconds(460))
            let run = RuleRun(row.story, .init(absence: absence, phase: phase))
            #expect(run.stalls.isEmpty && run.disorder == 0, "\(phase)")
            // Of a longer standstill the rest counts.
            let longer = RuleRow("", .blocked) { $0.compute(.milliseconds(900)) }
            let other = RuleRun(longer.story, .init(absence: absence, phase: phase))
            #expect(other.stalls.count == 1, "\(phase)")
            #expect(other.stalls.first.map { $0.times.excluded >= .milliseconds(340) } == true, "\(phase)")
        }
    }

    @Test("Without breakpoints, too, time in which the watcher did not run is not subtracted from a later call")
    func latenessBeforeTheCall() {
        for phase in Self.phases {
            let row = RuleRow("", .blocked) {
                $0.call(.milliseconds(900))
                $0.compute(.milliseconds(120))
                $0.call(.milliseconds(600))
            }
            let absence = (row.began + .milliseconds(60))...(row.began + .milliseconds(860))
            let run = RuleRun(row.story, .init(hasBreakpoints: false, absence: absence, phase: phase))
            #expect(run.stalls.count == 1 && run.disorder == 0, "\(phase): \(run.stalls)")
            #expect(run.stalls.first?.times.excluded == .zero, "\(phase)")
        }
    }

    @Test("Time after a stall's end in which the watcher did not run is not subtracted from it")
    func latenessAfterTheEnd() throws {
        for phase in Self.phases {
            let row = RuleRow("", .blocked) { $0.compute(.milliseconds(900)) }
            let absence = (row.began + .milliseconds(400))...(row.began + .milliseconds(1400))
            let run = RuleRun(row.story, .init(absence: absence, phase: phase))
            #expect(run.stalls.count == 1 && run.disorder == 0, "\(phase)")
            let times = try #require(run.stalls.first?.times)
            #expect(times.excluded <= .milliseconds(500) && times.length >= .milliseconds(400), "\(phase): \(times)")
            #expect(times.unobserved == times.excluded, "\(phase): \(times)")
        }
    }

    @Test("A stop during a stall does not end it; its time counts as unproven")
    func stoppedInTheMiddle() {
        let row = RuleRow("", .blocked) {
            $0.compute(.milliseconds(400))
            $0.stop(.milliseconds(800))
            $0.compute(.milliseconds(100))
        }
        var story = LoopStory()
        story.rest(.milliseconds(400))
        // One callout: its breakpoints see one return, at the end.
        let run = RuleRun(row.story, .init(depth: 0))
        #expect(run.stalls.count == 1 && run.disorder == 0)
        #expect(run.stalls.first.map { $0.times.excluded >= .milliseconds(700) } == true)
        #expect(run.stalls.first?.times.unobserved == .zero)
    }

    @Test("The counts of a stall leave out what the thread did before it, and a stop", arguments: [true, false])
    func counts(hasBreakpoints: Bool) throws {
        let row = RuleRow("", .blocked) {
            $0.firstCall(.milliseconds(120))
            if hasBreakpoints { $0.stop(.seconds(3)) } else { $0.firstCall(.seconds(3)) }
            $0.call(.milliseconds(600))
        }
        for phase in Self.phases {
            let run = RuleRun(row.story, .init(hasBreakpoints: hasBreakpoints, depth: 0, phase: phase))
            let stall = try #require(run.stalls.first)
            let since = try #require(stall.countedSince)
            // From the first look at the standstill on, or the second.
            let afterStart = since - stall.times.latestStart
            #expect(afterStart >= .zero && afterStart <= .milliseconds(50), "\(phase): \(afterStart)")
        }
    }

    @Test("Time of a stop in which the watcher did not run either is excluded once")
    func stoppedUnobserved() throws {
        for phase in Self.phases {
            let row = RuleRow("", .blocked) {
                $0.compute(.milliseconds(400))
                $0.stop(.milliseconds(1000))
                $0.compute(.milliseconds(300))
            }
            let absence = (row.began + .milliseconds(450))...(row.began + .milliseconds(1200))
            let run = RuleRun(row.story, .init(depth: 0, absence: absence, phase: phase))
            #expect(run.stalls.count == 1 && run.disorder == 0, "\(phase)")
            let times = try #require(run.stalls.first?.times)
            #expect(times.excluded <= .milliseconds(1050), "\(phase): \(times)")
            #expect(times.unobserved >= .milliseconds(650), "\(phase): \(times)")
        }
    }

    @Test("A loop stopped while it rests is not stalled, before or after")
    func stoppedAtRest() {
        var story = LoopStory()
        for _ in 0..<3 {
            story.rest(.milliseconds(120))
            story.stop(.milliseconds(800))
        }
        story.rest(.milliseconds(400))
        for phase in Self.phases { #expect(RuleRun(story, .init(phase: phase)).stalls.isEmpty, "\(phase)") }
    }

    @Test(
        "Random rests, turns, calls and callouts: each standstill of 300 ms is one stall, none under 200 ms is"
    )
    func random() {
        var random = SplitMix64.ofThisRun()
        for _ in 0..<60 {
            var story = LoopStory()
            var standstills: [ClosedRange<MonotonicInstant>] = []
            story.rest(.milliseconds(300))
            for _ in 0..<40 {
                let before = story.end
                let length = Duration.milliseconds(
                    Bool.random(using: &random)
                        ? .random(in: 1...190, using: &random) : .random(in: 305...900, using: &random)
                )
                switch Int.random(in: 0..<6, using: &random) {
                case 0: story.compute(length)
                case 1: story.call(length)
                case 2: story.shortCalls(length, each: .milliseconds(4))
                case 3: story.callbacks(Int(length / .milliseconds(2)) + 1, each: .milliseconds(2))
                // Found only once its callout is watched: two looks later than others.
                case 4:
                    story.shortCalls(
                        length + (length > .milliseconds(300) ? .milliseconds(100) : .zero),
                        each: .milliseconds(9),
                        passing: .nestedTurn
                    )
                default: story.turns(length, each: .milliseconds(7))
                }
                if story.end - before >= .milliseconds(300), !isTurning(story, before) {
                    standstills.append(before...story.end)
                }
                story.rest(.milliseconds(Int.random(in: 1...300, using: &random)))
            }
            let run = RuleRun(story, .init(phase: .milliseconds(Int.random(in: 0..<50, using: &random))))
            #expect(run.disorder == 0 && run.stacksAtRest == 0)
            #expect(run.stalls.count == standstills.count)
            for (stall, truth) in zip(run.stalls, standstills) {
                let (began, ended) = (stall.times.began, stall.times.ended)
                #expect(began.contains(truth.lowerBound), "\(began), in truth \(truth)")
                #expect(ended.contains(truth.upperBound), "\(ended), in truth \(truth)")
            }
        }
    }

    /// Whether the loop returned from its wait within 100 ms after this time.
    private func isTurning(_ story: LoopStory, _ time: MonotonicInstant) -> Bool {
        story.first([.turn], after: time, until: time + .milliseconds(100)) != nil
    }

    @Test("A long turn of short calls is searched at growing intervals, and found to be congested")
    func longTurn() {
        let row = RuleRow("", .congested) { $0.callbacks(6_000, each: .milliseconds(5)) }
        let run = RuleRun(row.story, .init(threshold: .seconds(20)))
        #expect(run.stalls.map(\.isCongested) == [true])
        #expect((3...40).contains(run.searches), "\(run.searches)")
    }

    @Test("A loop whose rests are too short to be seen is never stopped and never called unproven")
    func cost() {
        var story = LoopStory()
        story.rest(.milliseconds(100))
        for _ in 0..<20_000 {
            story.rest(.microseconds(50))
            story.turns(.microseconds(50), each: .microseconds(50))
        }
        let run = RuleRun(story)
        #expect(run.stalls.isEmpty && run.stacks == 0 && run.unproven == 0)
    }
}
