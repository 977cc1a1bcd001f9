import RunLoopKit
import StallDetection
import StallDiagnosis
import StallReports
import TestSupport
import Testing

@testable import StallMonitor

@Suite(
    "A round over many loops",
    .timeLimit(.minutes(60)),
    .repeatedWhenLate(by: .milliseconds(50))
)
struct WatchdogStateTests {
    let quick = StallRule(tick: .milliseconds(2), ticks: 3)
    /// A look at a loop that reaches its threshold visits that one alone. By this rule none does.
    let patient = StallRule(tick: .seconds(60), ticks: 1_000)

    /// Only ends a hang: a stall by the rule `quick` takes 6 ms.
    var timeLimit: MonotonicInstant { .now + .seconds(120) }

    /// Watches a loop that leaves its rest at once.
    func watchBusyLoop(_ test: inout RoundUnderTest) throws -> (loop: QuietLoop, watched: WatchedLoop) {
        let loop = QuietLoop()
        let number = test.watch(loop, rule: quick)
        loop.leaveRest()
        return (loop, try #require(test.round.watchList.loop(number: number)))
    }

    @Test("Of 10,000 loops a look visits only those that are not at rest")
    func onlyAwake() {
        var test = RoundUnderTest()
        let loops = (0..<10_000).map { _ in QuietLoop() }
        for loop in loops { test.watch(loop, rule: patient) }
        #expect(test.visitsOfALook() == 10_000)
        #expect(test.round.isAtRest && test.visitsOfALook() == 0)
        for loop in loops[..<100] { loop.leaveRest() }
        for _ in 0..<5 { #expect(test.visitsOfALook() == 100) }
        for loop in loops[..<60] { loop.rest() }
        #expect(test.visitsOfALook() == 100)
        #expect(!test.round.isAtRest && test.visitsOfALook() == 40)
        for loop in loops[60..<100] { loop.rest() }
        #expect(test.visitsOfALook() == 40)
        #expect(test.round.isAtRest && test.visitsOfALook() == 0)
        test.round.finish()
    }

    @Test("A loop that wakes briefly raises its wake flag at most once a look, and is looked at once")
    func briefWakes() {
        var test = RoundUnderTest()
        let loop = QuietLoop()
        test.watch(loop)
        test.round.look()
        for _ in 0..<10 {
            for _ in 0..<100 {
                loop.leaveRest()
                loop.rest()
            }
            #expect(test.visitsOfALook() == 1 && test.round.isAtRest)
        }
        #expect(loop.heartbeat.turnHistogram.count == 1_000)
        test.round.finish()
    }

    @Test("Watches are added and removed in any order; the wake flag of each remaining one still finds it")
    func removal() {
        var test = RoundUnderTest()
        let loops = (0..<200).map { _ in QuietLoop() }
        let numbers = loops.map { test.watch($0, rule: patient) }
        test.round.look()
        for index in stride(from: 0, to: 200, by: 3) { test.round.remove(numbers[index]) }
        for index in loops.indices { loops[index].leaveRest() }
        #expect(test.visitsOfALook() == 133)
        // The places of the removed ones are reused.
        let more = (0..<67).map { _ in QuietLoop() }
        for loop in more { test.watch(loop, rule: patient) }
        #expect(test.visitsOfALook() == 200)
        for loop in loops + more { loop.rest() }
        test.round.look()
        for loop in more { loop.leaveRest() }
        #expect(test.visitsOfALook() == 67)
        test.round.finish()
        let free = loops.filter { $0.heartbeat.attach(Nobody()) }
        #expect(free.count == loops.count)
    }

    @Test("A loop that ends while at rest is forgotten; the look visits only that loop")
    func endedLoops() {
        var test = RoundUnderTest()
        let loops = (0..<50).map { _ in QuietLoop() }
        for loop in loops { test.watch(loop) }
        test.round.look()
        loops[7].heartbeat.end()
        #expect(test.visitsOfALook() == 1)
        #expect(test.ledger.snapshot.watches.count == 49 && test.round.isAtRest)
        test.round.finish()
    }

    @Test("While everything is paused, loops that come and go do not add up")
    func endedWhilePaused() {
        var test = RoundUnderTest()
        test.round.pause(nil, at: .now)
        for _ in 0..<1_000 {
            let loop = QuietLoop("brief")
            test.watch(loop)
            loop.leaveRest()
            loop.rest()
            loop.heartbeat.end()
        }
        #expect(test.round.watchList.count <= 65 && test.ledger.snapshot.watches.count <= 65)
        let name = WatchName(type: .runLoop, label: "brief")
        #expect(test.ledger.snapshot.totals(at: .now)[name]?.lengths.count == 1_000)
        test.round.finish()
    }

    @Test("Of a watch that begins while everything is paused, only its own part of the pause is not watched time")
    func watchDuringPause() {
        var test = RoundUnderTest()
        let now = MonotonicInstant.now
        test.round.pause(nil, at: now + .seconds(-3600))
        let loop = QuietLoop("new")
        loop.rest()
        test.watch(loop)
        let missed = test.round.missed
        test.round.resume(nil, at: now + .seconds(60), missed: missed)
        let total = test.ledger.snapshot.totals(at: now + .seconds(90))[WatchName(type: .runLoop, label: "new")]
        #expect(total?.time == .seconds(30) && total?.underWay == 1)
        test.round.finish()
    }

    @Test("A loop that was never run was not watched, however long the watch has lasted")
    func neverRun() {
        var test = RoundUnderTest()
        let (loop, name) = (QuietLoop("main"), WatchName(type: .runLoop, label: "main"))
        test.watch(loop)
        let later = MonotonicInstant.now + .seconds(60)
        let total = test.ledger.snapshot.totals(at: later)[name]
        // Readers add the time since the record for each watch under way.
        #expect(total?.time == .zero && total?.underWay == 0)
        test.round.look()
        _ = test.takeNotices()
        loop.leaveRest()
        loop.rest()
        // The look follows a tick later.
        var records = 0
        let deadline = timeLimit
        while records == 0, MonotonicInstant.now < deadline {
            test.round.look()
            records = (test.notices.take(until: .now) ?? []).count { if case .checkpoint = $0 { true } else { false } }
        }
        #expect(records == 1, "the record of a live process follows")
        let run = test.ledger.snapshot.totals(at: later)[name]
        #expect(run?.time ?? .zero > .seconds(59) && run?.underWay == 1)
        test.round.finish()
    }

    @Test("Several loops stall at once; each is reported by its own rule")
    func severalStalls() {
        var test = RoundUnderTest()
        let (a, b, patient) = (QuietLoop("a"), QuietLoop("b"), QuietLoop("patient"))
        test.watch(a, rule: quick)
        test.watch(patient, rule: StallRule(tick: .seconds(60), ticks: 5))
        test.watch(b, rule: quick)
        test.round.look()
        for loop in [a, b, patient] { loop.leaveRest() }
        var began: [String: Int] = [:]
        var ended: Set<Int> = []
        let deadline = timeLimit
        while ended.count < 2, MonotonicInstant.now < deadline {
            test.round.look()
            for notice in test.takeNotices() {
                switch notice {
                case .began(let stall):
                    began[stall.watch.name.label, default: 0] += 1
                    (stall.watch.name.label == "a" ? a : b).rest()
                case .ended(let number, _, _, .recovered): ended.insert(number)
                default: break
                }
            }
        }
        #expect(began == ["a": 1, "b": 1] && ended.count == 2)
        test.round.finish()
    }

    @Test("A resumption without a pause changes nothing: an ongoing stall still ends")
    func resumptionWithoutPause() throws {
        var test = RoundUnderTest()
        let (loop, watched) = try watchBusyLoop(&test)
        var (began, ended) = (0, 0)
        let deadline = timeLimit
        while ended == 0, MonotonicInstant.now < deadline {
            test.round.look()
            for notice in test.takeNotices() {
                switch notice {
                case .began:
                    began += 1
                    let missed = test.round.missed
                    for which in [nil, watched.identity.number] { test.round.resume(which, at: .now, missed: missed) }
                    loop.rest()
                case .ended(_, _, _, .recovered): ended += 1
                default: break
                }
            }
        }
        #expect(began == 1 && ended == 1)
        test.round.finish()
    }

    @Test("A stall that has ended when its watch is paused is closed as ended, also if no look has seen the end")
    func pauseAfterAStall() throws {
        for pausesAll in [true, false] {
            var test = RoundUnderTest()
            let (loop, watched) = try watchBusyLoop(&test)
            let deadline = timeLimit
            while watched.stall == nil, MonotonicInstant.now < deadline { test.round.look() }
            loop.rest()
            let end = MonotonicInstant.now
            test.round.pause(pausesAll ? nil : watched.identity.number, at: end)
            var spans: [StallSpan] = []
            for case .ended(_, let span, _, .recovered) in test.takeNotices() { spans.append(span) }
            #expect(spans.count == 1 && spans.allSatisfy { $0.hasExactEnds && $0.latestEnd <= end }, "\(spans)")
            test.round.finish()
        }
    }

    @Test("What the thread did after a stall that began and ended between two looks says nothing about its cause")
    func countsAfterAPassedStall() throws {
        var test = RoundUnderTest()
        let loop = QuietLoop(threadID: try #require(EventRunLoop.current.thread?.id))
        let rule = StallRule(tick: .milliseconds(100), ticks: 2, repeated: nil, congested: nil)
        let number = test.watch(loop, rule: rule)
        let watched = try #require(test.round.watchList.loop(number: number))
        loop.leaveRest()
        for _ in 0..<2 { #expect(watched.look(at: .now, late: false).isEmpty) }
        _ = stallInSleep(220)
        loop.rest()
        _ = stallByComputing(300)
        let time = MonotonicInstant.now
        for finding in watched.look(at: time, late: false) {
            watched.carryOut(finding, at: time, with: &test.round.services)
        }
        let stalls = test.takeNotices().compactMap { if case .began(let stall) = $0 { stall } else { nil } }
        #expect(stalls.map(\.span.hasExactEnds) == [true])
        for stall in stalls {
            let evidence = stall.evidence
            #expect(evidence == evidence?.conclusive(readLateBy: time - stall.span.earliestEnd))
        }
        test.round.finish()
    }

    @Test("A stall that is found when a crash turns out to be over does not begin")
    func endOfACrash() throws {
        var test = RoundUnderTest()
        let (_, watched) = try watchBusyLoop(&test)
        let deadline = timeLimit
        repeat {
            // No crash handler runs, which is noticed only when a stall is found.
            test.round.isCrashing = true
            test.round.look(at: watched)
        } while test.round.isCrashing && MonotonicInstant.now < deadline
        let isCrashing = test.round.isCrashing
        #expect(!isCrashing && watched.stall == nil)
        for case .began(let stall) in test.takeNotices() { Issue.record("a stall of \(stall.span)") }
        test.round.finish()
    }

    @Test("What a scope covered while a loop rested is not left out of the time since the loop's departure")
    func coveredAtRest() {
        var test = RoundUnderTest()
        let (loop, scope) = (QuietLoop(), ExpectedSlowness(ledger: test.ledger))
        let number = test.watch(loop, rule: StallRule(tick: .seconds(60)), scopes: [scope])
        test.round.look()
        let open = scope.open(for: .seconds(3600))
        _ = stallInSleep(20)
        scope.close(open)
        test.round.look()
        loop.leaveRest()
        _ = stallInSleep(20)
        test.round.look()
        let state = test.round.watchList.loop(number: number)?.policy.blocked.state
        if case .candidate(let standstill)? = state {
            #expect(standstill.excluded.total == .zero)
        } else {
            Issue.record("\(String(describing: state))")
        }
        test.round.finish()
    }

    @Test("The run record's turn lengths are summed by name, including watches that have ended")
    func totals() {
        var test = RoundUnderTest()
        let (first, second) = (QuietLoop("pool"), QuietLoop("pool"))
        let number = test.watch(first)
        test.watch(second)
        for (loop, turns) in [(first, 30), (second, 12)] {
            for _ in 0..<turns {
                loop.leaveRest()
                loop.rest()
            }
        }
        let name = WatchName(type: .runLoop, label: "pool")
        #expect(test.ledger.snapshot.totals(at: .now)[name]?.lengths.count == 42)
        test.round.remove(number)
        #expect(test.ledger.snapshot.totals(at: .now)[name]?.lengths.count == 42)
        test.round.finish()
        #expect(test.ledger.snapshot.totals(at: .now)[name]?.lengths.count == 42)
    }

    @Test("A loop's turns count once, however often it is watched, and turns before the watch do not count")
    func turns() {
        var test = RoundUnderTest()
        let (loop, name) = (QuietLoop("pool"), WatchName(type: .runLoop, label: "pool"))
        for _ in 1...3 {
            for turn in 1...10 { loop.heartbeat.publish(.beforeTimers, modeIndex: 0, turn: UInt64(1_000 + turn)) }
            loop.rest()
            test.round.remove(test.watch(loop))
        }
        #expect(test.ledger.snapshot.totals(at: .now)[name]?.turns == 0)
        let number = test.watch(loop)
        loop.heartbeat.publish(.waiting, modeIndex: 0, turn: loop.heartbeat.pulse.turn + 5)
        #expect(test.ledger.snapshot.totals(at: .now)[name]?.turns == 5)
        test.round.remove(number)
        #expect(test.ledger.snapshot.totals(at: .now)[name]?.turns == 5)
        test.round.finish()
    }

    @Test("Beyond a limit, loops with new names are counted together")
    func names() {
        var test = RoundUnderTest()
        for job in 0..<1_000 {
            let loop = QuietLoop("job-\(job)")
            let number = test.watch(loop)
            loop.leaveRest()
            loop.rest()
            test.round.remove(number)
        }
        let totals = test.ledger.snapshot.totals(at: .now)
        #expect(totals.count == 257 && totals.values.reduce(0) { $0 + $1.lengths.count } == 1_000)
        test.round.finish()
    }

    @Test("Beyond that limit, loops of other processes are counted together by service, up to a limit of services")
    func namesOfServices() {
        var counts = WatchdogLedger.Counts()
        func end(_ label: String, of service: String) {
            let name = WatchName(type: .eventLoop, label: label, service: service)
            counts.watches[1] = .init(name: name, since: .now)
            counts.endWatch(1, at: .now)
        }
        for number in 0..<300 { end("job-\(number)", of: "node") }
        end("main", of: "shop")
        let others = counts.past.keys.filter { $0.label == "(others)" }.compactMap(\.service)
        #expect(Set(others) == ["node", "shop"])
        for number in 0..<1_000 { end("main", of: "worker-\(number)") }
        #expect(counts.past.count == 513 && counts.past.keys.count { $0.service == nil } == 1)
    }
}

private final class Nobody: LoopWatcher {
    func loopDidLeaveRest() {}
}
