import RunLoopKit
import StallMonitor
import Synchronization

extension Scenario {
    /// Loops that rest for a long time, and loops that wait in unusual ways.
    static let idleLookAlikes: [Scenario] = [
        .lookAlike("idle", .traffic) { $0.rest(.seconds(3)) },
        .lookAlike("idle-worker", .traffic, on: .worker) { $0.rest(.seconds(2)) },
        .lookAlike("idle-after-work", .traffic, on: .mainActor) { stage in
            stage.run { stage.turn { sleepInHandler(.milliseconds(20)) } }
            stage.rest(.seconds(2))
        },
        .lookAlike("many-idle-loops", .traffic, on: .worker) { stage in
            let workers = try (0..<50).map { try WorkerThread(name: "idle-\($0)") }
            for worker in workers { try stage.monitor.watch(worker.loop) }
            stage.rest(.seconds(2))
            for worker in workers { worker.stop() }
        },
        .lookAlike("nested-run-idle", .traffic) { stage in
            stage.run {
                EventRunLoop.main.add(EventTimer(after: .seconds(60)) { _ in }, to: "nested")
                EventRunLoop.main.run(mode: "nested", for: .milliseconds(1_200))
            }
        },
        .lookAlike("nested-run-with-timer", .traffic, on: .worker) { stage in
            stage.run {
                let timer = EventTimer(every: .milliseconds(100)) { _ in stage.turn { sleepInHandler(.milliseconds(5)) }
                }
                EventRunLoop.current.add(timer, to: "nested")
                EventRunLoop.current.run(mode: "nested", for: .milliseconds(1_500))
                timer.invalidate()
            }
        },
        .lookAlike("loop-that-ended", .traffic, on: .worker) { stage in
            stage.run { stage.turn { sleepInHandler(.milliseconds(10)) } }
            stage.endWorker()
            stage.rest(.seconds(1))
        },
        // Between two runs of its loop a thread is free to do anything.
        .lookAlike("worker-outside-its-loop", .traffic, on: .worker) { stage in
            let (ready, over, loop) = (Gate(), Gate(), LoopOfThread())
            startThread(named: "own-thread") {
                loop.isCurrent()
                ready.open()
                EventRunLoop.current.add(EventTimer(every: .milliseconds(20)) { _ in }, to: .default)
                EventRunLoop.current.run(for: .milliseconds(300))
                sleepFor(.milliseconds(1_200))
                EventRunLoop.current.run(for: .milliseconds(300))
                over.open()
            }
            ready.wait()
            if let loop = loop.loop { try stage.monitor.watch(loop, label: "own") }
            over.wait()
        },
        .lookAlike("polling-loop", .traffic, on: .worker) { stage in
            let (ready, over, loop) = (Gate(), Gate(), LoopOfThread())
            startThread(named: "polling") {
                loop.isCurrent()
                EventRunLoop.current.add(EventTimer(every: .milliseconds(20)) { _ in }, to: .default)
                ready.open()
                let end = MonotonicInstant.now.advanced(by: .milliseconds(1_500))
                while MonotonicInstant.now < end {
                    EventRunLoop.current.run(for: .zero)
                    sleepFor(.microseconds(200))
                }
                over.open()
            }
            ready.wait()
            if let loop = loop.loop { try stage.monitor.watch(loop, label: "polling") }
            over.wait()
        },
    ]

    /// Work in pieces that are short enough.
    static let trafficLookAlikes: [Scenario] = [
        turns("short-turns", .milliseconds(40), 30, rest: .milliseconds(20), on: .mainLoop),
        turns("short-turns-worker", .milliseconds(40), 30, rest: .milliseconds(5), on: .worker),
        turns("short-turns-main-actor", .milliseconds(40), 30, rest: .milliseconds(10), on: .mainActor),
        turns("tiny-turns", .milliseconds(1), 500, rest: .milliseconds(2), on: .worker),
        // Each is just below the threshold, with ordinary turns in between.
        lonely("lonely-turns", .milliseconds(240), on: .mainLoop),
        lonely("lonely-turns-worker", .milliseconds(240), on: .worker),
        lonely("lonely-turns-main-actor", .milliseconds(235), on: .mainActor),
        .lookAlike("four-in-a-row", .traffic, on: .worker) { stage in
            // One fewer than a repeated stall needs.
            for _ in 0..<3 {
                for _ in 0..<4 { stage.run { stage.turn { sleepInHandler(.milliseconds(70)) } } }
                for _ in 0..<5 {
                    stage.rest(.milliseconds(20))
                    stage.run {}
                }
            }
        },
        .lookAlike("wake-ups", .traffic, on: .worker) { stage in
            let end = MonotonicInstant.now.advanced(by: .seconds(2))
            while MonotonicInstant.now < end {
                stage.loop.wakeUp()
                stage.rest(.microseconds(500))
            }
        },
        .lookAlike("busy-neighbours", .traffic, on: .mainLoop) { stage in
            let busy = BusyThreads(8)
            for _ in 0..<60 {
                stage.run { stage.turn { sleepInHandler(.milliseconds(1)) } }
                stage.rest(.milliseconds(40))
            }
            busy.stop()
        },
        .lookAlike("busy-neighbours-worker", .traffic, on: .worker) { stage in
            let busy = BusyThreads(8)
            for _ in 0..<60 {
                stage.run { stage.turn { computeInOwnCode(until: .now.advanced(by: .milliseconds(1))) } }
                stage.rest(.milliseconds(40))
            }
            busy.stop()
        },
        // A loop that is busy in every turn, but checks for new events in each turn, serves all its sources.
        busy("busy-source", on: .worker) { stage, isOver, done in
            let source = EventSource { source in
                stage.turn(handleShortEvent)
                if isOver() {
                    source.invalidate()
                    done()
                } else {
                    source.signal()
                }
            }
            stage.loop.add(source)
            source.signalAndWake()
        },
        busy("busy-blocks", on: .mainLoop) { stage, isOver, done in
            stage.loop.perform { enqueueNext(on: stage, isOver, done) }
        },
        busy("busy-main-actor", on: .mainActor) { stage, isOver, done in
            Task { @MainActor in
                while !isOver() {
                    stage.turn(handleShortEvent)
                    await Task.yield()
                }
                done()
            }
        },
        .lookAlike("tasks-that-sleep", .traffic, on: .mainActor) { stage in
            let done = Gate()
            Task { @MainActor in
                for _ in 0..<100 {
                    stage.turn(handleShortEvent)
                    try? await Task.sleep(for: .milliseconds(10))
                }
                done.open()
            }
            done.wait()
        },
    ]

    private static func turns(_ name: String, _ length: Duration, _ count: Int, rest: Duration, on place: Place)
        -> Scenario
    {
        .lookAlike(name, .traffic, on: place) { stage in
            for _ in 0..<count {
                stage.run { stage.turn { sleepInHandler(length) } }
                stage.rest(rest)
            }
        }
    }

    /// `play` executes short work repeatedly, asks whether to stop, and reports when it is done.
    private static func busy(
        _ name: String,
        on place: Place,
        _ play: @escaping @Sendable (Stage, @escaping @Sendable () -> Bool, @escaping @Sendable () -> Void) -> Void
    ) -> Scenario {
        .lookAlike(name, .kinds, on: place) { stage in
            let end = MonotonicInstant.now.advanced(by: .milliseconds(900))
            let isDone = Gate()
            play(stage, { MonotonicInstant.now >= end }, isDone.open)
            isDone.wait()
        }
    }

    private static func lonely(_ name: String, _ length: Duration, on place: Place) -> Scenario {
        .lookAlike(name, .traffic, on: place) { stage in
            for _ in 0..<4 {
                stage.run { stage.turn { sleepInHandler(length) } }
                for _ in 0..<5 {
                    stage.rest(.milliseconds(30))
                    stage.run {}
                }
            }
        }
    }
}

/// Passes the loop of a thread to other threads.
private final class LoopOfThread: Sendable {
    private let found = Mutex<EventRunLoop?>(nil)

    func isCurrent() { found.withLock { $0 = .current } }

    var loop: EventRunLoop? { found.withLock { $0 } }
}

/// Each block enqueues the next.
private func enqueueNext(
    on stage: Stage,
    _ isOver: @escaping @Sendable () -> Bool,
    _ done: @escaping @Sendable () -> Void
) {
    stage.turn(handleShortEvent)
    if isOver() { return done() }
    stage.loop.perform { enqueueNext(on: stage, isOver, done) }
}
