import RunLoopKit
import StallReports

/// Time that counts towards no stall.
struct Discount: Hashable, Sendable {
    var length: Duration
    var reason: PauseKind
    /// Since when it was not told, if that is longer ago than the previous look.
    var since: MonotonicInstant?
}

/// What one watched loop's looks are to leave out: each source of such time tells how much there was so far, and this remembers
/// how much of it the previous look knew. Confined to the watchdog's thread.
struct DiscountMeter {
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
    mutating func take(at time: MonotonicInstant, missed: Duration, because reason: PauseKind) -> Discount? {
        var discount = Discount(length: missed - missedSeen, reason: reason)
        (lastMissed, missedSeen) = (discount.length, missed)
        discount.since = unreadSince
        let before = lastTaken
        (lastTaken, unreadSince) = (time, nil)
        for index in scopes.indices {
            // What cannot be told now is told at the next look.
            guard let covered = scopes[index].covered(until: time) else {
                unreadSince = discount.since ?? before
                continue
            }
            if covered > seen[index] {
                discount.length += covered - seen[index]
                discount.reason = scopes[index].kind
            }
            seen[index] = covered
        }
        return discount.length > .zero ? discount : nil
    }
}
