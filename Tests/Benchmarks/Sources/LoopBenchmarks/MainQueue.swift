import CPeers
import Dispatch
import Foundation
import RunLoopKit

/// Round trips from another thread through `DispatchQueue.main`, with one loop or another on the main thread. The driver is the
/// same for all; they differ in the loop that serves the queue.
enum MainQueue {
    static func byOurs(_ count: Int) -> Outcome {
        roundTrips(count, serve: { EventRunLoop.main.run() }, stop: { EventRunLoop.main.stop() })
    }

    static func byFoundation(_ count: Int) -> Outcome {
        roundTrips(count, serve: { cf_serve_main_queue() }, stop: { cf_stop_serving() })
    }

    static func byFloor(_ count: Int) -> Outcome {
        roundTrips(count, serve: { floor_serve_main_queue() }, stop: { floor_stop_serving() })
    }

    private static func roundTrips(_ count: Int, serve: () -> Void, stop: @escaping @Sendable () -> Void) -> Outcome {
        let driver = Driver()
        let ended = DispatchSemaphore(value: 0)
        let thread = Thread {
            // One trip before the measurement: after it the loop is running.
            driver.makeRoundTrip()
            driver.outcome = .timing {
                for _ in 0..<count { driver.makeRoundTrip() }
                return driver.done - 1
            }
            DispatchQueue.main.async { stop() }
            ended.signal()
        }
        thread.start()
        serve()
        ended.wait()
        return driver.outcome
    }

    /// Unchecked: during a trip only the main thread accesses `done`, after the semaphore only the driver.
    private final class Driver: @unchecked Sendable {
        private let answered = DispatchSemaphore(value: 0)
        private(set) var done = 0
        var outcome = Outcome(time: peer_time(), done: 0)

        func makeRoundTrip() {
            DispatchQueue.main.async {
                self.done += 1
                self.answered.signal()
            }
            answered.wait()
        }
    }
}
