import RunLoopKit
import StallDetection
import StallReports

/// What one watched loop's looks are to leave out: each source of such time tells how much there was so far, and this remembers
/// how much of it the previous look knew. Confined to the watchdog's thread.
struct ExcludedTimeMeter {
    private let scopes: [ExpectedSlowness]
    private var seen: [Duration]
    private var missedSeen = Duration.zero
    /// The first look since which some source could not be read. Nil when all have been.
    private var unreadSince: MonotonicInstant?
    /// The latest look.
    private var lastTaken: MonotonicInstant?
    /// What the watchdog has missed between the two latest looks.
    private(set) var lastMissed = Duration.zero

    init(_ scopes: [ExpectedSlowness]) {
        self.scopes = scopes
        seen = scopes.map { _ in .zero }
    }

    /// What the watchdog had missed before the time that now begins is no part of it.
    mutating func ignoreMissed(before missed: Duration) { missedSeen = missed }

    /// What has come since the previous look. Where two sources cover the same moment it is counted twice: that a stall is told a
    /// tick later does less harm than one that is none.
    mutating func take(at time: MonotonicInstant, missed: Duration, because reason: PauseKind) -> ExcludedTime? {
        var excluded = ExcludedTime(length: missed - missedSeen, reason: reason)
        (lastMissed, missedSeen) = (excluded.length, missed)
        excluded.since = unreadSince
        let before = lastTaken
        (lastTaken, unreadSince) = (time, nil)
        for index in scopes.indices {
            // What cannot be told now is told at the next look.
            guard let covered = scopes[index].covered(until: time) else {
                unreadSince = excluded.since ?? before
                continue
            }
            if covered > seen[index] {
                excluded.length += covered - seen[index]
                excluded.reason = scopes[index].kind
            }
            seen[index] = covered
        }
        return excluded.length > .zero ? excluded : nil
    }
}
