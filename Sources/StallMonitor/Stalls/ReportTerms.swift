import RunLoopKit
package import StackCapture
import StallDetection
import StallDiagnosis
package import StallReports

// Converts the monitor's values to the form in reports.

extension StallCategory {
    /// The name in reports.
    var kind: StallKind {
        switch self {
        case .blocked: .blocked
        case .congested: .congested
        case .repeated: .repeated
        }
    }
}

extension RunRecord.LengthCount {
    /// Groups by powers of ten, from 10 µs to 10 s. Nil without a turn.
    static func of(_ histogram: TurnHistogram) -> [Self]? {
        guard histogram.longest > 0 else { return nil }
        let bounds: [UInt64] = [
            10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000,
        ]
        let counts = zip(bounds.map { Int64($0) } + [nil], histogram.counts(upTo: bounds))
        return counts.compactMap { $1 > 0 ? .init(upToNs: $0, count: $1) : nil }
    }
}

extension TurnDurations {
    /// Nil without a turn.
    init?(_ histogram: TurnHistogram) {
        guard histogram.longest > 0 else { return nil }
        self.init(
            count: histogram.count,
            p50Ns: Int64(clamping: histogram.length(ofShare: 0.5)),
            p99Ns: Int64(clamping: histogram.length(ofShare: 0.99)),
            maxNs: Int64(clamping: histogram.longest)
        )
    }
}

extension LoopPhase {
    /// The name of the activity in reports.
    var reportName: String {
        switch self {
        case .idle: "idle"
        case .entry: "entry"
        case .beforeTimers: "before_timers"
        case .beforeSources: "before_sources"
        case .beforeWaiting: "before_waiting"
        case .waiting: "waiting"
        case .afterWaiting: "after_waiting"
        case .exit: "exit"
        }
    }
}

extension CapturedStack.Method {
    package var reportName: CaptureMethod {
        switch self {
        case .quiet: .quiet
        case .signal: .signal
        case .stopped: .stopped
        }
    }
}

extension CapturedStack.Frame.Found {
    package var origin: FrameOrigin {
        switch self {
        case .register: .programCounter
        case .unwindTable: .unwindTable
        case .instructions: .instructions
        case .framePointer: .framePointer
        case .scan: .stackScan
        }
    }
}

extension AsyncCallers.End {
    package var reportName: AsyncEnd {
        switch self {
        case .task: .task
        case .asyncLet: .asyncLet
        case .taskGroup: .taskGroup
        case .limit: .limit
        case .unknown: .unknown
        }
    }
}

extension CapturedStack.Truncation {
    /// Why the outer frames are missing.
    package var sentence: String {
        switch self {
        case .timeLimit: "The stack has too many frames to follow them all: the outer ones are missing."
        case .copyLimit: "The stack leads out of what could be copied of it: the outer frames are missing."
        case .noUnwindTable: "The outer frames are missing: code without an unwind table is in the way."
        case .badFrame: "The outer frames are missing: the next one makes no sense."
        }
    }
}

extension StallReport.SystemCall {
    package init(_ call: SystemCall) {
        self.init(
            number: call.number,
            name: call.name,
            arguments: call.arguments.map { Address(UInt64($0)) }
        )
    }
}

extension StallReport.Evidence {
    init(_ window: EvidenceWindow, _ waits: WaitProfile) {
        self.init(
            cpuNs: window.cpu.nanoseconds,
            runDelayNs: window.runDelay.nanoseconds,
            windowNs: window.length.nanoseconds,
            majorFaults: Int64(clamping: window.majorFaults),
            userNs: window.cpuParts?.user.nanoseconds,
            systemNs: window.cpuParts?.system.nanoseconds,
            blockIONs: window.blockIO?.nanoseconds,
            processors: window.supply.map(StallReport.Processors.init),
            sampled: StallReport.SampledShares(waits)
        )
    }
}

// Findings about a wait, in the form in reports.

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
            periods: throttling.map { Int64(clamping: $0.counts.periods) },
            throttledPeriods: throttling.map { Int64(clamping: $0.counts.throttledPeriods) },
            throttledNs: throttling.map { Int64(clamping: $0.counts.throttledNanoseconds) },
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
        func percent(_ part: Duration) -> Int { Int(saturating: (100 * (part / waits.total)).rounded()) }
        self.init(
            samples: waits.samples,
            running: percent(waits.running),
            calling: percent(waits.calling),
            faulting: percent(waits.faulting)
        )
    }
}

extension [StallReport.Stack] {
    /// The innermost named function in which a running thread was found for longest, over all its stacks. Nil if it is unknown
    /// because the server's own code on those stacks has no name: otherwise a helper of the runtime would be reported.
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
