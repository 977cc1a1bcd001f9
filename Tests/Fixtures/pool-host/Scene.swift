import Foundation
import Glibc
import Synchronization

/// The work of the pool. A scene that starves it lasts until the monitor has reported that, and a little longer.
enum Scene: String, CaseIterable {
    /// Each worker computes, while three jobs wait.
    case computing
    /// Each sleeps in a system call, while three jobs wait.
    case sleeping
    /// Each waits for input from the same pipe, and no other job waits.
    case reading
    /// Each waits for a lock that a thread outside of all pools holds.
    case locked
    /// One of them holds the lock and sleeps; all others wait for it.
    case lockedByWorker = "locked-by-worker"
    /// An executor of the server with two workers that wait for each other. It never ends.
    case deadlock
    /// Three of four workers sleep in one function, and one computes in another.
    case most
    /// An executor of the server with two workers.
    case executor
    /// That executor and Swift's pool at the same time.
    case twoPools = "two-pools"
    /// One of two workers is free again long before the other.
    case oneFreed = "one-freed"
    /// Each sleeps, until the process is killed.
    case forever

    /// One worker is stalled, the others are free.
    case oneLong = "one-long"
    /// The same in a task that has awaited something before.
    case resumed
    /// 60 jobs of 20 ms.
    case short
    /// 4 jobs of 150 ms.
    case middling
    /// Tasks that are suspended for 600 ms.
    case suspended
    case idle

    /// Whether no worker is free for long enough to be a stall.
    var starves: Bool { ![.oneLong, .resumed, .short, .middling, .suspended, .idle, .deadlock].contains(self) }

    /// The number of its own jobs that Swift's pool runs at once on this machine.
    static let width = max(1, min(sysconf(Int32(_SC_NPROCESSORS_CONF)), ProcessInfo.processInfo.activeProcessorCount))

    func play(on executors: Executors) {
        let stage = Stage(workers: workers, stalls: self == .twoPools ? 2 : 1)
        switch self {
        case .computing: run(Self.width, waiting: 3) { _ in computeInAJob(stage) }
        case .sleeping: run(Self.width, waiting: 3) { _ in sleepInAJob(stage) }
        case .reading: run(Self.width) { _ in readInAJob(stage) }
        case .locked: withForeignHolder(stage) { run(Self.width, waiting: 3) { _ in waitForTheLock(stage) } }
        case .lockedByWorker: run(Self.width) { $0 == 0 ? holdTheLock(stage) : waitForTheLock(stage) }
        case .deadlock: start(2, on: executors.pair) { lockBoth(stage, first: $0) }; stage.awaitEnd()
        case .most: run(4, on: executors.four) { $0 == 0 ? computeInAJob(stage) : sleepInAJob(stage) }
        case .executor: run(2, waiting: 2, on: executors.pair) { _ in sleepInAJob(stage) }
        case .twoPools:
            let other = start(2, on: executors.pair) { _ in sleepInAJob(stage) }
            run(Self.width) { _ in computeInAJob(stage) }
            other.wait()
        case .oneFreed: run(2, on: executors.pair) { stand(stage, again: $0 == 0) }
        case .forever: run(Self.width, waiting: 3) { _ in sleepFor(.max, stage) }
        case .resumed:
            let done = DispatchGroup()
            done.enter()
            Task.detached(priority: .medium) {
                await goOn(stage)
                done.leave()
            }
            done.wait()
        case .oneLong: run(1) { _ in sleepFor(700, stage) }
        case .short: run(60) { _ in computeFor(20) }
        case .middling: run(4) { _ in sleepFor(150, stage) }
        case .suspended: suspend()
        case .idle: usleep(700_000)
        }
    }

    /// The number of stalled workers.
    private var workers: Int {
        switch self {
        case .deadlock, .executor, .oneFreed: 2
        case .most: 4
        case .twoPools: Self.width + 2
        case .oneLong, .resumed, .short, .middling, .suspended, .idle: 0
        default: Self.width
        }
    }

    /// Enqueues `count` jobs, then `waiting` others that do nothing, and waits
    /// until all are done. Called on the main thread, which is not a worker.
    private func run(
        _ count: Int,
        waiting: Int = 0,
        on executor: OwnExecutor? = nil,
        _ body: @escaping @Sendable (Int) -> Void
    ) {
        let done = start(count, on: executor, body)
        // Not before all of those are stalled: then no job overtakes another.
        while waiting > 0, Jobs.started < count { usleep(1_000) }
        let others = start(waiting, on: executor) { _ in }
        done.wait()
        others.wait()
    }

    @discardableResult
    private func start(_ count: Int, on executor: OwnExecutor?, _ body: @escaping @Sendable (Int) -> Void)
        -> DispatchGroup
    {
        let done = DispatchGroup()
        for number in 0..<count {
            done.enter()
            Task.detached(executorPreference: executor, priority: .medium) {
                await handle(number, body)
                done.leave()
            }
        }
        return done
    }

    private func suspend() {
        let done = DispatchGroup()
        for _ in 0..<(Self.width + 2) {
            done.enter()
            Task.detached(priority: .medium) {
                try? await Task.sleep(for: .milliseconds(600))
                done.leave()
            }
        }
        done.wait()
    }

    private func withForeignHolder(_ stage: Stage, _ body: () -> Void) {
        let held = DispatchSemaphore(value: 0)
        let thread = Thread {
            // Foundation's thread name is set in the kernel only after the creator has returned from starting the thread.
            try? Data("holder".utf8).write(to: URL(filePath: "/proc/thread-self/comm"))
            lock.lock()
            held.signal()
            holdAsForeigner(stage)
            lock.unlock()
        }
        thread.start()
        held.wait()
        body()
    }
}

/// The duration of a scene: until all jobs have begun, this number
/// of stalls was reported, and 150 ms more. Half a minute at most.
final class Stage: Sendable {
    private let workers, stalls: Int
    private let hasEnded = Atomic(false)
    /// Readable at the end of the scene.
    let pipe: (reading: Int32, writing: Int32)

    init(workers: Int, stalls: Int) {
        (self.workers, self.stalls) = (workers, Events.began + stalls)
        var ends: [Int32] = [-1, -1]
        _ = unsafe Glibc.pipe(&ends)
        pipe = (ends[0], ends[1])
        guard workers > 0 else {
            hasEnded.store(true, ordering: .relaxed)
            return
        }
        Thread.detachNewThread { [self] in
            for _ in 0..<6_000 where Jobs.started < self.workers || Events.began < self.stalls { usleep(5_000) }
            usleep(150_000)
            hasEnded.store(true, ordering: .releasing)
            close(pipe.writing)
        }
    }

    deinit { close(pipe.reading) }

    var isOver: Bool { hasEnded.load(ordering: .acquiring) }
    func awaitEnd() { while !isOver { usleep(10_000) } }
}

/// Like a handler of a server: an asynchronous function that awaits another.
@inline(never)
private func handle(_ number: Int, _ body: @Sendable (Int) -> Void) async {
    await answer(number, body)
    numberOfAnswers.add(1, ordering: .relaxed)
}

@inline(never)
private func answer(_ number: Int, _ body: @Sendable (Int) -> Void) async {
    Jobs.note { body(number) }
}

/// The code after an `await` is a separate job.
@inline(never)
private func goOn(_ stage: Stage) async {
    try? await Task.sleep(for: .milliseconds(5))
    Jobs.note { sleepFor(900, stage) }
}

private let numberOfAnswers = Atomic(0)
