/// Where Foundation's run loop on Linux is known to do less than the rules ask, each met in one of three ways, and counted:
///
/// - mended: Foundation is given what it lacks, at the moment it lacks it, and the traces must then be equal;
/// - avoided: the player leaves out the operation, for both engines, by what it has seen so far;
/// - cut: the traces are compared up to this point.
///
/// `--without NAME` meets it in none: then there must be scripts that differ, or the entry has no place here.
enum KnownDifference: String, CaseIterable, Sendable {
    /// R14, mended: a wake-up that comes together with due timers or the main queue ends with them. Foundation gives it a turn of its own,
    /// in the order in which the kernel tells of them.
    case wakeUpTurn
    /// R25, mended: Foundation forgets a wake-up or a stop's wake-up made between a sleep's end and the next turn.
    case lostWakeUp
    /// R25, mended: a wake-up or a stop that a nested run has taken is passed on to the outer run, which Foundation lets sleep.
    case nestedWakeUp
    /// R18, R23, mended: a run's timeout ends its own sleeps. Foundation's wakes whatever run is innermost, once; the outer may then sleep
    /// for ever.
    case outerTimeout
    /// R27, mended: a timer added from another thread is looked at in a turn of its own. Foundation only arms the kernel's timer.
    case timerFromElsewhere
    /// R14, mended: Foundation never disarms the kernel's timer, which then wakes the loop for a timer that has gone.
    case staleTimer
    /// R6, R38, mended: items enter a mode that becomes common in the order in which they became common ones; in Foundation in any.
    case commonItemOrder
    /// R32, cut: whether a source was handled is the OR over the pass; in Foundation it is the last one's word.
    case lastSourceDecides
    /// R23, avoided: a source in its callout is not entered again. Foundation enters it if it was signalled meanwhile.
    case sourceEntersItself
    /// R51, avoided: while Foundation runs one mode's blocks, the other modes' blocks are out of its sight, and a nested run finds none.
    case hiddenBlocks
    /// R51, avoided: blocks are matched when they are taken. Foundation matches each when its turn comes, so that a block before it can
    /// make the running mode common for it.
    case lateCommonMode
    /// R6, avoided: an item of the common modes stays one. Foundation denies it for a timer that has been taken out of each by name.
    case commonTimerInNoMode
    /// R63, avoided: the date of a mode's next timer leaves out timers in their callout. Foundation counts them.
    case earliestOfFiringTimer

    // What the generator avoids altogether: equal fire dates (R41: Foundation ignores the order), dates in the past (it takes them for
    // now), tolerance (R46: it ignores it), fire by hand (R47: it has none), descriptors (R35: it reads them).
}

/// How often each known difference was met.
struct Meetings: Sendable {
    private var counts = [Int](repeating: 0, count: KnownDifference.allCases.count)

    subscript(_ difference: KnownDifference) -> Int {
        get { counts[Meetings.index(difference)] }
        set { counts[Meetings.index(difference)] = newValue }
    }

    static func += (left: inout Meetings, right: Meetings) {
        for index in left.counts.indices { left.counts[index] += right.counts[index] }
    }

    private static func index(_ difference: KnownDifference) -> Int {
        KnownDifference.allCases.firstIndex(of: difference) ?? 0
    }
}
