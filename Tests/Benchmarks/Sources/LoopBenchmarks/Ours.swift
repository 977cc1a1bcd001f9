import CPeers
import Dispatch
import Foundation
import RunLoopKit
import Synchronization

/// Counts down on one thread, and stops a loop at zero.
///
/// Unchecked: only the loop's thread accesses it while the loop runs.
final class Countdown: @unchecked Sendable {
    private(set) var done = 0
    private let count: Int
    private let loop: EventRunLoop

    init(_ count: Int, on loop: EventRunLoop) {
        self.count = count
        self.loop = loop
    }

    var isOver: Bool { done >= count }

    @inline(__always)
    func countOne() {
        done += 1
        if done == count { loop.stop() }
    }
}

/// RunLoopKit.
enum Ours {
    /// A source that signals itself.
    static func turns(_ count: Int) -> Outcome {
        let loop = EventRunLoop.current
        let left = Countdown(count, on: loop)
        let source = EventSource { source in
            source.signal()
            left.countOne()
        }
        loop.add(source)
        defer { source.invalidate() }
        source.signal()
        return run(loop, left)
    }

    static func run(_ loop: EventRunLoop, _ left: Countdown) -> Outcome {
        .timing {
            while !left.isOver { loop.run() }
            return left.done
        }
    }

    // MARK: - Round trips

    /// Signals and wakes the other side's source.
    static func roundTripsBySource(_ count: Int) -> Outcome {
        roundTrips(count) { loop, answer in
            let source = EventSource { _ in answer() }
            loop.add(source)
            return { source.signalAndWake() }
        }
    }

    /// Makes the other side perform a block.
    static func roundTripsByBlock(_ count: Int) -> Outcome {
        roundTrips(count) { loop, answer in
            loop.add(EventSource { _ in })
            return { loop.perform { answer() } }
        }
    }

    /// - Parameter open: Called on each side's thread, with the action that the side executes when it is called; returns the
    ///   function that calls the side.
    private static func roundTrips(
        _ count: Int,
        open: @escaping @Sendable (EventRunLoop, @escaping @Sendable () -> Void) -> @Sendable () -> Void
    ) -> Outcome {
        let here = EventRunLoop.current
        let left = Countdown(count, on: here)
        let sides = Sides()
        sides.callHere = open(here) {
            left.countOne()
            if !left.isOver { sides.callThere() }
        }
        let opened = DispatchSemaphore(value: 0)
        let ended = DispatchSemaphore(value: 0)
        let thread = Thread {
            sides.there = .current
            sides.callThere = open(.current) { sides.callHere() }
            opened.signal()
            EventRunLoop.current.run()
            ended.signal()
        }
        thread.start()
        opened.wait()
        let outcome = Outcome.timing {
            sides.callThere()
            while !left.isOver { here.run() }
            return left.done
        }
        sides.there?.stop()
        ended.wait()
        return outcome
    }

    /// Unchecked: written before the semaphore that starts the round, read after it.
    private final class Sides: @unchecked Sendable {
        var there: EventRunLoop?
        var callHere: @Sendable () -> Void = {}
        var callThere: @Sendable () -> Void = {}
    }

    // MARK: - Blocks

    static func blocks(_ count: Int) -> Outcome {
        let loop = EventRunLoop.current
        let left = Countdown(count, on: loop)
        let source = EventSource { _ in }
        loop.add(source)
        defer { source.invalidate() }
        return fromFourThreads(count, enqueue: { loop.perform { left.countOne() } }) { run(loop, left).done }
    }
}

/// Calls `enqueue` `count` times, from four threads, while `body` runs, and measures the time of both.
func fromFourThreads(_ count: Int, enqueue: @escaping () -> Void, _ body: () -> Int) -> Outcome {
    let context = unsafe Unmanaged.passRetained(Enqueue(call: enqueue))
    let producers = unsafe peer_start_producers(
        UInt64(count),
        { unsafe Unmanaged<Enqueue>.fromOpaque($0!).takeUnretainedValue().call() },
        context.toOpaque()
    )
    let outcome = Outcome.timing {
        unsafe peer_release_producers(producers)
        return body()
    }
    unsafe peer_join_producers(producers)
    unsafe context.release()
    return outcome
}

private final class Enqueue {
    let call: () -> Void
    init(call: @escaping () -> Void) { self.call = call }
}
