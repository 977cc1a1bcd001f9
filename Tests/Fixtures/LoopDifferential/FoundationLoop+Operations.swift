import CFoundationRunLoop

extension FoundationLoop {
    func add(_ item: Item, to place: Place) {
        switch item {
        case .source(let index): unsafe CFRunLoopAddSource(loop.ref, sources[index].ref, mode(place))
        case .timer(let index): lookingAtNewTimers { unsafe CFRunLoopAddTimer(loop.ref, timers[index].ref, mode(place)) }
        case .observer(let index): unsafe CFRunLoopAddObserver(loop.ref, observers[index].ref, mode(place))
        }
    }

    func remove(_ item: Item, from place: Place) {
        switch item {
        case .source(let index): unsafe CFRunLoopRemoveSource(loop.ref, sources[index].ref, mode(place))
        case .timer(let index): unsafe CFRunLoopRemoveTimer(loop.ref, timers[index].ref, mode(place))
        case .observer(let index): unsafe CFRunLoopRemoveObserver(loop.ref, observers[index].ref, mode(place))
        }
    }

    func contains(_ item: Item, in place: Place) -> Bool {
        switch item {
        case .source(let index): unsafe CFRunLoopContainsSource(loop.ref, sources[index].ref, mode(place)) != 0
        case .timer(let index): unsafe CFRunLoopContainsTimer(loop.ref, timers[index].ref, mode(place)) != 0
        case .observer(let index): unsafe CFRunLoopContainsObserver(loop.ref, observers[index].ref, mode(place)) != 0
        }
    }

    func invalidate(_ item: Item) {
        switch item {
        case .source(let index): unsafe CFRunLoopSourceInvalidate(sources[index].ref)
        case .timer(let index): unsafe CFRunLoopTimerInvalidate(timers[index].ref)
        case .observer(let index): unsafe CFRunLoopObserverInvalidate(observers[index].ref)
        }
    }

    func isValid(_ item: Item) -> Bool {
        switch item {
        case .source(let index): unsafe CFRunLoopSourceIsValid(sources[index].ref) != 0
        case .timer(let index): unsafe CFRunLoopTimerIsValid(timers[index].ref) != 0
        case .observer(let index): unsafe CFRunLoopObserverIsValid(observers[index].ref) != 0
        }
    }

    func signal(_ source: Int) { unsafe CFRunLoopSourceSignal(sources[source].ref) }

    func isSignalled(_ source: Int) -> Bool { unsafe CFRunLoopSourceIsSignalled(sources[source].ref) != 0 }

    func setFireDate(of timer: Int, to date: UInt64) {
        unsafe CFRunLoopTimerSetNextFireDate(timers[timer].ref, Double(date) / 1e9)
        if player.isOnOtherThread, isScheduled(timer) { keepWakeUp() }
    }

    func fireDate(of timer: Int) -> UInt64 { unsafe nanoseconds(CFRunLoopTimerGetNextFireDate(timers[timer].ref)) }

    func earliestFireDate(in place: Place) -> UInt64? {
        let date = unsafe CFRunLoopGetNextTimerFireDate(loop.ref, mode(place))
        return date == 0 ? nil : nanoseconds(date)
    }

    func enqueue(for places: [Place], _ body: @escaping @Sendable () -> Void) {
        if places.count == 1 { return unsafe CFRunLoopPerformBlock(loop.ref, mode(places[0]), body) }
        let names: [UnsafeRawPointer] = unsafe places.map { unsafe mode($0) }
        let array = unsafe cf_array_of(names, names.count)
        unsafe CFRunLoopPerformBlock(loop.ref, array, body)
        unsafe CFRelease(array)
    }

    func addCommonMode(_ place: Place) { lookingAtNewTimers { unsafe CFRunLoopAddCommonMode(loop.ref, mode(place)) } }

    func stop() {
        unsafe CFRunLoopStop(loop.ref)
        if currentMode != nil { keepWakeUp() }
    }

    func wake() {
        unsafe CFRunLoopWakeUp(loop.ref)
        keepWakeUp()
    }

    func run(_ place: Place, for timeout: UInt64?, returnAfterSource: Bool) -> Int32 {
        handingOnWakeUps {
            unsafe CFRunLoopRunInMode(mode(place), timeout.map { Double($0) / 1e9 } ?? 1e10, returnAfterSource ? 1 : 0)
        }
    }

    func runForEver() { _ = handingOnWakeUps { CFRunLoopRun(); return 0 } }

    var currentMode: Place? {
        guard let current = unsafe CFRunLoopCopyCurrentMode(loop.ref) else { return nil }
        defer { unsafe CFRelease(current) }
        return modes.firstIndex { unsafe CFEqual($0.ref, current) != 0 }.map { .mode($0) }
    }

    var isWaiting: Bool { unsafe CFRunLoopIsWaiting(loop.ref) != 0 }

    private func nanoseconds(_ date: Double) -> UInt64 { UInt64((date * 1e9).rounded()) }

    private func isScheduled(_ timer: Int) -> Bool {
        modes.indices.contains { contains(.timer(timer), in: .mode($0)) }
    }
}

// MARK: - What it is known to lack

extension FoundationLoop {
    /// R25: makes the wake-up that was asked for, if Foundation has forgotten it.
    private func keepWakeUp() {
        guard !simulated_kernel_is_readable(wakeFd), player.meets(.lostWakeUp) else { return }
        _ = simulated_kernel_set_readable(wakeFd, true)
    }

    /// R25: a wake-up or a stop that a nested run has taken is passed on.
    private func handingOnWakeUps(_ run: () -> Int32) -> Int32 {
        let wasStopped = player.frames.dropLast().last?.isStopped ?? false
        let result = run()
        guard let frame = player.frames.last, player.frames.count > 1, frame.hasEntered else { return result }
        guard wasStopped || frame.hasTakenWakeUp else { return result }
        if !simulated_kernel_is_readable(wakeFd), player.meets(.nestedWakeUp) {
            _ = simulated_kernel_set_readable(wakeFd, true)
        }
        return result
    }

    /// R27: wakes the loop if another thread's operation has brought a timer into a mode.
    private func lookingAtNewTimers(_ operation: () -> Void) {
        guard player.isOnOtherThread else { return operation() }
        let before = placesOfTimers()
        operation()
        guard placesOfTimers() > before, player.meets(.timerFromElsewhere) else { return }
        _ = simulated_kernel_set_readable(wakeFd, true)
    }

    private func placesOfTimers() -> Int {
        modes.indices.reduce(0) { sum, mode in
            sum + timers.indices.count { contains(.timer($0), in: .mode(mode)) }
        }
    }

    /// Which descriptor of the innermost run's mode is ready: the timer's, the main queue's, the wake-up's, in this order.
    func arrival(maySleep: Bool) -> Int32 {
        let frame = player.frames[player.frames.count - 1]
        while true {
            if isTimerDue(in: frame.mode) {
                takeWakeUpAlong()
                simulated_kernel_disarm(timerFds[frame.mode])
                _ = simulated_kernel_set_readable(timerFds[frame.mode], true)
                return timerFds[frame.mode]
            }
            if player.kernel.servesMainQueue, simulated_kernel_is_readable(mainQueueFd) {
                takeWakeUpAlong()
                return mainQueueFd
            }
            if simulated_kernel_is_readable(wakeFd) {
                player.frames[player.frames.count - 1].hasTakenWakeUp = true
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

    /// R14: a wake-up that comes with something else ends with it.
    private func takeWakeUpAlong() {
        guard simulated_kernel_is_readable(wakeFd), player.meets(.wakeUpTurn) else { return }
        _ = simulated_kernel_set_readable(wakeFd, false)
        player.frames[player.frames.count - 1].hasTakenWakeUp = true
    }

    /// By the timers themselves; without that, by what Foundation has asked of the kernel.
    private func isTimerDue(in mode: Int) -> Bool {
        let armed = simulated_kernel_armed_ns(timerFds[mode])
        let asked = armed != 0 && armed <= player.kernel.now
        let isDue = timers.indices.contains { isPending($0, in: mode) && fireDate(of: $0) <= player.kernel.now }
        return isDue == asked || !player.meets(.staleTimer) ? asked : isDue
    }

    private func isPending(_ timer: Int, in mode: Int) -> Bool {
        !player.firing.contains(timer) && contains(.timer(timer), in: .mode(mode))
    }

    private func nextTimer(in mode: Int) -> UInt64 {
        if player.without.contains(.staleTimer) {
            let armed = simulated_kernel_armed_ns(timerFds[mode])
            return armed == 0 ? .max : armed
        }
        return timers.indices.filter { isPending($0, in: mode) }.map { fireDate(of: $0) }.min() ?? .max
    }

    /// R18: the time of the run that sleeps is over. Without that, Foundation's way: any run's, and each once.
    private func hasTimedOut() -> Bool {
        let now = player.kernel.now
        guard player.without.contains(.outerTimeout) else {
            if player.frames.dropLast().contains(where: { ($0.deadline ?? .max) <= now }) { _ = player.meets(.outerTimeout) }
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
