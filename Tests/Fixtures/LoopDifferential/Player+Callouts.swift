// MARK: - Notifications from the engine

extension Player {
    func recorded(_ activity: UInt32, mode: Int) {
        guard !frames.isEmpty else { return note("activity \(activity) outside a run") }
        let last = frames.count - 1
        if activity == 1 { frames[last].hasEntered = true }
        if activity == 2 {
            turns += 1
            count(.turn)
            frames[last].pass = nil
            frames[last].waitsAhead = true
            if turns > Player.turnLimit { isEnding = true }
        }
        frames[last].blockLimit = 0
        frames[last].isWoken = activity == 64
        if activity == 32 { count(.sleep) }
        note("\(Player.name(of: activity)) mode \(mode)")
        if isEnding, activity <= 2 { stop() }
    }

    func observed(_ observer: Int, _ activity: UInt32) {
        count(.observer)
        if !frames.isEmpty { frames[frames.count - 1].isWoken = activity == 64 }
        note("observer \(observer) \(Player.name(of: activity))")
        act(.observer(observer))
    }

    func performed(_ source: Int) {
        guard !frames.isEmpty else { return note("source \(source) outside a run") }
        let last = frames.count - 1
        frames[last].blockLimit = 0
        if frames[last].pass == nil { frames[last].pass = pass(with: source, in: frames[last].mode) }
        frames[last].isWoken = false
        count(.source)
        note("source \(source)")
        performing.append((source, frames.count))
        act(.source(source))
        performing.removeLast()
        lookAtEnd(of: source)
    }

    func fired(_ timer: Int) {
        if !frames.isEmpty { frames[frames.count - 1].blockLimit = 0 }
        if !frames.isEmpty { frames[frames.count - 1].isWoken = false }
        count(.timer)
        note("timer \(timer)")
        for index in firedInside.indices { firedInside[index].append(timer) }
        firing.append(timer)
        firingDepths.append(frames.count)
        firedInside.append([])
        act(.timer(timer))
        firing.removeLast()
        firingDepths.removeLast()
        let isDueAgain = firedInside.removeLast().contains { inner in
            loop.isValid(.timer(inner)) && loop.fireDate(of: inner) <= kernel.now
        }
        if isDueAgain { cut(.takenOverTimer) }
        if firing.isEmpty { takenOut = [] }
    }

    func scheduled(_ source: Int, in mode: String) { take("source \(source) scheduled", in: mode) }

    func cancelled(_ source: Int, in mode: String) { take("source \(source) cancelled", in: mode) }

    /// Nothing is recorded about the modes that earlier scripts have made common.
    private func take(_ notice: String, in mode: String) {
        guard (0..<Place.modeCount).contains(where: { Place.mode($0).name(suffix) == mode }) else { return }
        notices.append("\(notice) in \(mode)")
    }

    func drained(_ block: Int) {
        if !frames.isEmpty {
            frames[frames.count - 1].blockLimit = 0
            frames[frames.count - 1].isWoken = false
        }
        count(.mainQueueBlock)
        note("main queue, block \(block)")
        for operation in script.blocks[block] { execute(operation) }
    }

    private func act(_ item: Item) {
        let call = calls[item, default: 0]
        calls[item] = call + 1
        for operation in script.acts[item]?[call] ?? [] { execute(operation) }
    }

    func ran(_ block: Int, number: Int) {
        pending.removeAll { $0.number == number }
        count(.block)
        note("block \(block)")
        guard !frames.isEmpty else { return note("outside a run") }
        let last = frames.count - 1
        if number >= frames[last].blockLimit { frames[last].blockLimit = nextBlock }
        frames[last].isWoken = false
        frames[last].isInBlock = true
        for operation in script.blocks[block] { execute(operation) }
        frames[last].isInBlock = false
    }

    private static func name(of activity: UInt32) -> String {
        switch activity {
        case 1: "entry"
        case 2: "timers"
        case 4: "sources"
        case 32: "waiting"
        case 64: "woken"
        case 128: "exit"
        default: "activity \(activity)"
        }
    }
}

// MARK: - Sources

extension Player {
    /// The sources that the engine has collected for the pass whose first source has just been called.
    private func pass(with first: Int, in mode: Int) -> [Int] {
        script.sources.indices.filter { source in
            source == first
                || (loop.isSignalled(source) && loop.isValid(.source(source))
                    && loop.contains(.source(source), in: .mode(mode)))
        }.sorted { (script.sources[$0].order, signals[$0]) < (script.sources[$1].order, signals[$1]) }
    }

    /// If the last source of a pass has lost its signal in the meantime, Foundation treats the pass as one without a source.
    private func lookAtEnd(of source: Int) {
        let frame = frames[frames.count - 1]
        guard !frame.returnsAfterSource, let last = frame.pass?.last, last != source else { return }
        guard !loop.isValid(.source(last)) || !loop.isSignalled(last) else { return }
        cut(.lastSourceDecides)
    }

    func signal(_ source: Int) {
        if performing.contains(where: { $0.source == source && $0.depth < frames.count }), meets(.sourceEntersItself) {
            return note("left out")
        }
        if !loop.isSignalled(source) {
            signalNumber += 1
            signals[source] = signalNumber
        }
        loop.signal(source)
    }
}
