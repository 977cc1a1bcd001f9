import CRunLoopShims
import Locking
import RunLoopKit
package import StallReports
import Synchronization

/// The server's own description of its work, by task and by thread: names and contexts that are valid while a closure runs.
///
/// A stack shows which task stalled, but not which request it worked on. The reporter looks that up here shortly after the stall was
/// detected. The table is divided into shards, so that threads seldom wait for each other.
package final class WorkTable: Sendable {
    /// A running closure of the server, with its description.
    package struct Mark: Sendable {
        package let note: WorkNote
        /// The thread that called it.
        let thread: Int32
        let since: MonotonicInstant
    }

    fileprivate struct Past: Sendable {
        let key: WorkKey
        let mark: Mark
        let until: MonotonicInstant
    }

    fileprivate struct Contents: Sendable {
        /// The innermost is last.
        var open: [WorkKey: [Mark]] = [:]
        /// Closures that have ended recently, in a ring: a stall may be over before the reporter looks.
        var past: [Past] = []
        var nextPast = 0
    }

    private final class Shard: Sendable {
        let contents = ForkSafeMutex(Contents())
    }

    /// The work of ongoing stalls, by report, oldest first. Only work with contexts is kept.
    private let stalled = ForkSafeMutex<[(report: ULID, work: StalledWork)]>([])
    private static let stalledCapacity = 64
    private let shards = (0..<16).map { _ in Shard() }
    private let generation = ForkGeneration.current
    private let keepsEnded: @Sendable () -> Bool
    /// A shorter closure cannot be the cause of a stall, however low the threshold.
    static let shortestPast = Duration.milliseconds(10)
    /// The most closures that a shard keeps after their end. One more replaces the oldest: a report may then lack the labels of that one.
    static let pastCapacity = 32

    /// - Parameter keepsEnded: Whether anybody may still look for work that ends now. Called under a lock.
    init(keepsEnded: @escaping @Sendable () -> Bool = { true }) { self.keepsEnded = keepsEnded }

    // MARK: The table of the process

    private static let ofProcess = PerProcess { WorkTable(keepsEnded: { WorkTable.isRead }) }
    /// The number of running monitors. Without one nothing is recorded.
    private static let readers = Atomic(0)

    /// The table of this process. A fork's child has its own.
    package static var current: WorkTable { ofProcess.current }

    /// Whether a monitor runs that reads the table.
    package static var isRead: Bool { readers.load(ordering: .relaxed) > 0 }

    static func addReader() { readers.wrappingAdd(1, ordering: .relaxed) }

    /// When the last reader has gone, the contexts of work that has ended are released: they belong to the server, and nobody looks
    /// for them any more.
    static func removeReader() {
        guard readers.wrappingSubtract(1, ordering: .relaxed).newValue == 0 else { return }
        current.forgetEnded()
    }

    // MARK: The server's threads

    /// Notes that the closure begins on the calling thread.
    package func begin(_ note: WorkNote, as key: WorkKey) {
        let mark = Mark(note: note, thread: run_loop_own_tid(), since: .now)
        shard(of: key).contents.withLock { $0.open[key, default: []].append(mark) }
    }

    /// Notes that the innermost closure of the key has returned.
    package func end(_ key: WorkKey) {
        // In the child of a fork inside of the closure, a lock of this table may be held forever, and nobody reads it.
        guard generation.isCurrent else { return }
        let now = MonotonicInstant.now
        // A context may have a deinit of the server, so it is released after the lock.
        let former: (Mark?, Past?) = shard(of: key).contents.withLock { contents in
            guard let mark = contents.open[key]?.popLast() else { return (nil, nil) }
            if contents.open[key]?.isEmpty == true { contents.open[key] = nil }
            // Under the lock: work that ends after `forgetEnded` has looked here is not kept.
            guard now - mark.since >= Self.shortestPast, keepsEnded() else { return (mark, nil) }
            return (mark, contents.keep(Past(key: key, mark: mark, until: now), Self.pastCapacity))
        }
        withExtendedLifetime(former) {}
    }

    private func shard(of key: WorkKey) -> Shard { shards[Int(truncatingIfNeeded: key.number) & (shards.count - 1)] }

    // MARK: The reporter

    /// The closures of any of the keys that ran at a time, outermost first.
    func marks(of keys: [WorkKey], at time: MonotonicInstant) -> [Mark] {
        let found = Set(keys).flatMap { key in
            shard(of: key).contents.withLock { contents in
                let past = contents.past.filter { $0.key == key && time <= $0.until }.map(\.mark)
                return (past + (contents.open[key] ?? [])).filter { $0.since <= time }
            }
        }
        return found.sorted { $0.since < $1.since }
    }

    /// The contexts of other work that began on a thread before a time and has not ended.
    func contexts(begunOn thread: Int32, besides keys: Set<WorkKey>, before time: MonotonicInstant) -> [any WorkContext]
    {
        shards.flatMap { shard in
            shard.contents.withLock { contents in
                // Without a copy of the table: the server's threads wait for this lock.
                contents.open.compactMap { key, marks in
                    if keys.contains(key) { return nil }
                    let mark = marks.last { $0.thread == thread && $0.since <= time && $0.note.context != nil }
                    return mark?.note.context
                }
            }
        }
    }
}

extension WorkTable {
    /// Keeps the contexts of a stall until it has ended. Called by the reporter.
    func keep(_ work: StalledWork, ofStall report: ULID) {
        guard work.context != nil || !work.waiting.isEmpty else { return }
        let former: StalledWork? = stalled.withLock { stalled in
            stalled.append((report, work))
            return stalled.count > Self.stalledCapacity ? stalled.removeFirst().work : nil
        }
        withExtendedLifetime(former) {}
    }

    /// Releases what the table keeps of work that has ended and of stalls.
    func forgetEnded() {
        let former = (
            shards.map { shard in shard.contents.withLock { $0.forgetPast() } }, stalled.withLock { $0.take() }
        )
        // A context may have a deinit of the server, so it is released after the locks.
        withExtendedLifetime(former) {}
    }

    /// The contexts of a stall that has ended: of the stalled work, and of work that had begun on the stalled thread and had to
    /// wait. Nil if none is known. A second call for the same stall returns nil.
    package func takeContexts(ofStall report: ULID) -> (stalled: (any WorkContext)?, waiting: [any WorkContext])? {
        let work: StalledWork? = stalled.withLock { stalled in
            stalled.firstIndex { $0.report == report }.map { stalled.remove(at: $0).work }
        }
        return work.map { ($0.context, $0.waiting) }
    }
}

extension WorkTable.Contents {
    /// Returns what was forgotten.
    fileprivate mutating func forgetPast() -> [WorkTable.Past] {
        nextPast = 0
        return past.take()
    }

    /// Returns the entry that was replaced.
    fileprivate mutating func keep(_ ended: WorkTable.Past, _ capacity: Int) -> WorkTable.Past? {
        guard past.count >= capacity else {
            past.append(ended)
            return nil
        }
        defer {
            past[nextPast] = ended
            nextPast = (nextPast + 1) % capacity
        }
        return past[nextPast]
    }
}
