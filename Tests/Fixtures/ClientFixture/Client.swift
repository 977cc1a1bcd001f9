import Dispatch
import Glibc
import RunLoopKit
import Synchronization

// A typical client: Swift 6 mode, no unsafe code, every warning an error. The most important test is that it
// compiles.

@main
struct Client {
    @MainActor
    static func main() async throws {
        try useOnMainActor()
        try await callOnMainActor()
        print("main actor: done")
        try await useFromTasks()
        print("tasks: done")
        try await useOnWorker()
        print("worker: done")
        performOnMainActor()
        try performOnWorker()
        try await performFromTasks()
        print("performs: done")
        watchTimers()
        print("timers and traces: done")
        try await useService()
        print("ports: done")
    }
}

/// Ordinary main-actor state, not Sendable.
@MainActor
final class Model {
    var ticks = 0
    var exits = 0
    var calls: Set<String> = []
    var timer: EventTimer?
    var observer: LoopObserver?

    func start() {
        timer = EventTimer(every: .milliseconds(100), onMainActor { [weak self] _ in self?.ticks += 1 })
        observer = LoopObserver(
            activities: [.beforeWaiting, .exit],
            onMainActor { [weak self] _, activity in
                if activity.contains(.exit) { self?.exits += 1 }
            }
        )
        if let timer { EventRunLoop.main.add(timer, to: .common) }
        if let observer { EventRunLoop.main.add(observer, to: .common) }
    }

    func stop() {
        timer?.invalidate()
        observer?.invalidate()
    }
}

@MainActor
func useOnMainActor() throws {
    let loop = EventRunLoop.main
    let model = Model()
    model.start()
    loop.perform(onMainActor { model.ticks += 1 })
    loop.perform(in: [.default, "tracking"], wake: false) {}
    loop.addCommonMode("tracking")
    let source = EventSource(order: 1, onSchedule: { _, mode in _ = mode.name }, onCancel: { _, _ in }) { source in
        source.invalidate()
    }
    loop.add(source)
    source.signalAndWake()
    let result = loop.run(mode: .default, for: .milliseconds(5))
    precondition(result == .timedOut && model.ticks >= 1 && !source.isValid)
    precondition(loop.commonModes == [.default, "tracking"] && loop.contains(model.timer!, in: .common))
    _ = (loop.description, loop.label, loop.currentMode, loop.isWaiting, loop.nextTimerFireDate(), loop.thread?.stack)
    _ = (loop.heartbeat.pulse, loop.heartbeat.hasEnded, loop.modeName(at: 0))
    model.stop()
}

/// Not async, so that it may wait.
@MainActor
func runMainLoop() { EventRunLoop.main.run(mode: .default, for: .milliseconds(5)) }

/// Each kind of item, on the main loop and on another thread's loop.
@MainActor
func callOnMainActor() async throws {
    let model = Model()
    let worker = Thread()
    var pipes: [Int32] = [-1, -1]
    pipe(&pipes)
    defer { for end in pipes { close(end) } }
    for loop in [EventRunLoop.main, worker.loop] {
        model.calls = []
        let source = EventSource(onMainActor { _ in model.calls.insert("source") })
        let reader = DescriptorSource(
            descriptor: pipes[0],
            onMainActor { reader, _ in
                reader.invalidate()
                model.calls.insert("descriptor")
            }
        )
        loop.add(source)
        try loop.add(reader)
        loop.add(LoopObserver(repeats: false, onMainActor { _, _ in model.calls.insert("observer") }))
        loop.add(EventTimer(after: .milliseconds(1), onMainActor { _ in model.calls.insert("timer") }))
        loop.perform(onMainActor { model.calls.insert("block") })
        loop.performAsSource(onMainActor { model.calls.insert("request") })
        source.signalAndWake()
        write(pipes[1], "x", 1)
        // Keeps the main loop's mode non-empty while the other loop works.
        let keeper = EventTimer(every: .milliseconds(1), onMainActor { _ in model.ticks += 1 })
        EventRunLoop.main.add(keeper)
        while model.calls.count < 6 { runMainLoop() }
        keeper.invalidate()
        source.invalidate()
    }
    await worker.stop()
}

/// An actor that runs on a loop's thread, and keeps items that are bound to the loop.
actor Device {
    private let loop: EventRunLoop
    private var readings: [Int] = []
    private var timers: [EventTimer] = []

    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    init(loop: EventRunLoop) { self.loop = loop }

    func record(_ value: Int) -> Int {
        readings.append(value)
        return readings.count
    }

    /// Timers of the actor's own loop run in the actor's isolation.
    func sample(_ count: Int) async {
        await withCheckedContinuation { continuation in
            let timer = EventTimer(every: .milliseconds(1)) { [weak self] timer in
                let isDone = self?.assumeIsolated { $0.note() >= count } ?? true
                guard isDone, timer.isValid else { return }
                timer.invalidate()
                continuation.resume()
            }
            timers.append(timer)
            loop.add(timer)
        }
    }

    private func note() -> Int { record(0) }
}

func useFromTasks() async throws {
    let worker = Thread()
    let device = Device(loop: worker.loop)
    _ = await device.record(1)
    await device.sample(3)
    async let other = Task(executorPreference: worker.loop) { EventRunLoop.current === worker.loop }.value
    let isThere = await withTaskExecutorPreference(worker.loop) {
        try? await Task.sleep(for: .milliseconds(1))
        return worker.loop.isIsolatingCurrentContext() == true
    }
    let wasThere = await other
    precondition(isThere && wasThere)
    let activities = worker.loop.activities([.beforeWaiting, .afterWaiting], in: .common, limit: 8)
    worker.loop.wakeUp()
    for await activity in activities where activity.contains(.afterWaiting) { break }
    await worker.stop()
}

/// Blocks and sources on another thread's loop, including errors.
func useOnWorker() async throws {
    let worker = Thread()
    let loop = worker.loop
    do {
        try loop.add(
            DescriptorSource(descriptor: -1, events: [.readable, .hangUp]) { source, events in
                if events.contains(.closed) { source.invalidate() }
            }
        )
        fatalError("a descriptor that is none was taken")
    } catch {
        switch error.code {
        case .descriptorNotPollable: break
        default: throw error
        }
    }
    let count = Atomic<Int>(0)
    _ = count.add(1, ordering: .relaxed)
    await withCheckedContinuation { continuation in
        loop.perform {
            loop.preconditionIsolated()
            continuation.resume()
        }
    }
    await worker.stop()
}

/// A thread with a loop, created through libdispatch.
final class Thread: Sendable {
    let loop: EventRunLoop
    private let ended = DispatchSemaphore(value: 0)

    init() {
        let found = Mutex<EventRunLoop?>(nil)
        let ready = DispatchSemaphore(value: 0)
        DispatchQueue(label: "worker").async { [ended] in
            let loop = EventRunLoop.current
            let keepAlive = EventSource { _ in }
            loop.add(keepAlive)
            found.withLock { $0 = loop }
            ready.signal()
            loop.run()
            keepAlive.invalidate()
            ended.signal()
        }
        ready.wait()
        guard let loop = found.withLock({ $0 }) else { fatalError("no loop") }
        self.loop = loop
    }

    func stop() async {
        await withCheckedContinuation { continuation in
            loop.perform {
                EventRunLoop.current.stop()
                continuation.resume()
            }
        }
    }
}
