import RunLoopKit
import StackCapture
import StallDetection
import StallDiagnosis
import StallReports

/// What the watchdog tells the reporter. Raw: names and sentences come later, on the reporter's thread.
enum StallNotice: Sendable {
    case began(StallObservation)
    case grew(Int, StallSpan)
    /// What a stall of several turns or callouts is made of by now.
    case counted(Int, StallReport.BusyTime)
    /// What the stalled thread was at later.
    case sampled(Int, StackSample)
    case ended(Int, StallSpan, EvidenceWindow?)
    /// Nobody looks any more, and the stall goes on, as far as is known.
    case abandoned(Int, StallSpan, EvidenceWindow?)
    /// The process it stalled in has ended, as was seen from outside.
    case died(Int, StallSpan)
    /// The process has crashed meanwhile, and its crash handler is at work. The stall has the length told last.
    case crashing(Int)
    /// The process ends as soon as this is written.
    case lastResort(Int, LastWords)
    /// All that was noticed before has been told, once this is read.
    case settled(@Sendable () -> Void)
    /// Time to bring the run record up to date.
    case checkpoint
    /// The monitor cannot do part of its work.
    case fault(StallMonitorError)
    /// The monitor has switched itself off.
    case disarmed(StallMonitorError)
    /// It can again.
    case mended(StallMonitorError)
}

extension StallNotice: QueuedMessage {
    var role: QueueRole {
        switch self {
        case .began(let observation): .opens(observation.number)
        case .grew(let number, _): .updates(number)
        case .counted(let number, _): .updates(number, .counts)
        case .sampled(let number, _), .crashing(let number), .lastResort(let number, _): .adds(number)
        case .ended(let number, _, _), .abandoned(let number, _, _), .died(let number, _): .closes(number)
        case .checkpoint: .alone(latestIsEnough: true)
        default: .alone(latestIsEnough: false)
        }
    }

    var kind: String {
        switch self {
        case .sampled: "samples"
        case .grew: "lengths"
        default: "other"
        }
    }

    var bytes: Int {
        switch self {
        case .began(let observation): 1024 + observation.allSamples.reduce(0) { $0 + $1.bytes }
        case .sampled(_, let sample): 128 + sample.bytes
        default: 256
        }
    }

    /// The stall without its stacks: that it happened is worth more than where.
    var lightened: StallNotice? {
        guard case .began(var observation) = self, !observation.allSamples.isEmpty else { return nil }
        observation.stack = .unavailable("It was dropped: the reporter was too far behind to keep it in memory.")
        observation.samples = []
        (observation.others, observation.lock) = (nil, nil)
        observation.pool?.stacks = []
        observation.pool?.locks = []
        return .began(observation)
    }
}

extension StackSample {
    fileprivate var bytes: Int {
        256 + stack.frames.count * MemoryLayout<CapturedStack.Frame>.stride
            + (stack.asyncCallers?.addresses.count ?? 0) * MemoryLayout<UInt>.stride
    }
}
