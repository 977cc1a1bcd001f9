import Foundation
import StackCapture
import Synchronization

/// Threads without an asynchronous function on their stack, but with old data of such
/// functions in the stack memory: none may be reported to have awaiting callers.
struct Bystanders {
    var captures: Int

    private static let isOver = Atomic(false)
    private static let identities = Mutex<[String: ThreadIdentity]>([:])

    func run() -> Bool {
        soil()
        for (name, work) in Self.kinds {
            if name.hasPrefix("queue") {
                DispatchQueue(label: name).async { Self.stand(name, work) }
            } else {
                Thread.detachNewThread { Self.stand(name, work) }
            }
        }
        while Self.identities.withLock({ $0.count }) < Self.kinds.count { usleep(1000) }
        return count()
    }

    /// Makes the workers of the pool run asynchronous functions, deeply and often. Leaves some tasks suspended.
    private func soil() {
        let done = DispatchSemaphore(value: 0)
        for number in 0..<200 {
            Task {
                for _ in 0..<20 { consume(await descendQuietly(number % 30)) }
                done.signal()
                try? await Task.sleep(for: .seconds(1000))
            }
        }
        for _ in 0..<200 { done.wait() }
    }

    private static func stand(_ name: String, _ work: @Sendable () -> Void) {
        let identity = ThreadIdentity.current()
        identities.withLock { $0[name] = identity }
        while !isOver.load(ordering: .relaxed) { work() }
    }

    private func count() -> Bool {
        guard let capturer = try? StackCapturer() else { return false }
        var taken = 0
        var failed = 0
        var chains: [String: Int] = [:]
        let targets = Self.identities.withLock { $0 }.sorted { $0.key < $1.key }
        // Some captures fail while the thread moves.
        for round in 0..<captures * 20 where taken < captures {
            let (name, identity) = targets[round % targets.count]
            switch capturer.capture(threadID: identity.threadID, stack: identity.stack) {
            case .failure: failed += 1
            case .success(let stack):
                taken += 1
                if stack.asyncCallers != nil { chains[name, default: 0] += 1 }
            }
        }
        Self.isOver.store(true, ordering: .relaxed)
        print("\(taken) stacks of \(targets.count) bystanders, \(failed) not taken, false chains: \(chains)")
        return chains.isEmpty && taken > 0
    }

    private static let kinds: [String: @Sendable () -> Void] = [
        "sleep": { usleep(500_000) },
        "queue: sleep": { usleep(500_000) },
        "poll": { _ = poll(nil, 0, 500) },
        "queue: semaphore": { _ = DispatchSemaphore(value: 0).wait(timeout: .now() + 0.5) },
        "lock": {
            let lock = NSConditionLock(condition: 0)
            _ = lock.lock(whenCondition: 1, before: Date(timeIntervalSinceNow: 0.5))
        },
        "queue: computes": { consume(grind(1, 100_000)) },
        "computes": { consume(grind(2, 100_000)) },
        "queue: encodes": { consume((try? JSONEncoder().encode(Array(0..<200)).count) ?? 0) },
        "sorts": { consume((0..<5000).map(mix).sorted { $0 < $1 }[0]) },
        "run loop": { _ = RunLoop.current.run(mode: .default, before: Date(timeIntervalSinceNow: 0.5)) },
        "queue: holds tasks": {
            let tasks = (0..<4).map { number in Task { await descendQuietly(number) } }
            usleep(200_000)
            withExtendedLifetime(tasks) {}
        },
        "formats": { consume(String(format: "%d %@", 3, "x" as NSString).count) },
    ]
}

@inline(never)
func descendQuietly(_ depth: Int) async -> Int {
    await Task.yield()
    return depth == 0 ? 0 : await descendQuietly(depth - 1) &+ mix(depth)
}
