import RunLoopKit
import TestSupport
import Testing

@testable import StallDetection

@Suite("When to look next")
struct LookScheduleTests {
    private let now = Trace.start
    private let tick = Duration.milliseconds(50)

    private func schedule(_ maturities: [Duration], reach: Duration = .milliseconds(250)) -> LookSchedule {
        var schedule = LookSchedule(first: now)
        schedule.planRound(
            after: now,
            tick: tick,
            reach: reach,
            candidates: maturities.enumerated().map { .init(maturity: now + $1, place: $0) }
        )
        return schedule
    }

    @Test("Without a candidate there is one look per tick")
    func plainTick() {
        let schedule = schedule([])
        #expect(schedule.next == now + tick && schedule.isRound(at: schedule.next))
    }

    @Test("A candidate that matured while other loops were looked at is looked at immediately, and once")
    func maturedMeanwhile() {
        for late in [Duration.zero, .milliseconds(-5)] {
            var schedule = schedule([.milliseconds(200), late])
            #expect(schedule.next == now && !schedule.isRound(at: now) && schedule.takeDue(at: now) == [1])
            schedule.add([.init(maturity: now + late, place: 1)], after: now + .milliseconds(1))
            #expect(schedule.next == now + .milliseconds(1) && schedule.takeDue(at: schedule.next) == [1])
            #expect(schedule.next == now + tick && schedule.isRound(at: schedule.next))
        }
    }

    @Test(
        "Looks are one to two ticks apart, and there is one at the threshold",
        arguments: [50, 77, 99, 100, 149, 240, 250]
    )
    func meetsMaturity(_ milliseconds: Int) {
        let maturity = now + .milliseconds(milliseconds)
        var schedule = schedule([.milliseconds(milliseconds)])
        var time = now
        while time < maturity {
            #expect(schedule.next - time >= tick && schedule.next - time < tick * 2)
            time = schedule.next
            let candidate = LookSchedule.Candidate(maturity: maturity, place: 0)
            schedule.planRound(after: time, tick: tick, reach: .milliseconds(250), candidates: [candidate])
        }
        #expect(time == maturity)
    }

    @Test("A loop that matures within the tick is looked at then, alone; the others at the next round")
    func meetsEarlyMaturities() {
        var schedule = schedule([.milliseconds(30), .milliseconds(7), .milliseconds(200)])
        #expect(schedule.next == now + .milliseconds(7))
        #expect(!schedule.isRound(at: schedule.next) && schedule.takeDue(at: schedule.next) == [1])
        #expect(schedule.next == now + .milliseconds(30))
        #expect(!schedule.isRound(at: schedule.next) && schedule.takeDue(at: schedule.next) == [0])
        #expect(schedule.next == now + tick && schedule.isRound(at: schedule.next))
    }

    @Test(
        "Thresholds close together share one look, after the last; those just before a round use the round's look"
    )
    func meetsTogether() {
        var together = schedule((0..<100).map { .milliseconds(20) + .microseconds($0 * 10) })
        #expect(together.next == now + .microseconds(20_990))
        #expect(together.takeDue(at: together.next).count == 100)
        #expect(schedule([.microseconds(49_500)]).next == now + tick)
    }

    @Test("No round is later than the shortest threshold")
    func reach() {
        #expect(schedule([.milliseconds(90)], reach: tick).next == now + tick)
        #expect(schedule([.milliseconds(90)], reach: .milliseconds(70)).next == now + .milliseconds(70))
        #expect(schedule([.milliseconds(90)]).next == now + .milliseconds(90))
    }
}

@Suite("A callout that lasts for the threshold")
struct ThresholdTests {
    /// Callouts before it in the turn.
    static let preludes: [[Int]] = [
        [], [10], [900, 40], Array(repeating: 3_000, count: 7), [13_000, 13_000, 13_000], [49_000], [30_000, 60_000],
    ]

    /// The time of the first round; nil if the watchdog was parked.
    private static let phases: [Int?] = (-1..<50).map { (phase: Int) -> Int? in phase < 0 ? nil : phase * 1_000 + 17 }

    /// How late a look may be for a candidate: the wait for others, and the machine's delay.
    private static let grace = Int(LookSchedule.slack(StallRule().tick) / .microseconds(1)) + 60

    @Test(
        "It is reported as blocked in time, at every phase of the tick and whatever came before it in the turn",
        arguments: preludes
    )
    func atEveryPhase(_ prelude: [Int]) {
        for phase in Self.phases {
            for length in stride(from: 250_000, through: 300_000, by: 2_500) {
                for toTurn in [3, 300] {
                    let life = ThresholdRun.Life(
                        departure: 1_000_000,
                        toTurn: toTurn,
                        before: prelude,
                        length: length,
                        after: [20, 20]
                    )
                    let run = ThresholdRun([life], firstRound: phase.map { 950_000 + $0 })
                    Self.check(run.told[0], life, "phase \(phase ?? -1), \(length) µs, \(toTurn)")
                }
            }
        }
    }

    private static func check(_ told: [ThresholdRun.Told], _ life: ThresholdRun.Life, _ about: Comment) {
        #expect(told.count == 1 && told.first?.category == .blocked, about)
        guard let stall = told.first, life.length > 250_000 + grace else { return }
        #expect(!stall.passed && stall.at <= life.standing.lowerBound + 250_000 + grace, about)
    }

    @Test(
        "A stall that a look less than a tick late has missed is reported as ended, with its kind",
        arguments: preludes
    )
    func missedByALateLook(_ prelude: [Int]) {
        for lateness in [5_000, 20_000, 49_000] {
            for phase in stride(from: 0, to: 50_000, by: 3_000) {
                let life = ThresholdRun.Life(departure: 1_000_000, before: prelude, length: 252_000, after: [20])
                let run = ThresholdRun([life], firstRound: 950_000 + phase, lateness: lateness)
                let about: Comment = "\(lateness) µs late, phase \(phase)"
                #expect(run.told[0].count == 1 && run.told[0].first?.category == .blocked, about)
            }
        }
    }

    @Test("Each of many loops is looked at by its threshold; there are no other looks besides one per tick")
    func manyLoops() {
        for seed in 1...60 {
            var random = SplitMix64(seed: UInt64(seed))
            let lives = (0..<40).map { _ in
                ThresholdRun.Life(
                    departure: 1_000_000 + Int.random(in: 0..<2_000_000, using: &random),
                    before: Self.preludes.randomElement(using: &random) ?? [],
                    length: Int.random(in: 1_000...320_000, using: &random),
                    after: [20]
                )
            }
            let run = ThresholdRun(lives)
            for (life, told) in zip(lives, run.told) where life.length >= 250_000 {
                Self.check(told, life, "seed \(seed): \(life)")
            }
            let ticks = (run.end - 1_000_000) / 50_000 + 1
            let long = lives.filter { $0.standing.upperBound - $0.departure >= 200_000 }.count
            #expect(run.looks <= ticks + long, "seed \(seed): \(run.looks) looks in \(ticks) ticks")
        }
    }

    @Test("Short callouts are no stall, whenever they come")
    func shortCallouts() {
        for phase in stride(from: 0, to: 50_000, by: 1_000) {
            let life = ThresholdRun.Life(departure: 1_000_000, before: [60_000], length: 120_000, after: [50_000])
            #expect(ThresholdRun([life], firstRound: 950_000 + phase).told == [[]])
        }
    }
}

@Suite("When to take another stack sample")
struct SamplePaceTests {
    @Test(
        "The interval of samples grows: a minute has few more than a second, a day few more than a minute",
        arguments: [MonotonicInstant(nanoseconds: 0), nil]
    )
    func growingDistance(start: MonotonicInstant?) {
        func count(_ seconds: Int) -> Int {
            var (pace, count, time) = (SamplePace(start: start), 0, 0)
            while time < seconds * 1_000 {
                time += 50
                let now = MonotonicInstant(nanoseconds: UInt64(time) * 1_000_000)
                guard pace.isDue(at: now, least: .milliseconds(50)) else { continue }
                pace.note(now)
                count += 1
            }
            return count
        }
        #expect((5...12).contains(count(1)))
        #expect(count(60) <= 32)
        #expect(count(3_600) <= 52)
    }
}
