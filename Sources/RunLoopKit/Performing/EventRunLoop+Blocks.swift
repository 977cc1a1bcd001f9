extension EventRunLoop {
    /// Runs a block once, on the loop's thread, in a run of one mode, or of any common one (R51). Any thread; not in a signal handler.
    ///
    /// - Parameter wake: False leaves a sleeping loop asleep, as CFRunLoopPerformBlock does (R24).
    public func perform(in mode: Mode = .default, wake: Bool = true, _ block: consuming @escaping @Sendable () -> Void)
    {
        enqueue(BlockQueue.Block(modes: .init(mode), body: block), wake: wake)
    }

    /// Runs a block once, on the loop's thread, in whichever of the modes runs first (R51). Any thread; not in a signal handler.
    ///
    /// - Parameters:
    ///   - modes: At least one; none traps.
    ///   - wake: As in ``perform(in:wake:_:)``.
    public func perform(
        inModes modes: [Mode],
        wake: Bool = true,
        file: StaticString = #fileID,
        line: UInt = #line,
        _ block: consuming @escaping @Sendable () -> Void
    ) {
        requireMode(in: modes, file, line)
        enqueue(BlockQueue.Block(modes: .init(modes), body: block), wake: wake)
    }

    private func enqueue(_ block: consuming BlockQueue.Block, wake: Bool) {
        if isOfParent { return Complaint.loopOfParent.make() }
        if case .named = block.modes { make(block.modes) }
        switch blocks.append(block, wakes: wake) {
        case .refused: Complaint.loopEnded.make()
        case .needsWakeUp: if wake { self.wake.post() }
        case .isAnnounced: break
        }
    }

    /// What names no mode would be kept for ever, and never be run.
    func requireMode(in modes: [Mode], _ file: StaticString, _ line: UInt) {
        require(!modes.isEmpty, "What is to be performed names at least one mode.", file: file, line: line)
    }

    /// Makes the modes if need be, as adding an item does (R4): a block or a request is enough to make a mode that can be run.
    func make(_ modes: BlockQueue.Modes) {
        guard case .named(let names) = modes else { return }
        table.withLock { table in
            for mode in names where mode != .common { _ = table.mode(mode) }
        }
    }
}

extension BlockQueue.Modes {
    init(_ modes: [EventRunLoop.Mode]) {
        self = modes.count == 1 ? .init(modes[0]) : .named(Set(modes))
    }
}
