import RunLoopKit
import StallReports

// Times in which nothing is looked at: pauses of the monitoring, and crashes of the process.

extension WatchdogState {
    /// Whether the loop is paused, so that it is not looked at.
    func isPaused(_ watched: WatchedLoop) -> Bool { watched.isPaused || pausedSince != nil }

    /// Pauses one watch, or all, from `time` on. Ongoing stalls are closed, because their further length will not be known.
    mutating func pause(_ number: Int?, at time: MonotonicInstant) {
        for watched in loops(number) {
            watched.abandon(at: .now, with: &services)
            if number != nil, watched.pausedSince == nil { watched.pausedSince = time }
            let number = watched.identity.number
            services.ledger.update { $0.watches[number]?.pause(at: time) }
        }
        if number == nil, pausedSince == nil { pausedSince = time }
        // Readers assume that a watch listed in the run record has been watched up to now.
        services.notices.add(.checkpoint)
    }

    /// Looks again at what was paused, and counts from `time` on. A loop that was not paused is left alone: it may be stalled.
    ///
    /// - Parameter missed: How much time the watchdog had missed by then.
    mutating func resume(_ number: Int?, at time: MonotonicInstant, missed: Duration) {
        let paused = loops(number).filter { isPaused($0) }
        if number == nil { closeMonitorsPause(at: time) }
        for watched in paused {
            if number != nil { closePause(of: watched, at: time) }
            guard !isPaused(watched) else { continue }
            watched.resume(at: time)
            watchList.wake(watched, restedUntil: nil, missed: missed)
            let number = watched.identity.number
            services.ledger.update { $0.watches[number]?.resume(at: time) }
        }
    }

    /// The loop with this number; nil means all.
    private func loops(_ number: Int?) -> [WatchedLoop] {
        guard let number else { return watchList.all }
        return watchList.loop(number: number).map { [$0] } ?? []
    }

    mutating func closeMonitorsPause(at time: MonotonicInstant) {
        guard let since = pausedSince.take() else { return }
        services.record(.monitoringPaused, from: since, to: time, watch: nil)
    }

    func closePause(of watched: WatchedLoop, at time: MonotonicInstant) {
        guard let since = watched.pausedSince.take() else { return }
        services.record(.monitoringPaused, from: since, to: time, watch: watched.identity.name.label)
    }

    /// A crash handler stops all loops while it runs. That time is not part of a stall, so ongoing stalls keep the length of the
    /// last look. If the process survives, they are closed with that length, and counting starts again.
    mutating func noticeCrash() {
        guard crash.isUnderWay() != isCrashing else { return }
        isCrashing.toggle()
        for watched in watchList.all {
            if isCrashing {
                if let stall = watched.stall { services.notices.add(.crashing(stall.number)) }
            } else {
                watched.abandon(at: .now, with: &services)
                watched.resume(at: .now)
            }
        }
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
