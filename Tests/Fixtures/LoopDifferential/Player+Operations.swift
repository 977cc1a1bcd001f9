import Dispatch

extension Player {
    func execute(_ operation: Operation) {
        guard !isEnding else { return }
        guard operationsLeft > 0 else {
            isEnding = true
            return
        }
        operationsLeft -= 1
        if isOnOtherThread { count(.doneByOtherThread) }
        if isVerbose { note("\(isOnOtherThread ? "elsewhere" : "-"): \(operation)") }
        carryOut(operation)
        flushNotices()
        kernel.now += 1000
    }

    private func carryOut(_ operation: Operation) {
        switch operation {
        case .add(let item, let place): add(item, to: place)
        case .remove(let item, let place): remove(item, from: place)
        case .invalidate(let item): loop.invalidate(item)
        case .signal(let source): signal(source)
        case .move(let timer, let when): move(timer, to: when)
        case .enqueue(let block, let places): enqueue(block, for: places)
        case .addCommonMode(let place): addCommonMode(place)
        case .stop: stop()
        case .wake: loop.wake()
        case .run(let place, let span, let returns): run(place, for: span, returnAfterSource: returns)
        case .runForEver: runForEver()
        case .spend(let quarters): kernel.now += UInt64(quarters) * 250_000
        case .onOtherThread(let operations):
            // Another thread executes operations that it would delegate itself.
            if isOnOtherThread { operations.forEach(execute) } else { playElsewhere(operations) }
        case .whenAsleep(let operations): whenAsleep.append(operations)
        case .ask(let question): ask(question)
        case .dispatch(let block):
            if isOnMain { DispatchQueue.main.async { self.drained(block) } }
        }
    }

    private func add(_ item: Item, to place: Place) {
        if case .timer(let timer) = item, takenOut.contains(timer), meets(.movedInPass) { return note("left out") }
        loop.add(item, to: place)
    }

    private func remove(_ item: Item, from place: Place) {
        if case .timer(let timer) = item, isInPass(timer) {
            let isNested = firingDepths.contains { $0 < frames.count }
            if isNested, meets(.leftModeInPass) { return note("left out") }
            takenOut.insert(timer)
        }
        loop.remove(item, from: place)
    }

    /// Whether another timer's callout is in progress, in a pass that may still reach this timer.
    private func isInPass(_ timer: Int) -> Bool {
        guard !firing.isEmpty, !firing.contains(timer), loop.isValid(.timer(timer)) else { return false }
        return loop.fireDate(of: timer) <= kernel.now
    }

    private func move(_ timer: Int, to when: When) {
        // Moving a timer in its callout does not wake the loop; Foundation wakes it sometimes.
        guard !isOnOtherThread || !firing.contains(timer) else { return }
        if isInPass(timer), meets(.movedInPass) { return note("left out") }
        loop.setFireDate(of: timer, to: date(of: timer, when))
    }

    private func enqueue(_ block: Int, for places: [Place]) {
        let number = nextBlock
        nextBlock += 1
        pending.append(PendingBlock(number: number, places: places))
        loop.enqueue(for: places) { self.ran(block, number: number) }
    }

    private func addCommonMode(_ place: Place) {
        guard case .mode(let mode) = place else { return }
        let isAwaited = frames.contains { frame in
            frame.isInBlock && frame.mode == mode
                && pending.contains { $0.number < frame.blockLimit && $0.places.contains(.common) }
        }
        if isAwaited, !commonModes.contains(mode), meets(.lateCommonMode) { return note("left out") }
        if !commonModes.contains(mode), hidesCommonBlocks(from: mode), meets(.hiddenBlocks) { return note("left out") }
        if isOnMain, frames.contains(where: { $0.mode == mode }), !commonModes.contains(mode),
            meets(.commonWhileRunning)
        {
            return note("left out")
        }
        loop.addCommonMode(place)
        commonModes.insert(mode)
    }

    /// Whether a run of the mode is nested in a block that hides other blocks of the common modes from Foundation.
    private func hidesCommonBlocks(from mode: Int) -> Bool {
        guard let block = frames.firstIndex(where: { $0.isInBlock }) else { return false }
        let hidden = pending.contains { $0.number < frames[block].blockLimit && $0.places.contains(.common) }
        return hidden && frames[(block + 1)...].contains { $0.mode == mode }
    }

    private func matches(_ block: PendingBlock, _ mode: Int) -> Bool {
        block.places.contains(.mode(mode)) || (block.places.contains(.common) && commonModes.contains(mode))
    }

    private func canRun(_ mode: Int) -> Bool {
        guard frames.count < Player.depthLimit, !isOnOtherThread else { return false }
        if !takenOut.isEmpty, meets(.leftModeInPass) { return false }
        if isOnMain, frames.last?.isWoken ?? false, meets(.mainQueueInAfterWaiting) { return false }
        if performing.contains(where: { loop.isSignalled($0.source) }), meets(.sourceEntersItself) { return false }
        let hidesBlocks = frames.contains { frame in
            frame.isInBlock
                && pending.contains { $0.number < frame.blockLimit && matches($0, mode) && !matches($0, frame.mode) }
        }
        return !(hidesBlocks && meets(.hiddenBlocks))
    }

    func run(_ place: Place, for span: Span, returnAfterSource: Bool) {
        let mode: Int = if case .mode(let index) = place { index } else { -1 }
        guard canRun(mode) else { return note("no run") }
        let timeout: UInt64? =
            switch span {
            case .poll: 0
            // A quarter of a microsecond is added, so that a deadline never equals a timer's date or a value of the clock.
            case .milliseconds(let milliseconds): UInt64(milliseconds) * 1_000_000 + 250
            case .forEver: nil
            }
        frames.append(Frame(mode: mode, timeout: timeout, returnsAfterSource: returnAfterSource))
        let result = loop.run(place, for: timeout, returnAfterSource: returnAfterSource)
        let frame = frames.removeLast()
        if frame.isStoppedFromElsewhere, result != 2, !frames.isEmpty, frame.hasEntered {
            frames[frames.count - 1].isStopped = true
            frames[frames.count - 1].isStoppedFromElsewhere = true
        }
        let ends: [Int32: Tally.Event] = [1: .finished, 2: .stopped, 3: .timedOut, 4: .handledSource]
        if let end = ends[result] { count(end) }
        if !frames.isEmpty { count(.nestedRun) }
        note("run ends: \(result)")
    }

    private func runForEver() {
        guard canRun(0) else { return note("no run") }
        frames.append(Frame(mode: 0, timeout: nil, returnsAfterSource: false))
        loop.runForEver()
        count(.ranForEver)
        frames.removeLast()
        note("run ends")
    }

    private func ask(_ question: Question) {
        switch question {
        case .contains(let item, let place):
            if place == .common, case .timer = item,
                !(0..<Place.modeCount).contains(where: { loop.contains(item, in: .mode($0)) }),
                meets(.commonTimerInNoMode)
            {
                return
            }
            if place == .common, !loop.isValid(item), meets(.endedCommonItem) { return }
            note("\(item) in \(place): \(loop.contains(item, in: place))")
        case .isValid(let item): note("\(item) valid: \(loop.isValid(item))")
        case .isSignalled(let source): note("source \(source) signalled: \(loop.isSignalled(source))")
        case .fireDate(let timer):
            guard loop.isValid(.timer(timer)) else { return note("timer \(timer) invalid") }
            note("timer \(timer) fires \(readable(loop.fireDate(of: timer)))")
        case .earliestFireDate(let place):
            if !firing.isEmpty, meets(.earliestOfFiringTimer) { return }
            note("earliest of \(place): \(loop.earliestFireDate(in: place).map(readable) ?? "none")")
        case .currentMode: note("current mode: \(loop.currentMode?.description ?? "none")")
        case .isWaiting: note("waiting: \(loop.isWaiting)")
        }
    }

    /// In half microseconds: the precision of Core Foundation's dates.
    private func readable(_ date: UInt64) -> String { "\((Int64(date) - Int64(SimulatedKernel.start) + 250) / 500)" }
}
