import Locking
import RunLoopKit

/// The watches by loop. It keeps no loop alive.
final class WatchIndex: Sendable {
    private struct Entry: Sendable {
        weak let heartbeat: (any WatchedHeartbeat)?
        let watch: StallMonitor.Watch
    }

    private struct State: Sendable {
        var entries: [ObjectIdentifier: Entry] = [:]
        /// How many there may be before those of loops that are gone are looked for.
        var limit = 64
    }

    private let state = ForkSafeMutex(State())

    func enter(_ watch: StallMonitor.Watch, of heartbeat: any WatchedHeartbeat) {
        state.withLock { state in
            state.entries[ObjectIdentifier(heartbeat)] = Entry(heartbeat: heartbeat, watch: watch)
            guard state.entries.count > state.limit else { return }
            state.entries = state.entries.filter { $0.value.heartbeat?.hasEnded == false }
            state.limit = max(64, state.entries.count * 2)
        }
    }

    func watch(of heartbeat: any WatchedHeartbeat) -> StallMonitor.Watch? {
        state.withLock { state in
            state.entries[ObjectIdentifier(heartbeat)].flatMap { $0.heartbeat === heartbeat ? $0.watch : nil }
        }
    }

    /// Takes the watcher off every loop, in a fork's child. The lock may be held there for ever: then it is left at that.
    func leaveAll() {
        let heartbeats = state.withLockIfAvailable { $0.entries.values.compactMap(\.heartbeat) }
        heartbeats?.forEach { $0.detach() }
    }
}
