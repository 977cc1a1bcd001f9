import RunLoopKit
import StallDiagnosis
import StallReports

// What was found out of a wait, in the report's terms.

extension StallReport.SystemCall {
    init(_ site: WaitSite, _ descriptors: [StallReport.Descriptor]) {
        self.init(site.call)
        decoded = site.decoded.arguments
        self.descriptors = descriptors.isEmpty ? nil : descriptors
    }
}

extension StallReport.Processors {
    init(_ supply: SupplyWindow) {
        let throttling = supply.throttling
        self.init(
            quotaPercent: throttling?.quotaPercent,
            periods: throttling.map { Int64(clamping: $0.periods) },
            throttledPeriods: throttling.map { Int64(clamping: $0.throttledPeriods) },
            throttledNs: throttling.map { Int64(clamping: $0.nanoseconds) },
            cgroupPressureNs: supply.cgroupPressure?.nanoseconds,
            systemPressureNs: supply.systemPressure?.nanoseconds,
            stealNs: supply.steal?.nanoseconds,
            load: supply.after.load?.average,
            runnable: supply.after.load?.runnable,
            count: supply.processors,
            allowed: supply.allowed
        )
    }
}

extension StallReport.SampledShares {
    /// Nil without samples.
    init?(_ waits: WaitProfile) {
        guard waits.samples > 0, waits.total > .zero else { return nil }
        func percent(_ part: Duration) -> Int { Int(100 * (part / waits.total)) }
        self.init(
            samples: waits.samples,
            running: percent(waits.running),
            calling: percent(waits.calling),
            faulting: percent(waits.faulting)
        )
    }
}

extension [StallReport.Stack] {
    /// The function that a running thread was found in for longest, over all of them: the innermost with a name. Nil where that is
    /// not known, because the server's own code on those stacks has no name: a helper of the runtime's would stand for it.
    var hottestFunction: String? {
        var times: [String?: Int64] = [:]
        for stack in self where stack.role == .stalled && (stack.method == .signal || stack.method == .stopped) {
            guard let innermost = stack.frames.first(where: { $0.function != nil || $0.own }) else { continue }
            let caller = stack.frames.first { $0.own }
            let function = caller.map { $0.function == nil } == true ? nil : innermost.function
            let (sum, isOver) = times[function, default: 0].addingReportingOverflow(stack.sampledNs ?? 0)
            times[function] = isOver ? .max : sum
        }
        let most = times.values.max()
        return times.filter { $0.value == most }.keys.compactMap { $0 }.min()
    }
}
