import RunLoopKit
import Synchronization

/// Work for loops of other threads, from code that may block.
func performOnWorker() throws {
    let worker = try WorkerThread(name: "client")
    let loop = worker.loop
    let seen = Seen()
    // The result of a body may be ignored.
    try loop.performAndWait { seen.note("waited for") }
    let label = try loop.performAndWait(in: [.default, "tracking"], timeout: .seconds(60)) { loop.label }
    precondition(label == "client" && worker.name == label && !worker.hasEnded)
    do {
        try loop.performAndWait { throw Refusal() }
        fatalError("the body's error was lost")
    } catch is Refusal {}
    loop.performAsSource { seen.note("requested") }
    loop.perform(after: .milliseconds(1), in: [.common]) { loop.stop(mode: .default) }
    worker.stop(draining: true)
    precondition(worker.join(timeout: .seconds(60)) && worker.hasEnded && seen.count == 2)
    do {
        try loop.performAndWait {}
        fatalError("a loop that has ended has run something")
    } catch let error as RunLoopError where error.code == .loopEnded {}
}

/// The same from tasks, which are not blocked.
func performFromTasks() async throws {
    let worker = try WorkerThread(name: "client")
    let loop = worker.loop
    let seen = Seen()
    try await loop.performAndAwait { seen.note("waited for") }
    let isThere = try await loop.performAndAwait(in: [.common]) { EventRunLoop.current === loop }
    let task = Task { try await loop.performAndAwait(in: ["never runs"]) { seen.note("never") } }
    task.cancel()
    do {
        _ = try await task.value
        fatalError("a request that never ran was answered")
    } catch is CancellationError {}
    precondition(isThere && seen.count == 1)
    worker.stop()
}

struct Refusal: Error {}

final class Seen: Sendable {
    private let entries = Mutex<[String]>([])

    var count: Int { entries.withLock { $0.count } }

    @discardableResult
    func note(_ entry: String) -> Int {
        entries.withLock {
            $0.append(entry)
            return $0.count
        }
    }
}

/// Like a view in a user interface: it changes immediately, is laid out once before the loop sleeps, and has a delayed effect.
@MainActor
final class View {
    private(set) var layouts = 0
    private(set) var blinks = 0
    private let loop = EventRunLoop.main

    func change() {
        loop.performBeforeWaiting(
            ObjectIdentifier(self),
            order: .max,
            atLatest: .seconds(1),
            onMainActor { [weak self] in self?.layouts += 1 }
        )
    }

    func blink(after delay: Duration) {
        loop.perform(
            after: delay,
            in: [.default, "tracking"],
            target: self,
            onMainActor { [weak self] in self?.blinks += 1 }
        )
    }

    func hide() {
        loop.cancelPerforms(target: self)
        loop.cancelBeforeWaiting(ObjectIdentifier(self))
    }
}

@MainActor
func performOnMainActor() {
    let view = View()
    view.change()
    view.change()
    view.blink(after: .zero)
    let pending = EventRunLoop.main.perform(after: .seconds(60)) {}
    EventRunLoop.main.run(for: .milliseconds(5))
    precondition(view.layouts == 1 && view.blinks == 1 && pending.isPending)
    pending.cancel()
    view.change()
    view.blink(after: .zero)
    view.hide()
    EventRunLoop.main.run(for: .milliseconds(5))
    precondition(view.layouts == 1 && view.blinks == 1 && !pending.isPending)
}
