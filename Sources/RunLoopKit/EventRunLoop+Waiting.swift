internal import Glibc
internal import Synchronization

/// What a turn handles: exactly one (R14 i).
enum Arrival {
    case nothing
    case wakeUp
    case timers(now: MonotonicInstant)
    case mainQueue
    case descriptor(DescriptorTable.Delivery)
}

extension EventRunLoop {
    /// Looks at the main queue without waiting; if it is ready, it goes first (R14 f).
    func look(_ activation: inout Activation) -> Arrival? {
        let mode = activation.mode
        activation.hasHarvested = false
        guard !activation.skipsLook, servesMainQueue(in: mode) else { return nil }
        if !mainQueue.isReady {
            harvest(mode, for: .zero)
            activation.hasHarvested = true
        }
        return mainQueue.isReady ? .mainQueue : nil
    }

    /// What has arrived, without waiting and without a word to observers (R15).
    func poll(_ activation: Activation) -> Arrival {
        let mode = activation.mode
        // With nothing but the wake-up eventfd in the set there is no need to ask the kernel: `wake` knows.
        let asksKernel = servesMainQueue(in: mode) || mode.hasDescriptors.load(ordering: .acquiring)
        if asksKernel && !activation.hasHarvested { harvest(mode, for: .zero) }
        return nextArrival(in: mode, wokenUp: wake.consume())
    }

    /// Sleeps until something arrives or the run's time is over (R14 g, h). At rest is the loop only here.
    func sleep(_ activation: Activation) -> Arrival {
        let mode = activation.mode
        notify(.beforeWaiting, in: mode)
        heartbeat.publish(.waiting, modeIndex: mode.index, turn: heartbeat.pulse.turn)
        let arrival = waitForArrival(activation)
        let isObserved = mode.observedActivities.load(ordering: .relaxed) & Activity.afterWaiting.rawValue != 0
        notify(.afterWaiting, in: mode)
        // What has become due while the observers ran is in the same snapshot (R43).
        if isObserved, case .timers = arrival { return .timers(now: .now) }
        return arrival
    }

    private func waitForArrival(_ activation: Activation) -> Arrival {
        let mode = activation.mode
        while prepareToWait(in: mode) {
            // In this order: a change that comes with a wake-up after this line ends the wait below; one that came before it is seen.
            let sleeps = wake.prepareToSleep()
            harvest(mode, for: sleeps && !hasReady(mode) ? timeToWait(activation) : .zero)
            let arrival = nextArrival(in: mode, wokenUp: wake.consume())
            if case .nothing = arrival, !activation.deadline.hasPassed { continue }
            return arrival
        }
        return nap(activation)
    }

    /// Chooses among what is ready (R36). Timers and descriptors take turns. The main queue comes after both, because it goes before
    /// both in every turn that looks at it, and a turn that does not is one that gives way to them (R16).
    private func nextArrival(in mode: LoopMode, wokenUp: Bool) -> Arrival {
        let timersFirst = timersGoFirst.load(ordering: .relaxed)
        let arrival =
            timersFirst
            ? dueTimers(in: mode) ?? readyDescriptor(in: mode) : readyDescriptor(in: mode) ?? dueTimers(in: mode)
        switch arrival {
        case .timers?: timersGoFirst.store(false, ordering: .relaxed)
        case .descriptor?: timersGoFirst.store(true, ordering: .relaxed)
        default: break
        }
        if let arrival { return arrival }
        if mainQueue.isReady && servesMainQueue(in: mode) { return .mainQueue }
        return wokenUp ? .wakeUp : .nothing
    }

    private func dueTimers(in mode: LoopMode) -> Arrival? {
        let earliest = mode.earliestFire
        guard earliest != .distantFuture else { return nil }
        let now = MonotonicInstant.now
        return earliest <= now ? .timers(now: now) : nil
    }

    private func readyDescriptor(in mode: LoopMode) -> Arrival? {
        guard mode.hasReadyDescriptors.load(ordering: .acquiring) else { return nil }
        return mode.withDescriptors { $0.takeReady(harvest: $1.harvest, poller: $1) }.map { .descriptor($0) }
    }

    /// Whether something harvested earlier is still to be delivered.
    private func hasReady(_ mode: LoopMode) -> Bool {
        mode.hasReadyDescriptors.load(ordering: .acquiring) || (mainQueue.isReady && servesMainQueue(in: mode))
    }

    /// Nil for ever.
    private func timeToWait(_ activation: Activation) -> Duration? {
        let deadline = min(activation.deadline, activation.mode.earliestFire)
        return deadline == .distantFuture ? nil : max(.zero, MonotonicInstant.now.duration(to: deadline))
    }
}

// MARK: - The kernel

extension EventRunLoop {
    /// Sees that the mode has its epoll set, on main with the main queue in it. False if the process has no descriptors left.
    private func prepareToWait(in mode: LoopMode) -> Bool {
        if !mode.poller.isOpen {
            do {
                try mode.withDescriptors { descriptors, poller throws(RunLoopError) in
                    try descriptors.openSet(of: poller, for: wake)
                }
            } catch {
                Complaint.outOfResources.make()
                return false
            }
        }
        if isMain, mode.isCommon.load(ordering: .acquiring), !mode.poller.watchesMainQueue.load(ordering: .relaxed) {
            mainQueue.watch(in: mode.poller)
        }
        return true
    }

    /// Takes what the kernel has, or what comes within the timeout.
    private func harvest(_ mode: LoopMode, for timeout: Duration?) {
        guard prepareToWait(in: mode) else { return }
        mode.poller.wait(for: timeout) { token, events in
            switch token {
            case Poller.wakeUpToken: break  // `wake` knows
            case Poller.mainQueueToken: mainQueue.noteEvent()
            default: note(token, events, in: mode)
            }
        }
    }

    private func note(_ token: UInt64, _ events: UInt32, in mode: LoopMode) {
        mode.withDescriptors { descriptors, poller in
            descriptors.note(token, events: events, harvest: poller.harvest)
            guard descriptors.needsNewSet else { return }
            poller.close()
            // If it fails, the next wait tries again.
            try? descriptors.openSet(of: poller, for: wake)
        }
    }

    /// Stands in for the wait while the process has no descriptor for an epoll set: everything but descriptors goes on, up to 10 ms
    /// late.
    private func nap(_ activation: Activation) -> Arrival {
        while true {
            if !wake.isPending {
                let pauseTime = min(timeToWait(activation) ?? .seconds(1), .milliseconds(10))
                var pause = timespec(tv_sec: 0, tv_nsec: Int(pauseTime.saturatedNanoseconds))
                unsafe nanosleep(&pause, nil)
            }
            let arrival = nextArrival(in: activation.mode, wokenUp: wake.consume())
            if case .nothing = arrival, !activation.deadline.hasPassed, !prepareToWait(in: activation.mode) { continue }
            return arrival
        }
    }
}
