import CLoopHooks
import RunLoopKit
import StallMonitor
import StallReports

/// A loop that was found by its waits. Its heartbeat is published by the hooks, on its thread.
final class FoundLoop: WatchableLoop {
    let label: String
    let heartbeat: LoopHeartbeat
    /// While it lives: a number can become another thread's.
    var thread: LoopThread? { heartbeat.hasEnded ? nil : known }
    private let known: LoopThread
    /// The hooks' number for it.
    private let slot: UInt32

    var type: WatchedType { .eventLoop }

    init(label: String, thread: LoopThread, heartbeat: LoopHeartbeat, slot: UInt32) {
        (self.label, known, self.heartbeat, self.slot) = (label, thread, heartbeat, slot)
    }

    func waitSet(inMode index: Int) -> Int32? {
        let set = loop_hooks_set(slot)
        return set >= 0 && !heartbeat.hasEnded ? set : nil
    }

    /// Whether another thread waits for its set, too.
    var sharesItsSet: Bool {
        let set = loop_hooks_set(slot)
        return set >= 0 && loop_hooks_count_waiting_for(set) > 1
    }

    /// Modes are not known of it.
    func modeName(at index: Int) -> String? { nil }
}
