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
        let isFirst = contents.withLock { contents in
            defer { contents.backlog.add(message, mayBeDropped: mayBeDropped) }
            return contents.backlog.isEmpty
        }
        // One signal is enough for all waiting messages. With one for each, a reader that hung for a day would have to take as
        // many.
        if isFirst { semaphore.signal() }
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

/// The relation of a message to others about the same subject, which has a number.
enum QueueRole: Hashable, Sendable {
    case opens(Int)
    /// Only the latest of its kind is needed: it replaces one that is still waiting.
    case updates(Int, UpdateKind = .length)
    case adds(Int)
    case closes(Int)
    /// It has no subject. `latestIsEnough`: it replaces one that is still waiting.
    case alone(latestIsEnough: Bool)

    enum UpdateKind: Hashable, Sendable { case length, counts }
}
