/// A queue from any number of threads to one. Adding never waits for the reader. It is bounded for messages that may be dropped;
/// the others are few.
final class Mailbox<Message: Sendable>: Sendable {
    private struct Contents {
        var messages: [Message] = []
        var dropped = 0
        var isClosed = false
    }

    private let contents = ForkSafeMutex(Contents())
    private let semaphore = TickSemaphore()
    private let capacity: Int

    init(capacity: Int) {
        self.capacity = capacity
    }

    /// Adds a message. One that may be dropped is, and counted, when the reader is `capacity` messages behind.
    func add(_ message: Message, mayBeDropped: Bool = false) {
        contents.withLock { contents in
            guard !mayBeDropped || contents.messages.count < capacity else {
                contents.dropped += 1
                return
            }
            contents.messages.append(message)
        }
        semaphore.signal()
    }

    /// Lets the reader end once it has taken what is there.
    func close() {
        contents.withLock { $0.isClosed = true }
        semaphore.signal()
    }

    /// Waits for messages and takes all. Nil when the mailbox is closed and empty. The reader's thread only.
    func take() -> [Message]? {
        while true {
            let (messages, isClosed) = contents.withLock { contents in
                defer { contents.messages = [] }
                return (contents.messages, contents.isClosed)
            }
            if !messages.isEmpty { return messages }
            if isClosed { return nil }
            semaphore.wait()
        }
    }

    /// How many messages were dropped so far.
    var dropped: Int { contents.withLock { $0.dropped } }
}
