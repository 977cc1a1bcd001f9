internal import StallStore
internal import Synchronization

/// Bytes that all requests with reports may take in memory together, from their heads to their answers. For any thread.
final class IngestBudget: Sendable {
    /// What one request holds. It is given back when nobody has this object any more.
    final class Share: Sendable {
        private let budget: IngestBudget
        private let held: Mutex<Int>

        fileprivate init(_ budget: IngestBudget, _ bytes: Int) {
            self.budget = budget
            held = Mutex(bytes)
        }

        /// - Returns: whether there was room for so many bytes more.
        func grow(by bytes: Int) -> Bool {
            held.withLock { held in
                guard budget.take(bytes) else { return false }
                held += bytes
                return true
            }
        }

        /// Gives a part back.
        func shrink(by bytes: Int) {
            held.withLock { held in
                let bytes = min(bytes, held)
                budget.give(bytes)
                held -= bytes
            }
        }

        deinit { budget.give(held.withLock { $0 }) }
    }

    private let maximum: Int
    private let used = Mutex(0)

    init(_ maximum: Int) { self.maximum = maximum }

    var usedBytes: Int { used.withLock { $0 } }

    /// Nil where there is no room.
    func share(of bytes: Int) -> Share? { take(bytes) ? Share(self, bytes) : nil }

    private func take(_ bytes: Int) -> Bool {
        used.withLock { used in
            let sum = used.addingSaturated(max(0, bytes))
            // A single one is always let in: a limit below what one request needs would stop everything.
            guard used == 0 || sum <= maximum else { return false }
            used = sum
            return true
        }
    }

    private func give(_ bytes: Int) { used.withLock { $0 -= bytes } }
}

/// Lets a few at a time in, so that what each needs while it computes is needed a few times only.
actor Gate {
    struct Crowded: Error {}

    private let width: Int
    private let waitingLimit: Int
    private var inside = 0
    private var waiting: [CheckedContinuation<Void, Never>] = []

    /// - Parameter waitingLimit: who comes when so many wait is turned away.
    init(width: Int, waitingLimit: Int) { (self.width, self.waitingLimit) = (max(1, width), waitingLimit) }

    var waitingCount: Int { waiting.count }

    /// - Throws: ``Crowded`` at once, or what the work throws.
    func pass<Result: Sendable>(_ work: @Sendable () async throws -> Result) async throws -> Result {
        if inside < width {
            inside += 1
        } else {
            guard waiting.count < waitingLimit else { throw Crowded() }
            // Whoever leaves hands its place over.
            await withCheckedContinuation { waiting.append($0) }
        }
        defer {
            if waiting.isEmpty { inside -= 1 } else { waiting.removeFirst().resume() }
        }
        return try await work()
    }
}
