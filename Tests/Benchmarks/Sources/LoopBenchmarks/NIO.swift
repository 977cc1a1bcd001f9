import CPeers
import Dispatch
import NIOCore
import NIOPosix

/// SwiftNIO's event loop. It always runs on a thread of its group.
enum NIO {
    private static func withLoop(_ body: (any EventLoop) -> Outcome) -> Outcome {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        defer { shutDown(group) }
        return body(group.next())
    }

    private static func shutDown(_ group: MultiThreadedEventLoopGroup) {
        do {
            try group.syncShutdownGracefully()
        } catch {
            fatalError("\(error)")
        }
    }

    /// Unchecked: only its loop accesses it until `ended` is signalled.
    private final class Side: @unchecked Sendable {
        let loop: any EventLoop
        let count: Int
        let ended = DispatchSemaphore(value: 0)
        var done = 0
        var other: Side?

        init(_ loop: any EventLoop, _ count: Int) {
            self.loop = loop
            self.count = count
        }

        /// Returns false when all operations are done.
        func countOne() -> Bool {
            done += 1
            if done == count { ended.signal() }
            return done < count
        }

        func executeSelf() {
            loop.execute { if self.countOne() { self.executeSelf() } }
        }

        func executeOther() {
            guard let other else { return }
            other.loop.execute { if other.countOne() { other.executeOther() } }
        }

        func fireAgain() {
            loop.scheduleTask(in: .zero) { if self.countOne() { self.fireAgain() } }
        }

        func waitForEnd() -> Int {
            ended.wait()
            return done
        }
    }

    static func turns(_ count: Int) -> Outcome {
        withLoop { loop in
            let side = Side(loop, count)
            return .timing {
                side.executeSelf()
                return side.waitForEnd()
            }
        }
    }

    static func roundTrips(_ count: Int) -> Outcome {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        defer { shutDown(group) }
        let here = Side(group.next(), count)
        let there = Side(group.next(), count + 1)
        here.other = there
        there.other = here
        defer { here.other = nil }
        return .timing {
            here.executeOther()
            return here.waitForEnd()
        }
    }

    static func blocks(_ count: Int) -> Outcome {
        withLoop { loop in
            let side = Side(loop, count)
            return fromFourThreads(count, enqueue: { loop.execute { _ = side.countOne() } }) {
                side.waitForEnd()
            }
        }
    }

    // MARK: - Timers

    static func oneShots(_ count: Int) -> Outcome {
        withLoop { loop in
            let side = Side(loop, count)
            return .timing {
                loop.execute { for _ in 0..<count { loop.scheduleTask(in: .zero) { _ = side.countOne() } } }
                return side.waitForEnd()
            }
        }
    }

    static func randomTimers(_ count: Int) -> Outcome {
        var delays = [UInt64](repeating: 0, count: count)
        unsafe peer_random_delays(&delays, UInt64(count))
        return withLoop { [delays] loop in
            let side = Side(loop, count / 2)
            // The loop sleeps inside the task, so that it fires no timer before the measurement continues.
            let coming = wait(
                for: loop.submit {
                    let outcome = Outcome.timing { addAndCancel(delays, on: loop, side) }
                    peer_sleep_until_due()
                    return outcome
                }
            )
            return coming + .timing { side.waitForEnd() }
        }
    }

    private static func addAndCancel(_ delays: [UInt64], on loop: any EventLoop, _ side: Side) -> Int {
        let start = NIODeadline.now()
        let timers = delays.map { delay in
            loop.scheduleTask(deadline: start + .milliseconds(Int64(delay))) { _ = side.countOne() }
        }
        for index in stride(from: 0, to: timers.count, by: 2) { timers[index].cancel() }
        return (timers.count + 1) / 2
    }

    private static func wait<Value: Sendable>(for future: EventLoopFuture<Value>) -> Value {
        do {
            return try future.wait()
        } catch {
            fatalError("\(error)")
        }
    }

    static func fires(_ count: Int, idle: Int) -> Outcome {
        withLoop { loop in
            let side = Side(loop, count)
            let others = wait(
                for: loop.submit {
                    (0..<idle).map { loop.scheduleTask(in: .seconds(3600) + .milliseconds(Int64($0))) {} }
                }
            )
            defer { _ = others }
            return .timing {
                side.fireAgain()
                return side.waitForEnd()
            }
        }
    }
}
