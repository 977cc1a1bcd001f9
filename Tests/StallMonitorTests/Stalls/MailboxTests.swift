import TestSupport
import Testing

@testable import StallMonitor

extension Int: QueuedMessage {
    var role: QueueRole { .alone(latestIsEnough: false) }
    var kind: String { "numbers" }
    var bytes: Int { 8 }
    var lightened: Int? { nil }
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
