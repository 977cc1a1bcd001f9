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
    /// R22, mended: a stop by another thread that a nested run has not answered, because it ended otherwise, ends the outer run. In
    /// Foundation it is lost.
    case lateStop
    /// R22, mended: a stop that a run makes itself, after its turn's wait, leaves no wake-up behind. In Foundation it does in a run that
    /// was nested in a turn before its wait, and stopped by its entry observers.
    case stopWakesNextRun
    /// R25, mended: a wake-up or a stop that a nested run has taken is passed on to the outer run, which Foundation lets sleep.
    case nestedWakeUp
    /// R18, R23, mended: a run's timeout ends its own sleeps. Foundation's wakes whatever run is innermost, once; the outer may then sleep
    /// for ever.
    case outerTimeout
    /// R27, mended: a timer added from another thread is looked at in a turn of its own. Foundation only arms the kernel's timer.
    case timerFromElsewhere
    /// R14, mended: Foundation never disarms the kernel's timer, which then wakes the loop for a timer that has gone.
    case staleTimer
    /// R14, R23, mended: a timer whose date has ended a sleep is fired by a run inside the observers of that. Foundation has used up what the
    /// kernel told of it, and its nested run sleeps on, if need be to its end.
    case timerInAfterWaiting
    /// R58, mended: the main queue's work that comes between the end of a sleep and the drain is done in that drain. Foundation wakes for
    /// it once more, for nothing.
    case drainForNothing
    /// R6, R38, mended: items enter a mode that becomes common in the order in which they became common ones; in Foundation in any.
    case commonItemOrder
    /// R32, cut: whether a source was handled is the OR over the pass; in Foundation it is the last one's word.
    case lastSourceDecides
    /// R23, avoided: a source in its callout is not entered again. Foundation enters it if it was signalled meanwhile.
    case sourceEntersItself
    /// R43, avoided: a due timer that another's callout moves to a date still to come, or takes out and puts in again, waits for a later
    /// turn; Foundation looks when the timer's turn in the pass comes, and fires it if it is there and due by then.
    case movedInPass
    /// R23, R43, cut: a nested run takes over what the outer pass has not come to. If such a timer repeats and is due again when the outer
    /// pass goes on, Foundation fires it in that pass, and this loop in a later turn.
    case takenOverTimer
    /// R23, R43, avoided: a due timer that has left the mode, but not the loop, loses its turn when a nested run takes over the pass.
    /// Foundation's nested run leaves it to the outer pass.
    case leftModeInPass
    /// R51, avoided: while Foundation runs one mode's blocks, the other modes' blocks are out of its sight, and a nested run finds none.
    case hiddenBlocks
    /// R51, avoided: blocks are matched when they are taken. Foundation matches each when its turn comes, so that a block before it can
    /// make the running mode common for it.
    case lateCommonMode
    /// R6, avoided: an item of the common modes stays one. Foundation denies it for a timer that has been taken out of each by name.
    case commonTimerInNoMode
    /// R63, avoided: the date of a mode's next timer leaves out timers in their callout. Foundation counts them.
    case earliestOfFiringTimer
    /// R58, avoided: a mode that becomes common while it runs serves the main queue from then on; in Foundation from the next run on.
    case commonWhileRunning
    /// R58, avoided: work of the main queue that has ended a sleep is served by a run inside the observers of that; Foundation's nested run
    /// is not told of it, and sleeps.
    case mainQueueInAfterWaiting

    // R16: with work at hand this loop asks the kernel only now and then, within bounds that other tests prove. On main threads it is told
    // to ask in each turn, as Foundation does (see `MainProcess`); elsewhere nothing but wake-ups, which need no asking, is compared.

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
