import Locking
import RunLoopKit

/// A queue from any number of threads to one reader. Adding never waits for the reader. When the queue is full, messages are dropped: see
/// ``Backlog``.
final class Mailbox<Message: QueuedMessage>: Sendable {
    private struct Contents {
        var backlog: Backlog<Message>
        var isClosed = false
    }

    private let contents: ForkSafeMutex<Contents>
    private let semaphore = TickSemaphore()

    init(capacity: Int, maxBytes: Int = 8 << 20) {
        contents = ForkSafeMutex(Contents(backlog: Backlog(capacity: capacity, maxBytes: maxBytes)))
    }

    /// Adds a message. Any thread.
    ///
    /// - Parameter mayBeDropped: Whether it is among the first to be dropped when the queue is full.
    func add(_ message: Message, mayBeDropped: Bool = false) {
        let (isFirst, removed) = contents.withLock { contents in
            let isFirst = contents.backlog.isEmpty
            contents.backlog.add(message, mayBeDropped: mayBeDropped)
            return (isFirst, contents.backlog.takeRemoved())
        }
        // One signal is enough for all waiting messages. With one for each, a reader that hung for a day would have to take as
        // many.
        if isFirst { semaphore.signal() }
        // A stall holds its loop, whose deinit may be the server's code, so it is released after the lock.
        withExtendedLifetime(removed) {}
    }

    /// Lets the reader end once it has taken all messages.
    func close() {
        contents.withLock { $0.isClosed = true }
        semaphore.signal()
    }

    /// Waits for messages and takes all of them. Nil when the mailbox is closed and empty. The reader's thread only.
    ///
    /// - Parameter deadline: When to return without a message.
    func take(until deadline: MonotonicInstant? = nil) -> [Message]? {
        while true {
            let (messages, isClosed) = contents.withLock { ($0.backlog.takeAll(), $0.isClosed) }
            if !messages.isEmpty { return messages }
            if isClosed { return nil }
            guard semaphore.wait(until: deadline) else { return [] }
        }
    }

    /// How many messages were dropped so far, by kind.
    var dropped: [String: Int] { contents.withLock { $0.backlog.dropped } }

    /// The largest size of the queue so far, in bytes.
    var peakBytes: Int { contents.withLock { $0.backlog.peakBytes } }
}

/// A message in a bounded queue.
protocol QueuedMessage: Sendable {
    /// Its relation to the other messages in the queue.
    var role: QueueRole { get }
    /// The name under which it is counted when it is dropped.
    var kind: String { get }
    /// Approximately how much memory it uses.
    var bytes: Int { get }
    /// The same message without its large parts. Nil if it has none.
    var lightened: Self? { get }
}

/// The relation of a message to others about the same stall, which has a number.
enum QueueRole: Hashable, Sendable {
    case opens(Int)
    /// Only the latest of its kind is needed: it replaces one that is still waiting.
    case updates(Int, UpdateKind = .length)
    case adds(Int)
    case closes(Int)
    /// It is about no stall. `latestIsEnough`: it replaces one that is still waiting.
    case alone(latestIsEnough: Bool)
    /// It changes what the reader does from now on: it replaces one that is still waiting, and is never dropped.
    case setting
    /// It ends this state, which a message of another role has begun: it takes the place of one that is still waiting, behind all
    /// others, and is never dropped. Otherwise the state would last for good.
    case ends(StallMonitorError)
    /// Somebody waits for it: it is never dropped.
    case awaited

    enum UpdateKind: Hashable, Sendable { case length, counts }
}

/// The messages that wait for a reader, bounded in number and bytes. Pure.
///
/// When a bound is exceeded, messages are dropped in this order:
/// 1. those that may be dropped, oldest first;
/// 2. whole stalls that were opened and closed before the reader took any of their messages;
/// 3. the large parts of messages about stalls that are still open.
///
/// So the bounds can only be exceeded by one opening message for each open stall, one setting, the ends of states, and what somebody waits
/// for. The reader never gets the end of a stall without its beginning.
///
/// While the watchdog adds messages it looks at nothing else, so no step iterates over the queue: each takes the same short time,
/// however many loops are watched.
struct Backlog<Message: QueuedMessage>: Sendable {
    private struct Entry: Sendable {
        var message: Message
        var role: QueueRole
        var bytes: Int
    }

    /// Keyed by their places in the queue.
    private var entries: [Int: Entry] = [:]
    private var nextPlace = 0
    /// For each role that only needs the latest message: the place of that message.
    private var latest: [QueueRole: Int] = [:]
    /// All places of a stall whose opening message is still waiting.
    private var opened: [Int: [Int]] = [:]
    /// Candidates for dropping, oldest first. Some of them may have been taken or dropped already.
    private var droppable = NumberQueue()
    private var heavy = NumberQueue()
    private var alone = NumberQueue()
    /// Numbers of stalls that were opened and closed, not places.
    private var whole = NumberQueue()
    private let capacity: Int
    private let maxBytes: Int
    private(set) var bytes = 0
    private(set) var peakBytes = 0
    /// How many were dropped, by kind. `stall_stacks` counts messages that were kept without their stacks.
    private(set) var dropped: [String: Int] = [:]
    /// What was dropped, or replaced, since it was last taken.
    private var removed: [Message] = []

    init(capacity: Int, maxBytes: Int) {
        (self.capacity, self.maxBytes) = (capacity, maxBytes)
    }

    var isEmpty: Bool { entries.isEmpty }

    mutating func add(_ message: Message, mayBeDropped: Bool) {
        let entry = Entry(message: message, role: message.role, bytes: message.bytes)
        bytes += entry.bytes
        // The state may have begun again since the last time that it ended.
        if case .ends = entry.role, let place = latest[entry.role] { remove(at: place) }
        if let place = latest[entry.role], let earlier = entries[place] {
            bytes -= earlier.bytes
            entries[place] = entry
            removed.append(earlier.message)
        } else {
            append(entry, mayBeDropped: mayBeDropped)
        }
        while entries.count > capacity || bytes > maxBytes, shed() {}
        peakBytes = max(peakBytes, bytes)
    }

    /// All messages, in order.
    mutating func takeAll() -> [Message] {
        let messages = entries.sorted { $0.key < $1.key }.map(\.value.message)
        (entries, latest, opened, bytes) = ([:], [:], [:], 0)
        (droppable, heavy, alone, whole) = (NumberQueue(), NumberQueue(), NumberQueue(), NumberQueue())
        return messages
    }

    /// The messages that were dropped, or replaced by others, since the last call.
    mutating func takeRemoved() -> [Message] { removed.take() }

    private mutating func append(_ entry: Entry, mayBeDropped: Bool) {
        let place = nextPlace
        nextPlace += 1
        entries[place] = entry
        if entry.role.latestIsEnough { latest[entry.role] = place }
        if mayBeDropped { droppable.add(place) }
        if entry.message.lightened != nil { heavy.add(place) }
        switch entry.role {
        case .opens(let number): opened[number] = [place]
        case .closes(let number):
            opened[number]?.append(place)
            if opened[number] != nil { whole.add(number) }
        case .updates(let number, _), .adds(let number): opened[number]?.append(place)
        case .alone: if !mayBeDropped { alone.add(place) }
        case .setting, .ends, .awaited: break
        }
        // Opening messages that were dropped with their stalls leave their places in the list.
        heavy.compact(to: entries)
    }

    /// Drops one message or one whole stall. False if nothing may be dropped.
    private mutating func shed() -> Bool {
        if let (place, entry) = droppable.next(in: entries) {
            count(entry.message.kind)
            remove(at: place)
            return true
        }
        if let (number, places) = whole.next(in: opened) {
            count("stalls")
            for place in places { remove(at: place) }
            opened[number] = nil
            return true
        }
        return lighten() || dropAlone()
    }

    private mutating func lighten() -> Bool {
        guard bytes > maxBytes, let (place, entry) = heavy.next(in: entries), let light = entry.message.lightened else {
            return false
        }
        count("stall_stacks")
        bytes += light.bytes - entry.bytes
        removed.append(entry.message)
        entries[place] = Entry(message: light, role: entry.role, bytes: light.bytes)
        return true
    }

    private mutating func dropAlone() -> Bool {
        guard let (place, entry) = alone.next(in: entries) else { return false }
        guard place != nextPlace - 1 else {
            // The newest message stays until there is a newer one.
            alone.add(place)
            return false
        }
        count(entry.message.kind)
        remove(at: place)
        return true
    }

    private mutating func remove(at place: Int) {
        guard let entry = entries.removeValue(forKey: place) else { return }
        bytes -= entry.bytes
        removed.append(entry.message)
        if latest[entry.role] == place { latest[entry.role] = nil }
    }

    private mutating func count(_ kind: String) { dropped[kind, default: 0] += 1 }
}

/// Numbers in the order in which they were added.
private struct NumberQueue: Sendable {
    private var numbers: [Int] = []
    private var head = 0

    mutating func add(_ number: Int) { numbers.append(number) }

    /// Takes the first number that is still present, with what belongs to it, and forgets those before it.
    mutating func next<Value>(in present: [Int: Value]) -> (Int, Value)? {
        while head < numbers.count {
            let number = numbers[head]
            head += 1
            if head > 64, head * 2 > numbers.count {
                numbers.removeFirst(head)
                head = 0
            }
            if let value = present[number] { return (number, value) }
        }
        (numbers, head) = ([], 0)
        return nil
    }

    /// Removes the numbers that are no longer present, once they are the majority.
    mutating func compact<Value>(to present: [Int: Value]) {
        guard numbers.count > 2 * present.count + 64 else { return }
        (numbers, head) = (numbers[head...].filter { present[$0] != nil }, 0)
    }
}

extension QueueRole {
    fileprivate var latestIsEnough: Bool {
        switch self {
        case .updates, .alone(latestIsEnough: true), .setting, .ends: true
        default: false
        }
    }
}
