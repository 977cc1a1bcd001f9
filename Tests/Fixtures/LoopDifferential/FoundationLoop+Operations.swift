import CFoundationRunLoop
import Synchronization

extension FoundationLoop {
    func add(_ item: Item, to place: Place) {
        switch item {
        case .source(let index): unsafe CFRunLoopAddSource(loop.ref, sources[index].ref, mode(place))
        case .timer(let index):
            lookingAtNewTimers { unsafe CFRunLoopAddTimer(loop.ref, timers[index].ref, mode(place)) }
        case .observer(let index):
            unsafe CFRunLoopAddObserver(loop.ref, observers[index].ref, mode(place))
            if place == .common, !commonObservers.contains(index) { commonObservers.append(index) }
        }
    }

    func remove(_ item: Item, from place: Place) {
        switch item {
        case .source(let index): unsafe CFRunLoopRemoveSource(loop.ref, sources[index].ref, mode(place))
        case .timer(let index): unsafe CFRunLoopRemoveTimer(loop.ref, timers[index].ref, mode(place))
        case .observer(let index):
            unsafe CFRunLoopRemoveObserver(loop.ref, observers[index].ref, mode(place))
            if place == .common { commonObservers.removeAll { $0 == index } }
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

    func addCommonMode(_ place: Place) {
        addCommonObservers(to: place)
        lookingAtNewTimers { unsafe CFRunLoopAddCommonMode(loop.ref, mode(place)) }
        wakeForCommonMode(place)
        if player.isOnMain, place != .mode(0) { mainCommonModes.withLock { _ = $0.insert(place.name(player.suffix)) } }
    }

    func stop() { stop(waking: player.isOnOtherThread || player.frames.last?.waitsAhead ?? false) }

    func wake() {
        unsafe CFRunLoopWakeUp(loop.ref)
        keepWakeUp()
    }

    func run(_ place: Place, for timeout: UInt64?, returnAfterSource: Bool) -> Int32 {
        handingOnWakeUps {
            unsafe CFRunLoopRunInMode(mode(place), timeout.map { Double($0) / 1e9 } ?? 1e10, returnAfterSource ? 1 : 0)
        }
    }

    func runForEver() {
        _ = handingOnWakeUps {
            CFRunLoopRun()
            // A stop takes precedence over a finish, so every stop has been answered by whatever ended the run.
            return 2
        }
    }

    func end() {
        for index in recorders.indices { unsafe CFRunLoopObserverInvalidate(recorders[index].ref) }
    }

    var currentMode: Place? {
        guard let current = unsafe CFRunLoopCopyCurrentMode(loop.ref) else { return nil }
        defer { unsafe CFRelease(current) }
        return modes.firstIndex { unsafe CFEqual($0.ref, current) != 0 }.map { .mode($0) }
    }

    var isWaiting: Bool { unsafe CFRunLoopIsWaiting(loop.ref) != 0 }

    private func nanoseconds(_ date: Double) -> UInt64 { UInt64((date * 1e9).rounded()) }

    private func isScheduled(_ timer: Int) -> Bool {
        (modes + foreignModes).contains { unsafe CFRunLoopContainsTimer(loop.ref, timers[timer].ref, $0.ref) != 0 }
    }
}
