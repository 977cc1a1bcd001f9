import RunLoopKit
package import StackCapture
import StallDetection
import StallDiagnosis
package import StallReports

// The monitor's values in the report's terms.

extension StallSpan {
    /// The shortest and the longest length it can have had, nanoseconds.
    var bounds: (Int64?, Int64?) { (shortest.nanoseconds, longest.nanoseconds) }
}

extension StackOutcome {
    var captured: CapturedStack? {
        if case .captured(let stack) = self { stack } else { nil }
    }
}

extension Severity {
    /// Under a second a user notices, over five he is gone.
    init(duration: Duration) {
        switch duration {
        case ..<Duration.seconds(1): self = .warning
        case ..<Duration.seconds(5): self = .error
        default: self = .critical
        }
    }
}

extension LoopPhase {
    /// The activity's name in reports.
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
    var reportName: CaptureMethod {
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
    /// Why the outer frames are missing, for people.
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

/// Ties the monotonic clock to the wall clock at one moment.
struct WallClockAnchor {
    private let monotonic = MonotonicInstant.now
    private let wall = Timestamp.now()
    private let clocks = ClockOffsets.read()

    /// - Parameter sleptUntilNow: whether the machine's suspensions since the anchor came before `instant`; monotonic time does not
    ///   know of them.
    func time(of instant: MonotonicInstant, sleptUntilNow: Bool = false) -> Timestamp {
        let time = wall.advanced(byNanoseconds: (instant - monotonic).nanoseconds)
        guard sleptUntilNow, let clocks, let now = ClockOffsets.read() else { return time }
        return time.advanced(byNanoseconds: now.suspension(since: clocks)?.nanoseconds ?? 0)
    }
}

extension ContinuousClock {
    /// A result, and the time it took.
    func timed<Result>(_ work: () -> Result) -> (Result, Duration) {
        let start = now
        let result = work()
        return (result, now - start)
    }
}
