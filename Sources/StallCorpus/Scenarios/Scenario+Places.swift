import Dispatch
import Glibc
import RunLoopKit
import StallReports

extension Scenario {
    /// All places where a loop calls the server's code.
    static let places: [Scenario] = [
        placed("in-timer", on: .mainLoop) { stage, work in
            stage.loop.add(EventTimer(after: .milliseconds(50)) { _ in work() }, to: .common)
        },
        placed("in-source", on: .worker) { stage, work in
            let source = EventSource { source in
                source.invalidate()
                work()
            }
            stage.loop.add(source)
            source.signalAndWake()
        },
        placed("in-observer", on: .worker) { stage, work in
            // Before the loop sleeps: a watcher that observes only some activities does not see this.
            let observer = LoopObserver(activities: .beforeWaiting, repeats: false) { _, _ in work() }
            stage.loop.add(observer, to: .common)
            stage.loop.wakeUp()
        },
        placed("in-observer-of-waking", on: .mainLoop) { stage, work in
            let observer = LoopObserver(activities: .afterWaiting, repeats: false) { _, _ in work() }
            stage.loop.add(observer, to: .common)
            stage.loop.wakeUp()
        },
        placed("in-descriptor", on: .mainLoop) { stage, work in
            let pipe = try Descriptors.pipe()
            let source = DescriptorSource(descriptor: pipe.first) { source, _ in
                source.invalidate()
                work()
            }
            try stage.loop.add(source, to: .common)
            pipe.writeByte()
        },
        placed("in-block", on: .worker) { stage, work in stage.loop.perform(work) },
        placed("in-request", on: .worker) { stage, work in stage.loop.performAsSource(work) },
        placed("in-main-queue", on: .mainLoop) { _, work in DispatchQueue.main.async(execute: work) },
        placed("in-nested-run", on: .mainLoop) { stage, work in
            stage.loop.perform {
                EventRunLoop.main.perform(in: "nested") {
                    work()
                    EventRunLoop.main.stop()
                }
                let keepAlive = EventTimer(after: .seconds(60)) { _ in }
                EventRunLoop.main.add(keepAlive, to: "nested")
                EventRunLoop.main.run(mode: "nested", for: .seconds(20))
                keepAlive.invalidate()
            }
        },
        placed("in-nested-timer", on: .worker) { stage, work in
            stage.loop.perform {
                let timer = EventTimer(after: .milliseconds(300)) { _ in
                    work()
                    EventRunLoop.current.stop()
                }
                EventRunLoop.current.add(timer, to: "nested")
                EventRunLoop.current.run(mode: "nested", for: .seconds(20))
            }
        },
        placed("in-async-function", on: .mainActor, culprit: "sleepAfterAwait") { stage, _ in
            Task { @MainActor in await sleepAfterAwait(stage) }
        },
        // Two different faults: the same fault would be counted, not reported twice.
        .stall(
            "two-loops-at-once",
            .places,
            on: .worker,
            [.blocked],
            culprit: "sleepInHandler",
            or: "corpus_wait_for_events",
            count: 2
        ) { stage in
            EventRunLoop.main.perform { stage.mark(of: .mainLoop) { waitForEvents(Stage.usualLength) } }
            stage.start { stage.mark { sleepInHandler(Stage.usualLength) } }
            stage.waitForMarks(2)
        },
        .stall(
            "twice-in-a-row",
            .places,
            on: .mainLoop,
            [.blocked],
            culprit: "sleepInHandler",
            or: "corpus_wait_for_events",
            count: 2
        ) { stage in
            stage.stall { sleepInHandler(Stage.usualLength) }
            stage.rest(.milliseconds(300))
            stage.stall { waitForEvents(Stage.usualLength) }
        },
    ]

    /// The same stall, entered in different ways: `begin` makes `work` run on the place's thread.
    private static func placed(
        _ name: String,
        on place: Place,
        culprit: String = "sleepInHandler",
        _ begin: @escaping @Sendable (Stage, @escaping @Sendable () -> Void) throws -> Void
    ) -> Scenario {
        .stall(name, .places, on: place, [.blocked], culprit: culprit) { stage in
            try begin(stage) { stage.mark { sleepInHandler(Stage.usualLength) } }
            stage.waitForMarks(1)
        }
    }
}

@MainActor @inline(never)
private func sleepAfterAwait(_ stage: Stage) async {
    await Task.yield()
    stage.mark {
        let result = usleep(UInt32(Stage.usualLength / .microseconds(1)))
        return Int(result) + 1
    }
    await Task.yield()
}
