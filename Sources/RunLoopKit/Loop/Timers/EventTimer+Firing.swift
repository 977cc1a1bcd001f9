import Locking
import Synchronization

// How a timer fires, ends, and is added to a loop.

extension EventTimer {
    /// Removes it permanently from its loop, and frees the callback. Any thread; a running callback completes.
    public func invalidate() { release(state.withLock { Remains(taking: &$0) }) }

    /// Calls back now, due or not. Ends a one-shot timer; leaves a repeating timer's grid unchanged (R47). Call it on the
    /// timer's loop.
    public func fire() {
        guard let callback = begin(dueAt: nil, in: nil, of: nil) else { return }
        callOut(callback, timer: self)
        end(in: nil)
    }

    /// Fires if the timer is still in the state in which the snapshot of due timers found it: valid, due, not in its callout,
    /// on the loop (R43). The loop's thread.
    func fireIfDue(at now: ClockReading, in mode: LoopMode, of loop: EventRunLoop) {
        guard let callback = begin(dueAt: now, in: mode, of: loop) else { return }
        callOut(callback, timer: self)
        end(in: mode)
    }

    /// - Parameters:
    ///   - now: Nil for a call of `fire()`.
    ///   - mode: The mode whose queue has just returned the timer.
    private func begin(dueAt now: ClockReading?, in mode: LoopMode?, of loop: EventRunLoop?) -> Boxed? {
        state.withLock { state in
            guard !state.isFiring, let callback = state.callback else { return nil }
            if let loop, state.places.loop !== loop { return nil }
            // Another timer's callout may have moved it to a date that has been reached since then.
            if let now, state.date.nanoseconds > now.time(on: state.date.clock), !state.date.hasPassed {
                // It was moved by another thread, and is scheduled. Or the clock was set back, and it is in no queue any more.
                schedule(state)
                return nil
            }
            state.isFiring = true
            // Removed from the other queues too, so that a nested run neither fires it nor waits for it.
            state.places.forEach { other, ticket in
                if other !== mode { other.withTimers { $0.withdraw(ticket) } }
            }
            return callback
        }
    }

    /// - Parameter mode: Nil for a call of `fire()`, which leaves the grid unchanged.
    private func end(in mode: LoopMode?) {
        var elsewhere: EventRunLoop?
        let remains: Remains? = state.withLock { state in
            state.isFiring = false
            let moved = state.movedTo.take()
            guard repeats, state.callback != nil else { return Remains(taking: &state) }
            if let moved, moved > state.date.nanoseconds || mode == nil {
                state.date.nanoseconds = moved
            } else if mode != nil {
                state.date.nanoseconds = nextOnGrid(after: state.date.nanoseconds, now: state.date.clock.now)
            }
            schedule(state)
            // The callout may have moved it to another loop, and `fire()` may be on another thread.
            if let mode, state.places.isIn(mode) { return nil }
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
