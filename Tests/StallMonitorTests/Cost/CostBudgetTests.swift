import RunLoopKit
import Testing

@testable import StallMonitor

/// A budget of 1 % of a CPU and a burst of one second, on a simulated clock.
@Suite("The budget for the monitor's own cost")
struct CostBudgetTests {
    private static let limits = StallMonitor.CostLimits(
        processorShare: 0.01,
        processorBurst: .seconds(1),
        heldShare: 0.001,
        heldBurst: .milliseconds(10)
    )
    private let run = Run()

    /// A budget, its clock, and what was spent.
    private final class Run {
        var now = MonotonicInstant(nanoseconds: 1_000_000_000_000)
        var spent = CostBudget.Spent()
        var budget: CostBudget

        init() {
            budget = CostBudget(CostBudgetTests.limits, at: MonotonicInstant(nanoseconds: 1_000_000_000_000))
        }

        func spend(milliseconds: UInt64 = 0, held: Duration = .zero, after rest: Duration = .zero) {
            now = now + rest
            spent.processor += milliseconds * 1_000_000
            spent.held += UInt64(held.nanoseconds)
            budget.charge(spent, at: now)
        }

        /// How many of `count` samples are permitted.
        func samples(_ count: Int) -> Int {
            (0..<count).count { _ in budget.permits(.sample, at: now) }
        }

        func permitsDetection() -> Bool { budget.permits(.detection, at: now) }
    }

    @Test("Samples thin out at half of the budget and more at three quarters; then all captures stop")
    func thins() {
        #expect(run.samples(16) == 16)
        run.spend(milliseconds: 490)
        #expect(run.samples(16) == 16 && run.budget.account.state == .full)
        run.spend(milliseconds: 100)
        #expect(run.samples(16) == 4 && run.permitsDetection())
        run.spend(milliseconds: 200)
        #expect(run.samples(16) == 2 && run.permitsDetection())
        run.spend(milliseconds: 300)
        #expect(run.budget.account.state == .stopped)
        #expect(run.samples(16) == 0 && !run.permitsDetection())
        #expect(run.budget.account.stops == 1)
        #expect(run.budget.account.skippedSamples == 12 + 14 + 16 && run.budget.account.skippedStacks == 1)
    }

    @Test(
        "After a stop one capture is permitted once a quarter is available; if it is cheap, more follow"
    )
    func halfOpen() {
        run.spend(milliseconds: 1000)
        run.spend(after: .seconds(24))
        #expect(run.budget.account.state == .stopped)
        run.spend(after: .seconds(2))
        #expect(run.budget.account.state == .trial)
        #expect(run.samples(4) == 0, "the one capture is for a stall, not for a sample")
        #expect(run.permitsDetection() && !run.permitsDetection())
        run.spend(milliseconds: 10, after: .seconds(1))
        #expect(run.budget.account.state == .trial, "the bill may still come")
        run.spend(after: .seconds(1))
        #expect(run.budget.account.state == .thinned && run.permitsDetection())
        run.spend(after: .seconds(60))
        #expect(run.budget.account.state == .full && run.samples(8) == 8)
        #expect(run.budget.account.stops == 1)
    }

    @Test("An expensive trial stops captures again; it counts as the same stop")
    func failedTrial() {
        run.spend(milliseconds: 1000)
        run.spend(after: .seconds(30))
        #expect(run.permitsDetection())
        run.spend(milliseconds: 400, after: .milliseconds(10))
        #expect(run.budget.account.state == .stopped && !run.permitsDetection())
        run.spend(after: .seconds(5))
        #expect(run.budget.account.state == .stopped && run.budget.account.stops == 1)
    }

    @Test("The time for which threads are held has its own budget")
    func held() {
        run.spend(held: .milliseconds(6))
        #expect(run.budget.account.state == .thinned)
        run.spend(held: .milliseconds(5))
        #expect(run.budget.account.state == .stopped)
        run.spend(after: .seconds(20))
        #expect(run.budget.account.state == .full, "0.1 % of 20 s are 20 ms")
    }

    @Test("The time at which nothing is restricted any more is known beforehand", arguments: [false, true])
    func recovery(hasTried: Bool) {
        run.spend(milliseconds: 1000)
        if hasTried {
            // What the trial may use is there, so nothing but the time in which its cost becomes known is missing.
            run.spend(after: .seconds(74))
            #expect(run.permitsDetection())
        }
        let rest = run.budget.fullAt - run.now
        #expect(hasTried ? rest == .seconds(2) : rest >= .seconds(75) && rest <= .milliseconds(75_002))
        run.spend(after: rest - .milliseconds(10))
        #expect(run.budget.account.state == .trial)
        run.spend(after: .milliseconds(10))
        #expect(run.budget.account.state == .full)
    }

    @Test("The debt of one large cost is limited to what one burst's time pays")
    func boundedDebt() {
        run.spend(milliseconds: 3_600_000)
        run.spend(after: .seconds(126))
        #expect(run.budget.account.state == .trial)
    }

    @Test("Times per state are counted, including the current state")
    func account() {
        run.spend(milliseconds: 600)
        run.spend(milliseconds: 500, after: .seconds(5))
        run.spend(after: .seconds(30))
        let account = run.budget.account.upToDate(at: run.now + .seconds(1))
        #expect(account.thinned == .seconds(5))
        #expect(account.stopped == .seconds(31) && account.state == .trial)
    }

    @Test("During a minute of endless stalls the cost share is kept")
    func share() {
        var permitted = 0
        // Each capture, with all that follows from it, costs 50 ms; one is requested every 100 ms for an hour.
        for _ in 0..<36_000 {
            let isPermitted = run.permitsDetection()
            permitted += isPermitted ? 1 : 0
            run.spend(milliseconds: isPermitted ? 50 : 0, after: .milliseconds(100))
        }
        let spent = permitted * 50
        // 1 % of an hour is 36 s, and the burst is 1 s; most of it is used.
        #expect(spent <= 37_100 && spent > 25_000, "\(spent) ms")
    }
}
