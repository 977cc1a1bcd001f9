/// The known points in which Foundation's run loop on Linux does less than
/// the rules require. Each is handled in one of three ways, and counted:
///
/// - mended: the missing behaviour is added to Foundation at that moment, and the traces must then be equal;
/// - avoided: the player leaves out the operation, for both engines, based on the events so far;
/// - cut: the traces are compared up to this point.
///
/// `--without NAME` disables the handling: then there must be scripts that differ, otherwise the entry does not belong here.
enum KnownDifference: String, CaseIterable, Sendable {
    /// R14, mended: a wake-up that occurs together with due timers or the main queue is consumed with them. Foundation spends a
    /// separate turn on it, in the order in which the kernel reports the events.
    case wakeUpTurn
    /// R25, mended: Foundation loses a wake-up or a stop's wake-up made between the end of a sleep and the next turn.
    case lostWakeUp
    /// R22, mended: a stop by another thread that a nested run did not answer,
    /// because it ended for another reason, ends the outer run. Foundation loses it.
    case lateStop
    /// R22, mended: a stop that a run makes itself, after its turn's wait, leaves no wake-up behind. In Foundation it does, in a
    /// run that was nested in a turn before its wait and stopped by its entry observers.
    case stopWakesNextRun
    /// R25, mended: a wake-up or a stop that a nested run has consumed is
    /// passed on to the outer run; in Foundation the outer run keeps sleeping.
    case nestedWakeUp
    /// R18, R23, mended: a run's timeout ends its own sleeps. In Foundation it wakes the innermost run, whichever that is, and
    /// only once; the outer run may then sleep forever.
    case outerTimeout
    /// R27, mended: a timer added from another thread is considered in a separate turn. Foundation only arms the kernel timer.
    case timerFromElsewhere
    /// R6, mended: a mode that another thread makes common, or the loop's own before it sleeps, is considered in a separate turn:
    /// blocks may wait for it. Foundation does not wake.
    case commonFromElsewhere
    /// R14, mended: Foundation never disarms the kernel timer, which then wakes the loop for a timer that no longer exists.
    case staleTimer
    /// R14, R23, mended: a timer whose date has ended a sleep is fired by a run inside the observers of that event. Foundation
    /// has already consumed the kernel's notification, and its nested run continues to sleep, possibly to its end.
    case timerInAfterWaiting
    /// R58, mended: work of the main queue that arrives between the end of a sleep and the drain is executed in that drain.
    /// Foundation wakes for it once more, without any work.
    case drainForNothing
    /// R6, R38, mended: items enter a mode that becomes common in the order
    /// in which they became common items; in Foundation in any order.
    case commonItemOrder
    /// R32, cut: whether a source was handled is the OR over the pass; in Foundation only the last source decides.
    case lastSourceDecides
    /// R23, avoided: a source in its callout is not entered again. Foundation enters it if it was signalled in the meantime.
    case sourceEntersItself
    /// R43, avoided: a due timer that another timer's callout moves to a future date, or removes and adds again, waits for a
    /// later turn. Foundation checks when the pass reaches the timer, and fires it if it is in the mode and due by then.
    case movedInPass
    /// R23, R43, cut: a nested run takes over the timers that the outer pass has not reached. If such a timer repeats and is due
    /// again when the outer pass continues, Foundation fires it in that pass, and this loop in a later turn.
    case takenOverTimer
    /// R23, R43, avoided: a due timer that has left the mode, but not the loop, is not fired by the pass when a nested run takes
    /// over the pass. Foundation's nested run leaves it to the outer pass.
    case leftModeInPass
    /// R51, avoided: while Foundation runs the blocks of one mode, the blocks
    /// of the other modes are not visible, and a nested run finds none.
    case hiddenBlocks
    /// R51, avoided: blocks are matched when they are taken. Foundation matches each block immediately before it runs, so that an
    /// earlier block can make the running mode common for it.
    case lateCommonMode
    /// R6, avoided: an item of the common modes stays one. Foundation denies
    /// this for a timer that has been removed from each mode by name.
    case commonTimerInNoMode
    /// R6, avoided: an item that has ended is no longer one of the common modes. In Foundation it stays one if it was in no mode
    /// when it ended.
    case endedCommonItem
    /// R63, avoided: the date of a mode's next timer does not include timers in their callout. Foundation includes them.
    case earliestOfFiringTimer
    /// R58, avoided: a mode that becomes common while it runs serves the
    /// main queue from then on; in Foundation only from the next run on.
    case commonWhileRunning
    /// R58, avoided: work of the main queue that has ended a sleep is served by a run inside the observers of that event;
    /// Foundation's nested run is not notified of it, and sleeps.
    case mainQueueInAfterWaiting

    // R16: with work pending this loop polls the kernel only now and then, within bounds that
    // other tests prove. On main threads it is configured to poll in each turn, like Foundation
    // (see `MainProcess`); on other threads only wake-ups, which need no polling, are compared.

    // The generator avoids the following completely: equal fire dates (R41: Foundation
    // ignores the order), dates in the past (it replaces them by now), tolerance (R46: it
    // ignores it), manual fire (R47: it does not have it), descriptors (R35: it reads them).
}

/// The number of times that each known difference occurred.
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
