import RunLoopKit
import StackCapture

extension StackSource {
    /// Whom the loop's thread waits for, if its stack was just captured in futex(2) and the loop has not moved since.
    func lock(
        holding loop: WatchedThing,
        at place: LoopPlace,
        _ stack: StackOutcome
    ) -> LockFinding? {
        guard followsLocks, let capturer, let thread = loop.thread, let captured = stack.captured else { return nil }
        let finding = LockProbe(capturer: capturer).follow(thread.id, capturedIn: captured.systemCall)
        return place.isThat(of: loop.heartbeat) ? finding : nil
    }
}
