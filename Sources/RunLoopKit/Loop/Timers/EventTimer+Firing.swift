import Locking
import Synchronization

// How a timer fires, ends, and is added to a loop.

/// A loop's pass over the timers of one mode that are due.
struct TimerPass {
    /// When it began.
    let now: ClockReading
    let mode: LoopMode
    let loop: EventRunLoop
}

extension EventTimer {
    /// Removes it permanently from its loop, and frees the callback. Any thread; a running callback completes.
    public func invalidate() { release(state.withLock { Remains(taking: &$0) }) }

    /// Calls back now, due or not. Ends a one-shot timer; leaves a repeating timer's grid unchanged (R47). Call it on the
    /// timer's loop.
    public func fire() { callBack(in: nil) }

    /// Fires if the timer is still in the state in which the snapshot of due timers found it: valid, due, not in its callout,
    /// on the loop (R43). The loop's thread.
    func fireIfDue(in pass: TimerPass) { callBack(in: pass) }

    /// - Parameter pass: Whose mode's queue has just returned the timer; nil for a call of `fire()`.
    private func callBack(in pass: TimerPass?) {
        guard let callback = begin(in: pass) else { return }
        callOut(callback, timer: self)
        end(in: pass)
    }

    private func begin(in pass: TimerPass?) -> Boxed? {
        state.withLock { state in
            guard !state.isFiring, let callback = state.callback else { return nil }
            if let pass, state.places.loop !== pass.loop { return nil }
            // Another timer's callout may have moved it to a date that has been reached since then.
            if let pass, state.date.nanoseconds > pass.now.time(on: state.date.clock), !state.date.hasPassed {
                // It was moved by another thread, and is scheduled. Or the clock was set back, and it is in no queue any more.
                schedule(state)
                return nil
            }
            state.isFiring = true
            // Removed from the other queues too, so that a nested run neither fires it nor waits for it.
            state.places.forEach { other, ticket in
                if other !== pass?.mode { other.withTimers { $0.withdraw(ticket) } }
            }
            return callback
        }
    }

    /// Without a pass the grid stays unchanged (R47).
    private func end(in pass: TimerPass?) {
        var elsewhere: EventRunLoop?
        let remains: Remains? = state.withLock { state in
            state.isFiring = false
            let moved = state.movedTo.take()
            guard repeats, state.callback != nil else { return Remains(taking: &state) }
            if let moved, moved > state.date.nanoseconds || pass == nil {
                state.date.nanoseconds = moved
            } else if pass != nil {
                state.date.nanoseconds = nextOnGrid(after: state.date.nanoseconds, now: state.date.clock.now)
            }
            schedule(state)
            // The callout may have moved it to another loop, and `fire()` may be on another thread.
            if let pass, state.places.isIn(pass.mode) { return nil }
            elsewhere = state.places.loop
            return nil
        }
        if let remains { release(remains) }
        elsewhere?.wakeUpFromElsewhere()
    }

    /// The first date of the grid through `served` that is later than it and than now: missed fires collapse into one (R44,
    /// R50).
    private func nextOnGrid(after served: UInt64, now: UInt64) -> UInt64 {
        let missed = now.subtractingSaturated(served) / intervalNanoseconds
        let (distance, overflows) = intervalNanoseconds.multipliedReportingOverflow(by: missed + 1)
        return overflows ? .max : served.addingSaturated(distance)
    }

    /// What an ended timer leaves to be freed outside the locks.
    private struct Remains {
        let callback: Boxed?
        let places: TimerPlaces
        let commonLoop: EventRunLoop?

        /// Ends the timer: from here on it is in no mode and has no callback.
        init(taking state: inout State) {
            callback = state.callback.take()
            places = state.places.take()
            commonLoop = state.commonLoop.take()
            places.leaveQueues()
        }
    }

    private func release(_ remains: consuming Remains) {
        remains.commonLoop?.forgetCommon(self)
    }
}

// MARK: - Adding to modes and removing from them

extension EventTimer: LoopItem {
    func attach(to mode: LoopMode, of loop: EventRunLoop) throws(RunLoopError) -> Bool {
        try state.withLock { state throws(RunLoopError) in
            guard state.callback != nil else { throw RunLoopError(.itemInvalid) }
            let present = state.places.loop ?? state.commonLoop
            guard present == nil || present === loop else { throw RunLoopError(.itemOnOtherLoop) }
            guard !state.places.isIn(mode) else { return false }
            let (date, isFiring) = (state.date, state.isFiring)
            let ticket = mode.withTimers { timers in
                let ticket = timers.insert(self)
                if !isFiring { timers.place(ticket, at: date, order: Int32(clamping: order)) }
                return ticket
            }
            state.places.append(mode, of: loop, ticket: ticket)
            mode.population.add(1, ordering: .releasing)
            return true
        }
    }

    func detach(from mode: LoopMode) -> Bool {
        state.withLock { state in
            guard let ticket = state.places.leave(mode) else { return false }
            let staysOnLoop = state.places.loop != nil
            mode.withTimers { if staysOnLoop { $0.leave(ticket) } else { $0.remove(ticket) } }
            mode.population.subtract(1, ordering: .releasing)
            return true
        }
    }

    func isAttached(to mode: LoopMode) -> Bool { state.withLock { $0.places.isIn(mode) } }

    func noteCommon(_ isRecorded: Bool, on loop: EventRunLoop) {
        state.withLock { $0.commonLoop.noteCommon(isRecorded, on: loop) }
    }

    /// A sleeping loop does not know the new date yet (R27).
    func didAttach(to mode: LoopMode, of loop: EventRunLoop) { loop.wakeUpFromElsewhere() }
}
