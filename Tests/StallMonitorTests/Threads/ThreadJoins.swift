import RunLoopKit

@testable import StallMonitor

// Waits for an end by a moment, for tests.

extension MonitorThread {
    func join(by deadline: MonotonicInstant) -> Bool {
        var patience = max(.zero, deadline - .now)
        return join(within: &patience)
    }
}

extension ThreadOnDemand {
    func join(by deadline: MonotonicInstant) -> Bool {
        var patience = max(.zero, deadline - .now)
        return join(within: &patience)
    }
}

extension ReportWriter {
    func join(by deadline: MonotonicInstant) -> Bool {
        var patience = max(.zero, deadline - .now)
        return join(within: &patience)
    }
    func wait(until deadline: MonotonicInstant) -> Bool {
        var patience = max(.zero, deadline - .now)
        return wait(within: &patience)
    }
}
