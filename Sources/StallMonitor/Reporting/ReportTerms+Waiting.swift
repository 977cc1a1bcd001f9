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

extension StallReport {
    /// The innermost function with a name of the stack that was seen for longest among those of a running thread. Nil where that is the
    /// culprit itself, or has no name.
    var hottestFunction: String? {
        let running = stacks.filter { $0.role == .stalled && $0.method == .signal }
        let hottest = running.max { ($0.sampledNs ?? 0) < ($1.sampledNs ?? 0) }
        return hottest?.frames.first { $0.function != nil }?.function
    }
}
