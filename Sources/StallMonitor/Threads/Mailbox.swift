import Locking
import RunLoopKit

/// A queue from any number of threads to one. Adding never waits for the reader, however far behind that is: see ``Backlog`` for what
/// goes when the queue is full.
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

    /// Adds a message. One that may be dropped goes first when the reader is too far behind.
    func add(_ message: Message, mayBeDropped: Bool = false) {
        let isFirst = contents.withLock { contents in
            defer { contents.backlog.add(message, mayBeDropped: mayBeDropped) }
            return contents.backlog.isEmpty
        }
        // The others are found by the signal for the first: a reader that hangs for a day has no day's signals to take.
        if isFirst { semaphore.signal() }
    }

    /// Lets the reader end once it has taken what is there.
    func close() {
        contents.withLock { $0.isClosed = true }
        semaphore.signal()
    }

    /// Waits for messages and takes all. Nil when the mailbox is closed and empty. The reader's thread only.
    ///
    /// - Parameter deadline: when to return without any.
    func take(until deadline: MonotonicInstant? = nil) -> [Message]? {
        while true {
            let (messages, isClosed) = contents.withLock { ($0.backlog.takeAll(), $0.isClosed) }
            if !messages.isEmpty { return messages }
            if isClosed { return nil }
            guard let deadline else {
                semaphore.wait()
                continue
            }
            guard semaphore.wait(until: deadline) else { return [] }
        }
    }

    /// How many messages were dropped so far, by their kinds.
    var dropped: [String: Int] { contents.withLock { $0.backlog.dropped } }

    /// The most that ever waited, in bytes.
    var peakBytes: Int { contents.withLock { $0.backlog.peakBytes } }
}
