import CPeers
import Foundation

/// The part that is easier to write in Swift with Foundation: blocks. The rest is in C, see `cf_turns` and the similar functions.
enum FoundationLoop {
    static func blocks(_ count: Int) -> Outcome {
        let done = Done()
        let opened = unsafe cf_open()
        // Safe: `perform` is CFRunLoopPerformBlock, which any thread may call.
        nonisolated(unsafe) let loop = RunLoop.current
        nonisolated(unsafe) let handle = unsafe opened
        let outcome = fromFourThreads(
            count,
            enqueue: {
                unsafe loop.perform {
                    done.count += 1
                    if done.count == count { unsafe cf_stop(handle) }
                }
                unsafe cf_wake_up(handle)
            },
            {
                unsafe cf_run(handle)
                return done.count
            }
        )
        unsafe cf_close(opened)
        return outcome
    }

    /// Unchecked: only the loop's thread accesses it.
    private final class Done: @unchecked Sendable {
        var count = 0
    }
}
