import RunLoopKit
import StallDetection
import StallReports

@testable import StallMonitor

/// A loop without a thread of its own: the test drives its heartbeat.
final class QuietLoop: WatchableLoop {
    let label: String
    let heartbeat = LoopHeartbeat()
    private let threadID: Int32?
    private let whenAsked: @Sendable () -> Void
    /// The watchdog asks for it in the middle of a look.
    var thread: LoopThread? {
        whenAsked()
        return threadID.map { LoopThread(id: $0, stack: 0..<0) }
    }

    /// - Parameter threadID: Whose counts are taken for those of the loop's thread.
    init(_ label: String = "quiet", threadID: Int32? = nil, whenAsked: @escaping @Sendable () -> Void = {}) {
        (self.label, self.threadID, self.whenAsked) = (label, threadID, whenAsked)
    }

    func modeName(at index: Int) -> String? { nil }
    func leaveRest() { heartbeat.publish(.afterWaiting) }
    func rest() { heartbeat.publish(.waiting) }

    /// A stall of this loop that was just detected and of which nothing else is known. Without `span` it began now.
    ///
    /// - Parameter service: Of another process whose loop it is.
    func stall(
        _ number: Int = 1,
        _ category: StallCategory = .blocked,
        span: StallSpan? = nil,
        service: String? = nil
    ) -> StallObservation {
        let now = MonotonicInstant.now
        return StallObservation(
            number: number,
            reportID: .make(),
            watch: WatchIdentity(number: 1, name: .init(type: .runLoop, label: label, service: service), since: now),
            loop: .loop(self),
            category: category,
            rule: StallRule(),
            pulse: heartbeat.pulse,
            span: span ?? .exact(from: now, to: now),
            detectedAt: now,
            threadID: nil,
            evidence: nil,
            stack: .raced,
            samples: [],
            busy: nil,
            site: nil
        )
    }
}

/// A round over quiet loops, driven by a test instead of the watchdog's thread.
struct RoundUnderTest: ~Copyable {
    let watchdog = Watchdog()
    let notices = Mailbox<StallNotice>(capacity: 10_000)
    let ledger = WatchdogLedger()
    var round: WatchdogState
    private var added = 0

    /// - Parameter source: By default one that takes no stacks.
    init(_ source: StackSource = StackSource(signal: 0) { _ in }) {
        round = WatchdogState(notices: notices, ledger: ledger, stackSource: source, wakeFlags: watchdog.wakeFlags)
    }

    /// Watches a loop; returns the watch's number.
    @discardableResult
    mutating func watch(
        _ loop: QuietLoop,
        rule: StallRule = StallRule(),
        followsConfiguration: Bool = false,
        scopes: [ExpectedSlowness] = []
    ) -> Int {
        let wakeFlag = watchdog.wakeFlags.makeFlag(for: watchdog)
        precondition(loop.heartbeat.attach(wakeFlag))
        added += 1
        let identity = WatchIdentity(
            number: added,
            name: .init(type: .runLoop, label: loop.label),
            since: .now,
            followsConfiguration: followsConfiguration
        )
        round.add(
            WatchedLoop(identity: identity, loop: .loop(loop), rule: rule, wakeFlag: wakeFlag, scopes: scopes)
        )
        return added
    }

    /// How many loops one look visits.
    mutating func visitsOfALook() -> Int {
        let before = ledger.snapshot.loopLooks
        round.look()
        return ledger.snapshot.loopLooks - before
    }

    /// The notices so far.
    func takeNotices() -> [StallNotice] {
        // So that `take` does not wait.
        notices.add(.checkpoint)
        return notices.take() ?? []
    }
}
