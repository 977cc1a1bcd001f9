import Dispatch
import StallMonitor
import StallReports
import Synchronization

/// Collects a monitor's events, and lets a test wait for one.
final class EventLog: Sendable {
    private let events = Mutex<[StallEvent]>([])
    private let arrived = DispatchSemaphore(value: 0)

    var handler: @Sendable (StallEvent) -> Void {
        { [self] event in
            events.withLock { $0.append(event) }
            arrived.signal()
        }
    }

    var began: [StallReport] { reports { if case .began(let report) = $0 { report } else { nil } } }
    var ended: [StallReport] { reports { if case .ended(let report) = $0 { report } else { nil } } }
    var suppressed: [SuppressedStall] {
        events.withLock { $0.compactMap { if case .suppressed(let stall) = $0 { stall } else { nil } } }
    }
    var faults: [StallMonitorError] {
        events.withLock { $0.compactMap { if case .fault(let error) = $0 { error } else { nil } } }
    }

    var mended: [StallMonitorError.Code] {
        events.withLock { $0.compactMap { if case .mended(let error) = $0 { error.code } else { nil } } }
    }

    /// The same, while the loop works for 30 ms again and again.
    func wait(working worker: StallingLoop, until condition: (EventLog) -> Bool) -> Bool {
        for _ in 0..<1000 where !condition(self) { worker.perform { _ = stallByComputing(30) } }
        return condition(self)
    }

    /// Waits until a condition holds, checking at each event. False after two minutes, which only ends a hang: what
    /// tests wait for takes less than a second of a machine's work.
    func wait(until condition: (EventLog) -> Bool) -> Bool {
        let deadline = DispatchTime.now() + .seconds(120)
        while !condition(self) {
            guard arrived.wait(timeout: deadline) == .success else { return condition(self) }
        }
        return true
    }

    private func reports(_ pick: (StallEvent) -> StallReport?) -> [StallReport] {
        events.withLock { $0.compactMap(pick) }
    }
}
