import CLoopHooks
import RunLoopKit

/// How the hooks publish a heartbeat: called on the loop's thread, around its waits, with the heartbeat as an opaque pointer.
///
/// Nothing here retains, allocates or takes a lock but for the watcher's own at the first departure that it asked for.
enum HeartbeatPublisher {
    /// For C, for ever. Written once, before anybody has its address.
    nonisolated(unsafe) static let shared: UnsafePointer<loop_hooks_publisher> = {
        let publisher = UnsafeMutablePointer<loop_hooks_publisher>.allocate(capacity: 1)
        unsafe publisher.initialize(
            to: loop_hooks_publisher(
                rest: { unsafe HeartbeatPublisher.publish(.waiting, $0) },
                leave: { unsafe HeartbeatPublisher.publish(.beforeTimers, $0) },
                turn: { unsafe HeartbeatPublisher.publish(.beforeTimers, $0) },
                end: { unsafe HeartbeatPublisher.end($0) }
            )
        )
        return unsafe UnsafePointer(publisher)
    }()

    /// For the hooks to keep until they end it.
    static func handOver(_ heartbeat: LoopHeartbeat) -> UnsafeMutableRawPointer {
        // Once at leisure, here: in a debug build the first use has the runtime make types, with locks and allocations.
        heartbeat.publish(.idle)
        return unsafe Unmanaged.passRetained(heartbeat).toOpaque()
    }

    /// A departure begins a turn, and so does each look that does not wait.
    @inline(__always)
    private static func publish(_ phase: LoopPhase, _ heartbeat: UnsafeMutableRawPointer) {
        // The hooks hold it until its end.
        unsafe Unmanaged<LoopHeartbeat>.fromOpaque(heartbeat)._withUnsafeGuaranteedRef { $0.publish(phase) }
    }

    private static func end(_ heartbeat: UnsafeMutableRawPointer) {
        unsafe Unmanaged<LoopHeartbeat>.fromOpaque(heartbeat).takeRetainedValue().end()
    }
}
