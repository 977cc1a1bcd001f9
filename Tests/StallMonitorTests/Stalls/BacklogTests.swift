import Testing

@testable import StallMonitor

/// A message for the tests: `opens(1)` weighs 100 bytes and can be lightened to 1, the others weigh 1.
private struct Message: QueuedMessage, Hashable, CustomStringConvertible {
    var role: QueueRole
    var isLight = false
    var kind: String { if case .adds = role { "samples" } else { "other" } }
    var bytes: Int { lightened == nil ? 1 : 100 }
    var lightened: Message? {
        guard case .opens = role, !isLight else { return nil }
        return Message(role: role, isLight: true)
    }
    var description: String { "\(role)\(isLight ? " light" : "")" }
}

@Suite("Messages that wait for a slow reporter")
struct BacklogTests {
    private func opens(_ number: Int) -> Message { Message(role: .opens(number)) }
    private func closes(_ number: Int) -> Message { Message(role: .closes(number)) }
    private func sample(_ number: Int) -> Message { Message(role: .adds(number)) }

    @Test("Lengths do not replace counts, nor counts lengths")
    func kindsOfUpdates() {
        var backlog = Backlog<Message>(capacity: 10, maxBytes: 1000)
        let roles: [QueueRole] = [.updates(1), .updates(1, .counts), .updates(1), .updates(1, .counts)]
        for role in roles { backlog.add(Message(role: role), mayBeDropped: true) }
        #expect(backlog.takeAll().map(\.role) == [.updates(1), .updates(1, .counts)])
    }

    @Test("Only the latest length, and the latest request for the run record, are kept")
    func latest() {
        var backlog = Backlog<Message>(capacity: 10, maxBytes: 1000)
        for number in [1, 2, 1] { backlog.add(Message(role: .updates(number)), mayBeDropped: true) }
        for _ in 0..<3 { backlog.add(Message(role: .alone(latestIsEnough: true)), mayBeDropped: false) }
        let taken = backlog.takeAll().map(\.role)
        #expect(taken == [.updates(1), .updates(2), .alone(latestIsEnough: true)])
        #expect(backlog.dropped.isEmpty && backlog.isEmpty)
    }

    @Test("Samples are dropped first, the oldest of them")
    func samples() {
        var backlog = Backlog<Message>(capacity: 3, maxBytes: 1000)
        backlog.add(opens(1), mayBeDropped: false)
        for _ in 0..<4 { backlog.add(sample(1), mayBeDropped: true) }
        backlog.add(closes(1), mayBeDropped: false)
        let left = backlog.takeAll()
        #expect(left == [opens(1), sample(1), closes(1)])
        #expect(backlog.dropped == ["samples": 3])
    }

    @Test("After the samples whole stalls are dropped, oldest first; never a beginning or an end alone")
    func wholeStalls() {
        var backlog = Backlog<Message>(capacity: 4, maxBytes: 10_000)
        // The reader already knows of 0; 1 is ongoing.
        for message in [opens(1), closes(0)] { backlog.add(message, mayBeDropped: false) }
        for number in 2...50 {
            backlog.add(opens(number), mayBeDropped: false)
            backlog.add(closes(number), mayBeDropped: false)
        }
        let left = backlog.takeAll()
        #expect(left == [opens(1), closes(0), opens(50), closes(50)])
        #expect(backlog.dropped == ["stalls": 48])
    }

    @Test(
        "Ongoing stalls are never dropped, but lose their stacks if these are too large",
        arguments: [2, 10]
    )
    func lightened(capacity: Int) {
        var backlog = Backlog<Message>(capacity: capacity, maxBytes: 250)
        for number in 1...4 { backlog.add(opens(number), mayBeDropped: false) }
        let light = (1...2).map { Message(role: .opens($0), isLight: true) }
        let left = backlog.takeAll()
        #expect(left == light + [opens(3), opens(4)])
        #expect(backlog.dropped == ["stall_stacks": 2] && backlog.peakBytes <= 250)
    }

    @Test("Messages about no stall are bounded as well; the newest stays")
    func alone() {
        var backlog = Backlog<Message>(capacity: 2, maxBytes: 10_000)
        for number in 1...3 { backlog.add(opens(number), mayBeDropped: false) }
        for _ in 0..<100 { backlog.add(Message(role: .alone(latestIsEnough: false)), mayBeDropped: false) }
        let left = backlog.takeAll()
        #expect(left.count == 4 && left.last?.role == .alone(latestIsEnough: false))
        #expect(backlog.dropped == ["other": 99])
    }

    @Test("A rule that a configuration has changed is not dropped, however many stalls wait; the latest one counts")
    func setting() {
        var backlog = Backlog<StallNotice>(capacity: 2, maxBytes: 1 << 20)
        let rules = [RepeatRule(window: .seconds(1)), RepeatRule(window: .seconds(2))]
        for rule in rules { backlog.add(.adopt(rule), mayBeDropped: false) }
        for number in 1...4 { backlog.add(.began(QuietLoop().stall(number)), mayBeDropped: false) }
        let left = backlog.takeAll().compactMap { if case .adopt(let rule) = $0 { rule } else { nil } }
        #expect(left == [rules[1]])
    }

    @Test("The end of a fault is not dropped, however many stalls wait, and comes after its latest report")
    func faultsEnd() {
        var backlog = Backlog<StallNotice>(capacity: 2, maxBytes: 1 << 20)
        let codes: [StallMonitorError.Code] = [.captureUnavailable, .configurationOutOfRange, .configurationOutOfRange]
        let errors = zip(codes, ["a", "b", "c"]).map { StallMonitorError($0, $1) }
        for error in errors { backlog.add(.mended(error), mayBeDropped: false) }
        for number in 1...4 { backlog.add(.began(QuietLoop().stall(number)), mayBeDropped: false) }
        backlog.add(.fault(errors[0]), mayBeDropped: false)
        backlog.add(.mended(errors[0]), mayBeDropped: false)
        backlog.add(.settled {}, mayBeDropped: false)
        backlog.add(.began(QuietLoop().stall(5)), mayBeDropped: false)
        var (ends, isSettled) = ([StallMonitorError](), false)
        for notice in backlog.takeAll() {
            if case .mended(let error) = notice { ends.append(error) }
            if case .settled = notice { isSettled = true }
        }
        #expect(ends == [errors[1], errors[2], errors[0]] && isSettled)
    }

    @Test("Ten thousand stalls at once, with a stalled reporter, are one message each")
    func manyLoops() {
        var backlog = Backlog<Message>(capacity: 256, maxBytes: 25_600)
        for number in 0..<10_000 { backlog.add(opens(number), mayBeDropped: false) }
        for number in 0..<10_000 { backlog.add(closes(number), mayBeDropped: false) }
        let left = backlog.takeAll()
        #expect(left.count == 256 && left.last == closes(9_999))
        #expect(Set(left.filter { $0.role == .opens(9_999) }).count == 1)
        #expect(backlog.dropped["stalls"] == 9_872)
    }
}
