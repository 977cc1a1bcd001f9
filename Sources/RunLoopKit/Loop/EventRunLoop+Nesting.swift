import Synchronization

// Runs within runs (R12, R23): what becomes of the outer run's state, its stops and its wake-ups.

/// What a run sets aside when it begins, and restores when it ends: the state of the run that it is nested in, or of the idle loop.
struct OuterRun {
    let pulse: LoopHeartbeat.Pulse
    /// `Stop` bits: of the loop, and of the mode that the nested run is in.
    let stops: UInt8
    let modeStops: UInt8
    let hasConsumedWakeUp: Bool
    /// Whether its turn has still to reach its wait or its poll; and whether that of a run further out has.
    let waits: Bool
    let anyFurtherOutWaits: Bool

    var isRunning: Bool { pulse.phase != .idle }
}

extension EventRunLoop {
    func setOuterRunAside(for mode: LoopMode) -> OuterRun {
        let outer = OuterRun(
            pulse: heartbeat.pulse,
            stops: stopRequests.exchange(0, ordering: .acquiringAndReleasing),
            modeStops: mode.stopRequests.exchange(0, ordering: .acquiringAndReleasing),
            hasConsumedWakeUp: wake.wasConsumed.exchange(false, ordering: .relaxed),
            waits: waitsAhead.exchange(false, ordering: .relaxed),
            anyFurtherOutWaits: outerWaitsAhead.load(ordering: .relaxed)
        )
        if outer.waits { outerWaitsAhead.store(true, ordering: .relaxed) }
        return outer
    }

    func resume(_ outer: OuterRun, afterRunOf mode: LoopMode, _ result: RunResult) {
        let passesOn = restore(outer.stops, to: stopRequests, after: result)
        _ = restore(outer.modeStops, to: mode.stopRequests, after: result)
        // With a turn number of its own, so that a watcher sees the return as a transition even if the phase is the same as
        // before.
        heartbeat.publish(outer.pulse.phase, modeIndex: outer.pulse.modeIndex, turn: heartbeat.pulse.turn &+ 1)
        waitsAhead.store(outer.waits, ordering: .relaxed)
        outerWaitsAhead.store(outer.anyFurtherOutWaits, ordering: .relaxed)
        // A wake-up that the nested run has consumed may have been meant for the outer run, which may be about to sleep.
        let hasConsumed = wake.wasConsumed.exchange(outer.hasConsumedWakeUp, ordering: .relaxed)
        let isToEnd = outer.stops != 0 || passesOn || isEnding
        if outer.isRunning, hasConsumed || (outer.waits && isToEnd) { wake.post() }
    }

    /// Restores the outer run's stop requests. A stop by another thread that this run has not answered, because it ended for
    /// another reason in that turn, is added to them: the other thread does not know about nested runs. A stop by this thread was
    /// for this run (R22). Without an outer run nobody sees what is left here: a run begins without a stop.
    ///
    /// - Returns: Whether one was added.
    private func restore(_ outer: UInt8, to requests: borrowing Atomic<UInt8>, after result: RunResult) -> Bool {
        let stops = requests.exchange(outer, ordering: .acquiringAndReleasing)
        guard stops & Stop.fromElsewhere != 0, result != .stopped else { return false }
        requests.bitwiseOr(Stop.fromElsewhere, ordering: .acquiringAndReleasing)
        return true
    }
}
