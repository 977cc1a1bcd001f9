import Dispatch
import Foundation

extension Scene {
    static var dispatch: [Scene] {
        [
            Scene(
                name: "dispatch sync",
                way: .running {
                    onThread { DispatchQueue(label: "one").sync { Subject.loop { Subject.work() } } }
                }
            ),
            Scene(
                name: "dispatch nested sync",
                way: .running {
                    onThread {
                        DispatchQueue(label: "a").sync {
                            DispatchQueue(label: "b").sync { Subject.loop { Subject.work() } }
                        }
                    }
                }
            ),
            Scene(
                name: "dispatch async",
                way: .running { DispatchQueue(label: "one").async { Subject.loop { Subject.work() } } }
            ),
            Scene(
                name: "dispatch global",
                way: .running { DispatchQueue.global().async { Subject.loop { Subject.work() } } }
            ),
            Scene(
                name: "dispatch concurrentPerform",
                way: .running {
                    onThread {
                        DispatchQueue.concurrentPerform(iterations: 1) { _ in Subject.loop { Subject.work() } }
                    }
                }
            ),
            Scene(
                name: "dispatch main queue",
                way: .running { DispatchQueue.main.async { Subject.loop { Subject.work() } } }
            ),
            Scene(
                name: "dispatch barrier",
                way: .running {
                    DispatchQueue(label: "c", attributes: .concurrent).async(flags: .barrier) {
                        Subject.loop { Subject.work() }
                    }
                }
            ),
            Scene(
                name: "dispatch work item",
                way: .running {
                    DispatchQueue.global().async(
                        execute: DispatchWorkItem { Subject.loop { Subject.work() } }
                    )
                }
            ),
        ]
    }

    static var concurrency: [Scene] {
        [
            Scene(
                name: "task",
                way: .task {
                    await breathe()
                    Subject.loop { Subject.work() }
                }
            ),
            Scene(name: "task without a hop", way: .task { Subject.loop { Subject.work() } }),
            Scene(name: "async functions", way: .task { await outer(7) }),
            Scene(name: "actor", way: .task { await Counter().count() }),
            Scene(name: "task group", way: .task { await inGroup() }),
            Scene(name: "async let", way: .task { await inLet() }),
            Scene(name: "main actor", way: .task { await onMain() }),
            Scene(name: "main actor, after a hop", way: .task { await onMainAfterHop() }),
            Scene(
                name: "detached task",
                way: .task { await Task.detached(priority: .low) { Subject.loop { Subject.work() } }.value }
            ),
            Scene(
                name: "async generic",
                way: .task { await through(AnyStep { Subject.loop { Subject.work() } }) }
            ),
            Scene(name: "async throwing", way: .task { _ = try? await throwing(4) }),
            Scene(
                name: "async sequence",
                way: .task {
                    for await _ in AsyncStream<Int>(unfolding: { 1 }).prefix(1) {
                        Subject.loop { Subject.work() }
                    }
                }
            ),
        ]
    }
}

@inline(never) private func breathe() async { await Task.yield() }

@inline(never)
private func outer(_ number: Int) async {
    await breathe()
    await middle(number + 1)
    await breathe()
}
@inline(never)
private func middle(_ number: Int) async {
    await breathe()
    Subject.loop { Subject.work(number * 100) }
    await breathe()
}

private actor Counter {
    private var value = 0

    @inline(never)
    func count() async {
        value += 1
        await breathe()
        Subject.loop { Subject.work(value * 1000) }
    }
}

@inline(never)
private func inGroup() async {
    await withTaskGroup(of: Int.self) { group in
        group.addTask {
            await middle(1)
            return 1
        }
        group.addTask {
            await breathe()
            return 2
        }
        for await _ in group {}
    }
}

@inline(never)
private func inLet() async {
    async let first: Void = middle(2)
    async let second: Void = breathe()
    _ = await (first, second)
}

@MainActor @inline(never)
private func onMain() { Subject.loop { Subject.work() } }

@MainActor @inline(never)
private func onMainAfterHop() async {
    await breathe()
    await outer(3)
}

private protocol Step: Sendable { func take() async }
private struct AnyStep: Step {
    var body: @Sendable () -> Void
    @inline(never)
    func take() async {
        await breathe()
        body()
    }
}
@inline(never) private func through<Taken: Step>(_ step: Taken) async { await step.take() }

private struct Failure: Error {}
@inline(never)
private func throwing(_ depth: Int) async throws -> Int {
    if depth > 0 { return try await throwing(depth - 1) + 1 }
    await breathe()
    Subject.loop { Subject.work() }
    throw Failure()
}
