import Dispatch
import Synchronization
import TestSupport
import Testing

@testable import StallMonitor

extension Int: QueuedMessage {
    var role: QueueRole { .alone(latestIsEnough: false) }
    var kind: String { "numbers" }
    var bytes: Int { 8 }
    var lightened: Int? { nil }
}

/// A message that holds an object of the server.
private struct ObjectMessage: QueuedMessage {
    let role: QueueRole
    let object: CheckedObject
    var kind: String { "objects" }
    var bytes: Int { 8 }
    var lightened: ObjectMessage? { nil }
}

/// An object whose deinit uses something.
private final class CheckedObject: Sendable {
    private let use: @Sendable () -> Void
    init(use: @escaping @Sendable () -> Void) { self.use = use }
    deinit { use() }
}

@Suite("The queue from the watchdog to the reporter", .timeLimit(.minutes(10)))
struct MailboxTests {
    @Test("Messages are taken in order, all at once")
    func order() {
        let mailbox = Mailbox<Int>(capacity: 10)
        (1...3).forEach { mailbox.add($0) }
        #expect(mailbox.take() == [1, 2, 3])
    }

    @Test("If there is no room, droppable messages are dropped, oldest first, and counted; the writer never waits")
    func bounded() {
        let mailbox = Mailbox<Int>(capacity: 2)
        (1...5).forEach { mailbox.add($0, mayBeDropped: true) }
        mailbox.add(6)
        #expect(mailbox.take() == [5, 6])
        #expect(mailbox.dropped == ["numbers": 4])
    }

    @Test("The deinit of what a dropped or replaced message holds may use the queue", arguments: [true, false])
    func foreignDeinit(isReplaced: Bool) {
        let mailbox = Mailbox<ObjectMessage>(capacity: isReplaced ? 10 : 1)
        let uses = Mutex<[DispatchTimeoutResult]>([])
        for number in 0..<3 {
            let object = CheckedObject {
                // By another thread, because one that took the lock again would end the process.
                let isDone = DispatchSemaphore(value: 0)
                startThread {
                    _ = mailbox.dropped
                    isDone.signal()
                }
                // Only a queue that is locked takes so long.
                let outcome = isDone.wait(timeout: .now() + .seconds(30))
                uses.withLock { $0.append(outcome) }
            }
            let role = isReplaced ? QueueRole.updates(1) : .adds(number)
            mailbox.add(ObjectMessage(role: role, object: object), mayBeDropped: true)
        }
        #expect(uses.withLock { $0 } == [.success, .success])
        _ = mailbox.take()
    }

    @Test("A closed mailbox is read to its end")
    func close() {
        let mailbox = Mailbox<Int>(capacity: 2)
        mailbox.add(1)
        mailbox.close()
        #expect(mailbox.take() == [1])
        #expect(mailbox.take() == nil)
    }

    @Test("A waiting reader wakes for a message and for the end")
    func wakes() {
        let mailbox = Mailbox<Int>(capacity: 2)
        startThread {
            mailbox.add(7)
            mailbox.close()
        }
        var seen: [Int] = []
        while let batch = mailbox.take() { seen += batch }
        #expect(seen == [7])
    }
}
