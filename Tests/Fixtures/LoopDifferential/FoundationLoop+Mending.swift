import CFoundationRunLoop

// Adds the behaviour that Foundation is known to lack. See `KnownDifference`.

extension FoundationLoop {
    /// R25: repeats the requested wake-up, if Foundation has lost it.
    func keepWakeUp() {
        guard !simulated_kernel_is_readable(wakeFd), player.meets(.lostWakeUp) else { return }
        _ = simulated_kernel_set_readable(wakeFd, true)
    }

    /// R22: stops the loop, and adjusts whether that wakes it.
    func stop(waking: Bool) {
        let isAwaited = currentMode != nil
        let wasWoken = simulated_kernel_is_readable(wakeFd)
        unsafe CFRunLoopStop(loop.ref)
        guard isAwaited else { return }
        if waking { return keepWakeUp() }
        guard !wasWoken, simulated_kernel_is_readable(wakeFd), player.meets(.stopWakesNextRun) else { return }
        _ = simulated_kernel_set_readable(wakeFd, false)
    }

    /// R25: a wake-up or a stop that a nested run has consumed is passed on to the outer run.
    func handingOnWakeUps(_ run: () -> Int32) -> Int32 {
        let outer = player.frames.dropLast().last
        let result = run()
        guard let frame = player.frames.last, player.frames.count > 1, frame.hasEntered else { return result }
        let outerWaits = outer?.waitsAhead ?? false
        if frame.isStoppedFromElsewhere, result != 2, player.meets(.lateStop) { stop(waking: outerWaits) }
        guard (outerWaits && outer?.isStopped == true) || frame.hasTakenWakeUp else { return result }
        if !simulated_kernel_is_readable(wakeFd), player.meets(.nestedWakeUp) {
            _ = simulated_kernel_set_readable(wakeFd, true)
        }
        return result
    }

    /// R27: wakes the loop if another thread's operation has added a timer to a mode.
    func lookingAtNewTimers(_ operation: () -> Void) {
        guard player.isOnOtherThread else { return operation() }
        let before = placesOfTimers()
        operation()
        guard placesOfTimers() > before, player.meets(.timerFromElsewhere) else { return }
        _ = simulated_kernel_set_readable(wakeFd, true)
    }

    /// R6: wakes the loop if another thread has made a mode common, or its own between the beginning of a turn and the sleep.
    func wakeForCommonMode(_ place: Place) {
        guard case .mode(let mode) = place, !player.commonModes.contains(mode) else { return }
        guard player.isOnOtherThread || player.frames.contains(where: \.waitsAhead) else { return }
        guard !simulated_kernel_is_readable(wakeFd), player.meets(.commonFromElsewhere) else { return }
        _ = simulated_kernel_set_readable(wakeFd, true)
    }

    /// R38: adds the observers in order, before Foundation adds them in any order.
    func addCommonObservers(to place: Place) {
        guard case .mode(let mode) = place, !player.commonModes.contains(mode) else { return }
        commonObservers.removeAll { !contains(.observer($0), in: .common) }
        let orders = commonObservers.map { player.script.observers[$0].order }
        guard Set(orders).count < orders.count, player.meets(.commonItemOrder) else { return }
        for observer in commonObservers { add(.observer(observer), to: place) }
    }

    private func placesOfTimers() -> Int {
        (modes + foreignModes).reduce(0) { sum, mode in
            sum + timers.count { unsafe CFRunLoopContainsTimer(loop.ref, $0.ref, mode.ref) != 0 }
        }
    }

    /// Returns the ready descriptor of the innermost run's mode: the timer's, the main queue's,
    /// the wake-up's, in this order. In a turn that checks the main queue, the main queue is first
    /// (R14 f), even if its work arrived after the check, or if a turn has passed it over. Foundation uses the kernel's order.
    func arrival(maySleep: Bool) -> Int32 {
        let last = player.frames.count - 1
        let frame = player.frames[last]
        defer {
            player.frames[last].hasLookedAtMainQueue = false
            player.frames[last].waitsAhead = false
        }
        while true {
            if frame.hasLookedAtMainQueue || hasPassedOverMainQueue, isMainQueueReady {
                takeWakeUpAlong()
                return mainQueueFd
            }
            if isTimerDue(in: frame.mode) {
                if isMainQueueReady { hasPassedOverMainQueue = true }
                takeWakeUpAlong()
                simulated_kernel_disarm(timerFds[frame.mode])
                _ = simulated_kernel_set_readable(timerFds[frame.mode], true)
                return timerFds[frame.mode]
            }
            if isMainQueueReady {
                takeWakeUpAlong()
                return mainQueueFd
            }
            if simulated_kernel_is_readable(wakeFd) {
                player.frames[last].hasTakenWakeUp = true
                return wakeFd
            }
            guard maySleep else { return -1 }
            if hasTimedOut() {
                _ = simulated_kernel_set_readable(wakeFd, true)
                return wakeFd
            }
            _ = player.rest(until: min(nextTimer(in: frame.mode), nextDeadline()))
        }
    }

    /// R14: the turn has checked the main queue before it waits.
    func noteLook(isReady: Bool) {
        player.frames[player.frames.count - 1].hasLookedAtMainQueue = !isReady
        if isReady { player.frames[player.frames.count - 1].waitsAhead = false }
        if isReady { takeWakeUpAlong() }
    }

    private var isMainQueueReady: Bool { player.kernel.servesMainQueue && simulated_kernel_is_readable(mainQueueFd) }

    /// R58: the drain that is beginning executes all pending work, so the work requests no further drain.
    func voidWorkOfThisDrain() {
        guard simulated_kernel_is_readable(mainQueueFd), player.meets(.drainForNothing) else { return }
        _ = simulated_kernel_set_readable(mainQueueFd, false)
    }

    /// R14: a wake-up that arrives together with another event is consumed with it.
    func takeWakeUpAlong() {
        guard simulated_kernel_is_readable(wakeFd), player.meets(.wakeUpTurn) else { return }
        _ = simulated_kernel_set_readable(wakeFd, false)
        player.frames[player.frames.count - 1].hasTakenWakeUp = true
    }

    /// Decided by the timers themselves; if that is disabled, by the kernel timer that Foundation has armed.
    private func isTimerDue(in mode: Int) -> Bool {
        let armed = simulated_kernel_armed_ns(timerFds[mode])
        let asked = armed != 0 && armed <= player.kernel.now
        let isDue = timers.indices.contains { isPending($0, in: mode) && fireDate(of: $0) <= player.kernel.now }
        guard isDue != asked else { return asked }
        let hasUsedItUp = isDue && isInsideAfterWaiting(of: mode)
        return player.meets(hasUsedItUp ? .timerInAfterWaiting : .staleTimer) ? isDue : asked
    }

    private func isInsideAfterWaiting(of mode: Int) -> Bool {
        player.frames.dropLast().contains { $0.isWoken && $0.mode == mode }
    }

    private func isPending(_ timer: Int, in mode: Int) -> Bool {
        !player.firing.contains(timer) && contains(.timer(timer), in: .mode(mode))
    }

    private func nextTimer(in mode: Int) -> UInt64 {
        if player.without.contains(.staleTimer) {
            let armed = simulated_kernel_armed_ns(timerFds[mode])
            return armed == 0 ? .max : armed
        }
        let dates = timers.indices.filter { isPending($0, in: mode) }.map { fireDate(of: $0) }
        // The kernel does not report an expiration again that was already consumed.
        let leavesOutDue = player.without.contains(.timerInAfterWaiting) && isInsideAfterWaiting(of: mode)
        return dates.filter { !leavesOutDue || $0 > player.kernel.now }.min() ?? .max
    }

    /// R18: the timeout of the sleeping run has passed. If that is disabled,
    /// like Foundation: the timeout of any run, and each only once.
    private func hasTimedOut() -> Bool {
        let now = player.kernel.now
        guard player.without.contains(.outerTimeout) else {
            if player.frames.dropLast().contains(where: { ($0.deadline ?? .max) <= now }) {
                _ = player.meets(.outerTimeout)
            }
            return (player.frames.last?.deadline ?? .max) <= now
        }
        var hasTimedOut = false
        for index in player.frames.indices where !player.frames[index].hasTimedOut {
            guard (player.frames[index].deadline ?? .max) <= now else { continue }
            player.frames[index].hasTimedOut = true
            hasTimedOut = true
        }
        return hasTimedOut
    }

    private func nextDeadline() -> UInt64 {
        guard player.without.contains(.outerTimeout) else { return player.frames.last?.deadline ?? .max }
        return player.frames.filter { !$0.hasTimedOut }.map { $0.deadline ?? .max }.min() ?? .max
    }
}
