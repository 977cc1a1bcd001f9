import RunLoopKit
import StackCapture

/// Where the watchdog gets stacks from.
struct StackSource: Sendable {
    /// Nil when the process can have no capturer, for the reason in `problem`.
    var capturer: StackCapturer?
    var problem = ""

    /// The stack of the loop's thread, if the loop still stands where `pulse` saw it once the stack is taken.
    func stack(of loop: any WatchableLoop, at pulse: LoopHeartbeat.Pulse) -> StackOutcome {
        guard let capturer else { return .unavailable(problem) }
        guard let thread = loop.thread else { return .unavailable("The loop's thread is not known.") }
        let result = capturer.capture(threadID: thread.id, stack: thread.stack)
        guard loop.heartbeat.pulse == pulse else { return .raced }
        switch result {
        case .success(let stack): return .captured(stack)
        case .failure(let error): return .failed(error)
        }
    }
}
