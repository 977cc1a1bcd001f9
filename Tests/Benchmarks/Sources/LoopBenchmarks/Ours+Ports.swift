import CPeers
import RunLoopKit
import RunLoopPorts

/// Messages between the calling thread and a worker, through ports.
extension Ours {
    /// A request and its reply.
    static func requests(_ count: Int, size: Int) -> Outcome {
        attempt {
            let message = payload(size)
            let port = LocalPort { request in attempt { try request.reply(message) } }
            let worker = try WorkerThread(name: "answers")
            defer { end(worker) }
            try worker.loop.add(port)
            let remote = try RemotePort(to: port)
            // The port stays in the loop, as in programs that make requests often.
            try EventRunLoop.current.add(remote)
            return .timing {
                (0..<count).reduce(0) { done, _ in done + (attempt { try remote.request(message) }.has(size) ? 1 : 0) }
            }
        }
    }

    /// A message to the worker's port, whose handler sends one to the port of this side.
    static func messageTrips(_ count: Int, size: Int) -> Outcome {
        attempt {
            let message = payload(size)
            let (loop, worker) = (EventRunLoop.current, try WorkerThread(name: "answers"))
            defer { end(worker) }
            let left = Countdown(count, on: loop)
            let trip = Trip()
            let here = LocalPort { received in
                guard received.has(size) else { return }
                left.countOne()
                if !left.isOver { attempt { try trip.there?.send(message) } }
            }
            let back = try RemotePort(to: here)
            let there = LocalPort { _ in attempt { try back.send(message) } }
            trip.there = try RemotePort(to: there)
            try loop.add(here)
            try worker.loop.add(there)
            return .timing {
                attempt { try trip.there?.send(message) }
                while !left.isOver { loop.run() }
                return left.done
            }
        }
    }

    /// Messages from another thread, at the maximum rate of the receiver.
    static func messageFlood(_ count: Int, size: Int) -> Outcome {
        attempt {
            let message = payload(size)
            let loop = EventRunLoop.current
            let left = Countdown(count, on: loop)
            let port = LocalPort { if $0.has(size) { left.countOne() } }
            try loop.add(port)
            let remote = try RemotePort(to: port)
            let worker = try WorkerThread(name: "sends")
            defer { end(worker) }
            return .timing {
                worker.loop.perform { for _ in 0..<count { attempt { try remote.send(message, timeout: nil) } } }
                while !left.isOver { loop.run() }
                return left.done
            }
        }
    }

    private static func payload(_ size: Int) -> PortMessage {
        PortMessage(components: [[UInt8](repeating: 1, count: size)])
    }

    private static func end(_ worker: WorkerThread) {
        worker.stop()
        worker.join()
    }

    /// After an error there is nothing to measure.
    private static func attempt<Result>(_ body: () throws -> Result) -> Result {
        do { return try body() } catch { fatalError("\(error)") }
    }

    /// Unchecked: only one thread accesses it.
    private final class Trip: @unchecked Sendable {
        var there: RemotePort?
    }
}

extension ReceivedMessage {
    /// Whether it was received with its full size.
    fileprivate func has(_ size: Int) -> Bool { withBytes(of: 0) { $0.byteCount } == size }
}
