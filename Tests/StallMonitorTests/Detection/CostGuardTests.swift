import RunLoopKit
import StackCapture
import Testing

@testable import StallMonitor

@Suite("The cost of captures is charged to the budget")
struct CostGuardTests {
    private let ledger = WatchdogLedger()
    private let notices = Mailbox<StallNotice>(capacity: 100)

    /// With unlimited CPU time, and 10 ms for holding threads.
    private func makeGuard() -> CostGuard {
        let limits = StallMonitor.CostLimits(
            processorShare: 1,
            processorBurst: .seconds(3600),
            heldShare: 1e-6,
            heldBurst: .milliseconds(10)
        )
        return CostGuard(limits: limits, meter: CostMeter(), notices: notices, ledger: ledger)
    }

    private func stack(held: Duration) -> CapturedStack {
        let cost = CapturedStack.Cost(
            heldNanoseconds: UInt64(held.nanoseconds),
            unwindNanoseconds: 1,
            bytesCopied: 1
        )
        return CapturedStack(frames: [], method: .signal, cost: cost)
    }

    private func isStack(_ outcome: StackOutcome?) -> Bool {
        if case .captured = outcome { true } else { false }
    }

    private var state: CostBudget.State? { ledger.snapshot.budget?.state }

    @Test("The time a stall's thread was held is charged, until captures stop; that is reported")
    func detections() throws {
        var costs = makeGuard()
        var told: [StallMonitorError.Code] = []
        for round in 1...3 {
            let outcome = costs.detection(at: .now) { .captured(stack(held: .milliseconds(4))) }
            #expect(isStack(outcome), "\(round)")
            costs.update(at: .now)
        }
        #expect(state == .stopped)
        guard case .unavailable(let reason) = costs.detection(at: .now, { .captured(stack(held: .zero)) }) else {
            return #expect(Bool(false), "a stack was taken")
        }
        #expect(reason.contains("watched threads held for 0.0001 % of the time"))
        for case .fault(let error) in notices.take() ?? [] { told.append(error.code) }
        #expect(told == [.capturesStopped])
    }

    @Test("Samples and lock owners are charged, too")
    func samplesAndOthers() {
        var costs = makeGuard()
        #expect(isStack(costs.sample(at: .now) { .captured(stack(held: .milliseconds(6))) }))
        costs.update(at: .now)
        #expect(state == .thinned)
        _ = costs.meter.measure(
            { [stack(held: .milliseconds(3)), stack(held: .milliseconds(3))] },
            costs: { $0.map(\.cost) }
        )
        costs.update(at: .now)
        #expect(state == .stopped)
    }

    @Test("A cost is charged when it was incurred, not when the next look finds it")
    func quietTime() {
        let limits = StallMonitor.CostLimits(
            processorShare: 1,
            processorBurst: .seconds(3600),
            heldShare: 0.001,
            heldBurst: .milliseconds(10)
        )
        let meter = CostMeter()
        var costs = CostGuard(limits: limits, meter: meter, notices: notices, ledger: ledger)
        _ = meter.measure({ [stack(held: .milliseconds(12))] }, costs: { $0.map(\.cost) })
        costs.update(at: .now + .seconds(3600))
        #expect(state == .full)
        notices.add(.checkpoint)
        for case .fault(let error) in notices.take() ?? [] { Issue.record("\(error)") }
    }

    @Test("A failed capture held no thread and is charged only its CPU time")
    func failures() {
        var costs = makeGuard()
        for _ in 0..<100 { _ = costs.detection(at: .now) { .failed(CaptureError(.threadGone)) } }
        costs.update(at: .now)
        #expect(state == .full)
    }
}
