import StallStore
import Synchronization

/// Limits the memory of all requests with reports together, from their heads to their answers. Any thread.
final class IngestBudget: Sendable {
    /// The memory of one request. It is returned to the budget when this object is released.
    final class Share: Sendable {
        private let budget: IngestBudget
        private let team: String
        private let held: Mutex<Int>
        /// What is taken for a body that has not arrived yet.
        private let arriving: Mutex<Int>

        fileprivate init(_ budget: IngestBudget, _ bytes: Int, team: String) {
            (self.budget, self.team) = (budget, team)
            held = Mutex(bytes)
            arriving = Mutex(bytes)
        }

        /// Returns what the body, which has arrived, does not need.
        ///
        /// - Parameter bytes: Its size.
        func keep(bodyOf bytes: Int) {
            let expected = arriving.withLock { arriving in
                defer { arriving = 0 }
                return arriving
            }
            budget.hasArrived(expected, of: team)
            shrink(by: max(0, expected - bytes))
        }

        /// - Returns: Whether there was room for this many more bytes.
        func grow(by bytes: Int) -> Bool {
            held.withLock { held in
                guard budget.take(bytes) else { return false }
                held += bytes
                return true
            }
        }

        /// Whether there would be room for this many more bytes if no other request were in progress.
        func canGrow(by bytes: Int) -> Bool { held.withLock { $0 }.addingSaturated(bytes) <= budget.maximum }

        /// Returns a part to the budget.
        func shrink(by bytes: Int) {
            held.withLock { held in
                let bytes = min(bytes, held)
                budget.give(bytes)
                held -= bytes
            }
        }

        deinit {
            budget.hasArrived(arriving.withLock { $0 }, of: team)
            budget.give(held.withLock { $0 })
        }
    }

    private let maximum: Int
    private let used = Mutex(0)
    /// What is taken for each team's bodies that have not arrived yet.
    private let arriving = Mutex<[String: Int]>([:])

    init(_ maximum: Int) { self.maximum = maximum }

    var usedBytes: Int { used.withLock { $0 } }

    /// The memory of a request whose body is still to arrive. Nil if there is no room, or if bodies of this team that arrive slowly hold half of
    /// the memory: the rest is for other teams.
    func share(ofBody bytes: Int, team: String) -> Share? {
        arriving.withLock { arriving in
            let sum = arriving[team].map { $0.addingSaturated(bytes) }
            guard (sum ?? 0) <= maximum / 2, take(bytes) else { return nil }
            arriving[team] = sum ?? bytes
            return Share(self, bytes, team: team)
        }
    }

    private func hasArrived(_ bytes: Int, of team: String) {
        arriving.withLock { arriving in
            let left = (arriving[team] ?? 0) - bytes
            arriving[team] = left > 0 ? left : nil
        }
    }

    private func take(_ bytes: Int) -> Bool {
        used.withLock { used in
            let sum = used.addingSaturated(max(0, bytes))
            // A single request is always admitted: otherwise a limit that is too small for one request would stop everything.
            guard used == 0 || sum <= maximum else { return false }
            used = sum
            return true
        }
    }

    private func give(_ bytes: Int) { used.withLock { $0 -= bytes } }
}

/// Admits a few tasks at a time, to limit their temporary memory.
actor TaskLimit {
    struct Crowded: Error {}

    private let width: Int
    private let waitingLimit: Int
    private var inside = 0
    private var waiting: [CheckedContinuation<Void, Never>] = []

    /// - Parameter waitingLimit: When this many tasks are waiting, others are refused.
    init(width: Int, waitingLimit: Int) { (self.width, self.waitingLimit) = (max(1, width), waitingLimit) }

    var waitingCount: Int { waiting.count }

    /// - Throws: ``Crowded`` at once, or the error of the work.
    func pass<Result: Sendable>(_ work: @Sendable () async throws -> Result) async throws -> Result {
        if inside < width {
            inside += 1
        } else {
            guard waiting.count < waitingLimit else { throw Crowded() }
            // A task that leaves passes its slot to this one.
            await withCheckedContinuation { waiting.append($0) }
        }
        defer {
            if waiting.isEmpty { inside -= 1 } else { waiting.removeFirst().resume() }
        }
        return try await work()
    }
}
