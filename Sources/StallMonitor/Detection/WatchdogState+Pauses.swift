import RunLoopKit
import StackCapture
import StallDetection
import StallDiagnosis
import StallReports

// What is no stall, as the watchdog deals with it.

/// A time in which a loop's thread was kept from moving from outside, while the watchdog was awake.
struct OutsideDelay: Hashable, Sendable {
    var kind: PauseKind
    /// Where the loop stood.
    var pulse: LoopHeartbeat.Pulse
    var since: MonotonicInstant
    /// When it was last seen.
    var until: MonotonicInstant
}

extension WatchdogState {
    /// Whether nobody is to look at the loop.
    func isPaused(_ watched: WatchedLoop) -> Bool { watched.isPaused || pausedSince != nil }

    /// From `time` on nobody looks at the watch, or at any. A stall under way is closed: how long it goes on will not be known.
    mutating func pause(_ number: Int?, at time: MonotonicInstant) {
        for index in indices(of: number) {
            abandon(index, at: .now)
            if number != nil { watchList[index].isPaused = true }
            let number = watchList[index].identity.number
            ledger.update { $0.watches[number]?.pause(at: time) }
        }
        if let number {
            if watchesPausedSince[number] == nil, watchList.index(ofNumber: number) != nil {
                watchesPausedSince[number] = time
            }
        } else if pausedSince == nil {
            pausedSince = time
        }
        // A reader takes what the run record calls watched for watched since.
        notices.add(.checkpoint)
    }

    /// Looks again, and counts from `time` on.
    ///
    /// - Parameter missed: what the watchdog had missed by then.
    mutating func resume(_ number: Int?, at time: MonotonicInstant, missed: Duration) {
        if let number {
            closePause(of: number, at: time)
        } else {
            closeMonitorsPause(at: time)
        }
        for index in indices(of: number) {
            if number != nil { watchList[index].isPaused = false }
            guard !isPaused(watchList[index]) else { continue }
            watchList[index].resume(at: time)
            watchList.wake(watchList[index].wakeFlag.place, restedUntil: nil, missed: missed)
            let number = watchList[index].identity.number
            ledger.update { $0.watches[number]?.resume(at: time) }
        }
    }

    /// Of one watch, or of all.
    private func indices(of number: Int?) -> [Int] {
        guard let number else { return Array(watchList.loops.indices) }
        return watchList.index(ofNumber: number).map { [$0] } ?? []
    }

    /// The pauses that last until the end.
    mutating func closePauses(at time: MonotonicInstant) {
        closeMonitorsPause(at: time)
        for number in watchesPausedSince.keys.sorted() { closePause(of: number, at: time) }
    }

    private mutating func closeMonitorsPause(at time: MonotonicInstant) {
        guard let since = pausedSince.take() else { return }
        record(.monitoringPaused, from: since, to: time, watch: nil)
    }

    mutating func closePause(of number: Int, at time: MonotonicInstant) {
        guard let since = watchesPausedSince.removeValue(forKey: number) else { return }
        let label = watchList.index(ofNumber: number).map { watchList[$0].identity.name.label }
        record(.monitoringPaused, from: since, to: time, watch: label)
    }

    /// Writes down in what time the process stood still, or that the clocks have jumped.
    func note(_ absences: [Absence]) {
        for absence in absences {
            let wall = Timestamp.now()
            let start = absence.kind == .clockStep ? wall : wall.advanced(byNanoseconds: -absence.length.nanoseconds)
            let pause = RunRecord.Pause(
                kind: absence.kind,
                startedAt: start,
                durationNs: absence.length.nanoseconds
            )
            ledger.update { $0.pauses.add(pause) }
        }
        if !absences.isEmpty { notices.add(.checkpoint, mayBeDropped: true) }
    }

    private func record(_ kind: PauseKind, from start: MonotonicInstant, to end: MonotonicInstant, watch: String?) {
        let pause = RunRecord.Pause(
            kind: kind,
            startedAt: WallClockAnchor().time(of: start),
            durationNs: max(.zero, end - start).nanoseconds,
            watch: watch
        )
        ledger.update { $0.pauses.add(pause) }
        notices.add(.checkpoint, mayBeDropped: true)
    }
}

// MARK: - Stalls that are none

extension WatchdogState {
    /// A crash's handler has the loops stand: stalls under way end with what they had at the look before, as far as they are told of.
    /// Should the process live on, they are closed so, and it is looked at anew.
    mutating func noticeCrash() {
        guard crash.isUnderWay() != isCrashing else { return }
        isCrashing.toggle()
        for index in watchList.loops.indices {
            if isCrashing {
                if let stall = watchList[index].stall { notices.add(.crashing(stall.number)) }
            } else {
                abandon(index, at: .now)
                watchList[index].resume(at: .now)
            }
        }
    }

    /// Before a stall is announced: whether its thread was kept from moving from outside.
    mutating func dismisses(
        _ category: StallCategory,
        _ index: Int,
        _ span: StallSpan,
        _ pulse: LoopHeartbeat.Pulse,
        at time: MonotonicInstant
    ) -> Bool {
        guard let kind = excuse(of: index) else {
            closeHoldUp(index)
            return false
        }
        watchList[index].dismiss(category, because: kind, at: time)
        let since = watchList[index].outsideDelay?.since ?? span.earliestStart
        watchList[index].outsideDelay = OutsideDelay(kind: kind, pulse: pulse, since: since, until: time)
        return true
    }

    /// Whether the stack shows the loop's own wait: then it only has not said so. One that was found there before is taken to be there still
    /// unless its stack shows another place, which there is none of when the loop moved on at that moment.
    mutating func dismissesWait(_ index: Int, _ stack: StackOutcome, at time: MonotonicInstant) -> Bool {
        let waits = stack.captured.map { isWait($0, of: index) } ?? watchList[index].policy.wasFoundWaiting
        guard waits else { return false }
        ledger.update { $0.count(.raced) }
        watchList[index].dismiss(.blocked, because: .inWait, at: time)
        return true
    }

    private func isWait(_ stack: CapturedStack, of index: Int) -> Bool {
        guard let call = stack.systemCall, let name = call.name, Self.waits.contains(name) else { return false }
        return watchList[index].loop.waits(on: Int32(truncatingIfNeeded: call.arguments.first ?? UInt.max))
    }

    /// Calls whose first argument is what an event loop waits for.
    private static var waits: Set<String> { ["epoll_pwait", "epoll_pwait2", "epoll_wait", "io_uring_enter"] }

    /// The time between two looks that both find the thread kept from moving counts as kept. Asked when a stall has grown, and at each
    /// look while a delay from outside lasts.
    mutating func followOutsideDelay(_ index: Int, at time: MonotonicInstant) {
        let former = watchList[index].outsideDelay
        guard let pulse = watchList[index].stall?.pulse ?? former?.pulse, let kind = excuse(of: index) else {
            return closeHoldUp(index)
        }
        if let former { watchList[index].exclude(time - former.until, because: kind) }
        watchList[index].outsideDelay = OutsideDelay(
            kind: kind,
            pulse: pulse,
            since: former?.since ?? time,
            until: time
        )
    }

    /// After a look: counts what it has shown to be none. `pulse` nil: there are no more looks.
    mutating func countDismissal(_ index: Int, _ pulse: LoopHeartbeat.Pulse?) {
        if let reason = watchList[index].policy.dismissal {
            ledger.update { $0.dismissed[reason, default: 0] += 1 }
        }
        if let outsideDelay = watchList[index].outsideDelay, outsideDelay.pulse != pulse { closeHoldUp(index) }
    }

    private func excuse(of index: Int) -> PauseKind? {
        guard let thread = watchList[index].loop.thread else { return nil }
        let canBeFrozenAlone = supply.location.found?.freezesThreads ?? false
        return StallExcuse.read(threadID: thread.id, countsTraced: countsTraced, canBeFrozenAlone: canBeFrozenAlone)
    }

    private mutating func closeHoldUp(_ index: Int) {
        guard let outsideDelay = watchList[index].outsideDelay.take() else { return }
        record(
            outsideDelay.kind,
            from: outsideDelay.since,
            to: outsideDelay.until,
            watch: watchList[index].identity.name.label
        )
    }
}

extension WatchdogLedger.WatchRecord {
    mutating func pause(at time: MonotonicInstant) {
        if pausedSince == nil { pausedSince = max(time, since) }
    }

    mutating func resume(at time: MonotonicInstant) {
        guard let start = pausedSince.take() else { return }
        paused += max(.zero, time - start)
    }
}
