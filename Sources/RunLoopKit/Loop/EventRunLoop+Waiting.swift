import Glibc
import Synchronization

/// What a turn handles: exactly one of these (R14 i).
enum Arrival {
    case nothing
    case wakeUp
    case timers(now: ClockReading)
    case mainQueue
    case descriptor(DescriptorTable.Delivery)
}

extension EventRunLoop {
    /// Returns what the turn handles, found by a poll or a sleep (R14 f to i).
    ///
    /// - Parameter hasHandled: The turn has performed a source, and therefore only polls (R15).
    func nextArrival(_ activation: Activation, hasHandled: Bool) -> Arrival {
        let mode = activation.mode
        let looks = !activation.skipsLook && servesMainQueue(in: mode)
        if looks && mainQueue.isReady { return mainQueueWithWakeUp() }
        let pollsOnly = hasHandled || activation.pollsOnly || endsWithLoop(activation)
        if pollsOnly { return poll(activation, mainQueueFirst: looks) }
        // Needed only if there are observers: they must not see a sleep if the queue is ready. Without observers the sleep
        // finds it at once.
        if looks, mode.observedActivities.load(ordering: .acquiring) & Activity.aroundWaiting.rawValue != 0 {
            harvest(mode, for: .zero)
            if mainQueue.isReady { return mainQueueWithWakeUp() }
        }
        return sleep(activation, mainQueueFirst: looks)
    }

    /// A wake-up that arrives together with work ends with that work, as in `choose`: the next turn checks everything.
    private func mainQueueWithWakeUp() -> Arrival {
        _ = wake.consume()
        return .mainQueue
    }

    /// Returns what has arrived, without waiting and without calling observers (R15).
    private func poll(_ activation: Activation, mainQueueFirst: Bool) -> Arrival {
        let mode = activation.mode
        // With only the wake descriptor in the set there is no need to poll the kernel: the state of `wake` is sufficient.
        let mayHaveEvents = servesMainQueue(in: mode) || mode.hasDescriptors.load(ordering: .acquiring)
        let isPollDue = mayHaveEvents && (activation.pollsOnly || mode.poller.countBusyTurn())
        let isFresh = isPollDue && pollKernel(mode)
        return choose(in: mode, wokenUp: wake.consume(), mainQueueFirst: mainQueueFirst, isFresh: isFresh)
    }

    /// Sleeps until something arrives or the run times out (R14 g, h). The loop is at rest only here.
    private func sleep(_ activation: Activation, mainQueueFirst: Bool) -> Arrival {
        let mode = activation.mode
        notify(.beforeWaiting, in: mode)
        heartbeat.publish(.waiting, modeIndex: mode.index, turn: heartbeat.pulse.turn)
        let arrival = waitForArrival(activation, mainQueueFirst: mainQueueFirst)
        waitsAhead.store(false, ordering: .relaxed)
        let isObserved = mode.observedActivities.load(ordering: .relaxed) & Activity.afterWaiting.rawValue != 0
        notify(.afterWaiting, in: mode)
        // Timers that became due while the observers ran belong to the same snapshot (R43).
        if isObserved, case .timers = arrival {
            return .timers(now: .now(withWall: mode.timerOutlook.hasWallClockTimers))
        }
        return arrival
    }

    private func waitForArrival(_ activation: Activation, mainQueueFirst: Bool) -> Arrival {
        let mode = activation.mode
        while prepareToWait(in: mode) {
            let isFresh = sleepUnlessBusy(activation)
            let arrival = choose(
                in: mode,
                wokenUp: wake.consume(),
                mainQueueFirst: mainQueueFirst,
                isFresh: isFresh
            )
            if case .nothing = arrival, !activation.isOver { continue }
            return arrival
        }
        return sleepWithoutDescriptors(activation)
    }

    /// Sleeps in the kernel until an event, the earliest date or a wake-up. With work at hand the loop does not sleep, and polls the
    /// kernel only if that is due.
    ///
    /// - Returns: Whether the kernel's events have just been harvested.
    private func sleepUnlessBusy(_ activation: Activation) -> Bool {
        let mode = activation.mode
        // In this order: a change whose wake-up comes after this line ends the wait below; an earlier one is seen.
        let isWoken = !wake.prepareToSleep(in: mode.poller.place)
        let isPollDue = (isWoken || hasReady(mode)) && mode.poller.countBusyTurn()
        // These may have been all the work at hand: then the loop sleeps after all.
        if isPollDue { mode.forgetExpected() }
        if isWoken || hasReady(mode) { return isPollDue && pollKernel(mode) }
        harvest(mode, for: timeToWait(activation), awaiting: activation.completion?.awaited)
        return true
    }

    /// Chooses among what is ready (R36). The main queue precedes everything else in a turn that checks it, and follows
    /// everything else in a turn that gives way to the others (R16), unless the one before has passed it over. Timers and
    /// descriptors alternate.
    ///
    /// - Parameter isFresh: The kernel has just been polled.
    private func choose(in mode: LoopMode, wokenUp: Bool, mainQueueFirst: Bool, isFresh: Bool) -> Arrival {
        let isMainQueueReady = mainQueue.isReady && servesMainQueue(in: mode)
        if isMainQueueReady && (mainQueueFirst || mainQueue.wasPassedOver) { return .mainQueue }
        let timersFirst = timersGoFirst.load(ordering: .relaxed)
        let arrival =
            timersFirst
            ? dueTimers(in: mode) ?? readyDescriptor(in: mode, isFresh: isFresh)
            : readyDescriptor(in: mode, isFresh: isFresh) ?? dueTimers(in: mode)
        switch arrival {
        case .timers?: timersGoFirst.store(false, ordering: .relaxed)
        case .descriptor?: timersGoFirst.store(true, ordering: .relaxed)
        default: break
        }
        if let arrival {
            if isMainQueueReady { mainQueue.notePassedOver() }
            return arrival
        }
        if isMainQueueReady { return .mainQueue }
        return wokenUp ? .wakeUp : .nothing
    }

    private func dueTimers(in mode: LoopMode) -> Arrival? {
        let outlook = mode.timerOutlook
        guard !outlook.isEmpty else { return nil }
        let now = ClockReading.now(withWall: outlook.hasWallClockTimers)
        return outlook.earliestFire(at: now) <= now.monotonic ? .timers(now: now) : nil
    }

    private func readyDescriptor(in mode: LoopMode, isFresh: Bool) -> Arrival? {
        guard mode.hasReadyDescriptors.load(ordering: .acquiring) else { return nil }
        return mode.withDescriptors { $0.takeReady(freshHarvest: isFresh ? $1.harvest : nil, poller: $1) }
            .map { .descriptor($0) }
    }

    /// Whether an event harvested earlier is still to be delivered.
    private func hasReady(_ mode: LoopMode) -> Bool {
        mode.hasReadyDescriptors.load(ordering: .acquiring) || (mainQueue.isReady && servesMainQueue(in: mode))
    }

    /// Nil for no limit.
    private func timeToWait(_ activation: Activation) -> Duration? {
        if activation.completion?.isSet == true { return .zero }
        let outlook = activation.mode.timerOutlook
        if outlook.isEmpty && activation.deadline == .distantFuture { return nil }
        let now = ClockReading.now(withWall: outlook.hasWallClockTimers)
        // A timer that is already due is fired before the loop sleeps again; one that becomes due in the sleep can wait for its
        // deadline.
        if outlook.earliestFire(at: now) <= now.monotonic { return .zero }
        var deadline = min(activation.deadline.nanoseconds, outlook.earliestDeadline(at: now))
        if outlook.hasWallClockTimers, !activation.mode.poller.watchesClock.load(ordering: .relaxed) {
            deadline = min(deadline, now.monotonic.addingSaturated(ClockWatch.substituteInterval))
        }
        return deadline == .max ? nil : .nanoseconds(Int64(clamping: deadline.subtractingSaturated(now.monotonic)))
    }
}

// MARK: - The kernel

extension EventRunLoop {
    /// Ensures that the mode has its epoll set, on main with the main queue in it if possible. False if the process has no
    /// descriptors left.
    private func prepareToWait(in mode: LoopMode) -> Bool {
        mode.poller.giveUpIfLost(wake)
        // The loop may find that a program has closed the set only when it adds to it. It then makes another one at once: threads that
        // wake it signal in the set that it has when it goes to sleep.
        for _ in 0..<2 {
            guard openSet(of: mode) else { return false }
            if missesMainQueue(mode) { mainQueue.watch(in: mode) }
            if mode.timerOutlook.hasWallClockTimers { clockWatch.watch(in: mode, losses: wake.losses) }
            if mode.poller.isOpen { break }
        }
        return true
    }

    /// False if the process has no descriptors left.
    private func openSet(of mode: LoopMode) -> Bool {
        guard !mode.poller.isOpen else { return true }
        do {
            try mode.withDescriptors { descriptors, poller throws(RunLoopError) in
                try descriptors.openSet(of: poller, for: wake)
            }
            return true
        } catch {
            LoopWarning.outOfResources.printOnce()
            return false
        }
    }

    /// Polls the kernel without waiting; returns whether that was a harvest.
    ///
    /// While harvested descriptors wait for their delivery no more are needed: descriptors that became ready since then are
    /// taken after these. The main queue does not wait for that.
    private func pollKernel(_ mode: LoopMode) -> Bool {
        mode.forgetExpected()
        guard mode.hasReadyDescriptors.load(ordering: .acquiring) else {
            harvest(mode, for: .zero)
            return true
        }
        if servesMainQueue(in: mode), !missesMainQueue(mode) { mainQueue.check() }
        mode.poller.notePolled()
        return false
    }

    /// Whether the set should contain the main queue and does not.
    private func missesMainQueue(_ mode: LoopMode) -> Bool {
        isMain && mode.isCommon.load(ordering: .acquiring) && !mode.poller.watchesMainQueue.load(ordering: .relaxed)
            && mainQueue.isUsable
    }

    /// Takes the events that the kernel has, or those that arrive within the timeout.
    ///
    /// - Parameter wait: What the thread waits for in a run that waits for something else than events.
    private func harvest(_ mode: LoopMode, for timeout: Duration?, awaiting wait: PortWait? = nil) {
        guard prepareToWait(in: mode) else {
            // A run that only polls does not come to `sleepWithoutDescriptors`, which does the same.
            if servesMainQueue(in: mode) { mainQueue.checkUnwatched() }
            return
        }
        let lacksMainQueue = missesMainQueue(mode)
        let pause = Self.pauseWithoutDescriptors
        let limit = lacksMainQueue ? min(timeout ?? pause, pause) : timeout
        mode.poller.wait(for: limit, awaiting: wait.map { ($0, mode: mode.index) }) { events in
            if noteOwn(events) { note(events, in: mode) }
            // The main queue does not wait for the delivery of so many descriptors.
            if events.isFull, !lacksMainQueue, !mainQueue.isReady, servesMainQueue(in: mode) { mainQueue.check() }
        }
        if lacksMainQueue { mainQueue.checkUnwatched() }
    }

    /// Notes the events of the loop's own descriptors; returns whether there are others.
    private func noteOwn(_ events: borrowing Poller.Events) -> Bool {
        var hasOthers = false
        for index in events.indices {
            switch events[index].token {
            case Poller.wakeToken: break  // `wake` has the state
            case Poller.mainQueueToken: mainQueue.noteEvent()
            case Poller.clockToken: break  // the loop sleeps again, with the dates as they are now
            default: hasOthers = true
            }
        }
        return hasOthers
    }

    private func note(_ events: borrowing Poller.Events, in mode: LoopMode) {
        mode.withDescriptors { descriptors, poller in
            for index in events.indices {
                descriptors.note(events[index].token, events: events[index].events, harvest: poller.harvest)
            }
            guard descriptors.needsNewSet else { return }
            poller.close()
            // If it fails, the next wait tries again.
            try? descriptors.openSet(of: poller, for: wake)
        }
    }

    /// How late the loop may serve what it cannot wait for because it has no descriptors.
    private static let pauseWithoutDescriptors = Duration.milliseconds(10)

    /// Replaces the wait while the process has no descriptor for an epoll set: everything except descriptors continues,
    /// slightly late.
    private func sleepWithoutDescriptors(_ activation: Activation) -> Arrival {
        while true {
            if !wake.isPending {
                let pauseTime = min(
                    timeToWait(activation) ?? Self.pauseWithoutDescriptors,
                    Self.pauseWithoutDescriptors
                )
                var pause = timespec(tv_sec: 0, tv_nsec: Int(pauseTime.nanoseconds))
                unsafe nanosleep(&pause, nil)
            }
            if servesMainQueue(in: activation.mode) { mainQueue.checkUnwatched() }
            let arrival = choose(
                in: activation.mode,
                wokenUp: wake.consume(),
                mainQueueFirst: false,
                isFresh: false
            )
            if case .nothing = arrival, !activation.isOver, !prepareToWait(in: activation.mode) { continue }
            return arrival
        }
    }
}
