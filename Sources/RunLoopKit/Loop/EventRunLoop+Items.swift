import Locking
import Synchronization

extension EventRunLoop {
    /// Adds a source to a mode, creating the mode if necessary (R4). Adding to ``Mode/common`` adds to each common mode,
    /// present and future (R6). Adding twice has no effect.
    public func add(_ source: EventSource, to mode: Mode = .default) { attachOrWarn(source, to: mode) }

    /// Removes a source from a mode; from ``Mode/common``: from each common mode. An item that is removed from a common mode by name
    /// still counts as added to ``Mode/common``: modes that become common later get it.
    ///
    /// A run whose mode is then empty finishes when its current turn ends. The removal does not wake the loop: a loop that
    /// sleeps, and loses its last item to another thread, sleeps on until its run times out or something wakes it. To end it,
    /// call ``stop()``, or ``wakeUp()`` after the removal. The same holds for items that are invalidated.
    public func remove(_ source: EventSource, from mode: Mode = .default) { detach(source, from: mode) }

    /// Whether the source is in a mode; for ``Mode/common``: whether it was added to the common modes.
    public func contains(_ source: EventSource, in mode: Mode = .default) -> Bool { hasAttached(source, in: mode) }

    /// Adds a source to a mode, as for an ``EventSource``. Takes effect at once, even on a sleeping loop.
    ///
    /// - Throws: `descriptorNotPollable`, `descriptorInUse`, `outOfResources`, `itemInvalid`, `loopEnded`; nothing is added then.
    public func add(_ source: DescriptorSource, to mode: Mode = .default) throws(RunLoopError) {
        try attach(source, to: mode)
    }

    /// Removes a source from a mode, as for an ``EventSource``.
    public func remove(_ source: DescriptorSource, from mode: Mode = .default) { detach(source, from: mode) }

    /// Whether the source is in a mode, as for an ``EventSource``.
    public func contains(_ source: DescriptorSource, in mode: Mode = .default) -> Bool { hasAttached(source, in: mode) }

    /// Adds a timer to a mode, as for an ``EventSource``. Takes effect at once, even on a sleeping loop (R27). A timer that is
    /// on another loop is not added.
    public func add(_ timer: EventTimer, to mode: Mode = .default) { attachOrWarn(timer, to: mode) }

    /// Removes a timer from a mode, as for an ``EventSource``.
    public func remove(_ timer: EventTimer, from mode: Mode = .default) { detach(timer, from: mode) }

    /// Whether the timer is in a mode, as for an ``EventSource``.
    public func contains(_ timer: EventTimer, in mode: Mode = .default) -> Bool { hasAttached(timer, in: mode) }

    /// Adds an observer to a mode, as for an ``EventSource``. An observer that is on another loop is not added (R38).
    public func add(_ observer: LoopObserver, to mode: Mode = .default) { attachOrWarn(observer, to: mode) }

    /// Removes an observer from a mode, as for an ``EventSource``.
    public func remove(_ observer: LoopObserver, from mode: Mode = .default) { detach(observer, from: mode) }

    /// Whether the observer is in a mode, as for an ``EventSource``.
    public func contains(_ observer: LoopObserver, in mode: Mode = .default) -> Bool { hasAttached(observer, in: mode) }

    /// Adds a mode to the common set permanently, and adds to the mode the items of ``Mode/common`` (R5, R6). Takes effect at once,
    /// even on a loop that sleeps in the mode. Any thread.
    ///
    /// A descriptor source that the mode cannot take, for example because another source watches the descriptor there, is left out, with
    /// one warning on stderr. So are the descriptors of a port.
    public func addCommonMode(_ mode: Mode) {
        guard mode != .common else { return }
        if isOfParent { return LoopWarning.loopOfParent.printOnce() }
        if table.withLock({ $0.hasEnded }) { return LoopWarning.loopEnded.printOnce() }
        guard let target = table.withLock({ makeCommon(mode, in: &$0) }) else { return }
        if !target.isComplete { LoopWarning.notInCommonMode.printOnce() }
        for item in target.entered {
            item.didAttach(to: target.mode, of: self)
            item.didAttachToNewCommon(target.mode, of: self)
        }
        blocks.modesChanged()
        requests.modesChanged()
        // The mode now serves what waits for the common modes, and on main the main queue, which its epoll set lacks. On its own
        // thread the loop, or an outer run, may be past the point of its turn at which it looks.
        let aWaitIsAhead = waitsAhead.load(ordering: .relaxed) || outerWaitsAhead.load(ordering: .relaxed)
        if aWaitIsAhead || !isOnOwnThread { wake.post() }
    }

    /// Makes the mode common, with the common items. Nil if it was common before; otherwise the items that have entered it now, and
    /// whether none is missing.
    private func makeCommon(
        _ mode: Mode,
        in table: inout ModeTable
    ) -> (mode: LoopMode, entered: [any LoopItem], isComplete: Bool)? {
        let target = table.mode(mode)
        guard !target.isCommon.exchange(true, ordering: .acquiringAndReleasing) else { return nil }
        var entered: [any LoopItem] = []
        var isComplete = true
        for item in table.commonItems {
            do throws(RunLoopError) {
                if try item.attach(to: target, of: self) { entered.append(item) }
            } catch {
                // An item that is being invalidated at this moment is not missed.
                isComplete = isComplete && error.code == .itemInvalid
            }
        }
        return (target, entered, isComplete)
    }

    /// The loop's modes in the order of their creation; the default mode is the first. Any thread.
    public var modes: [Mode] { table.withLock { $0.modes.map { Mode($0.name) } } }

    /// The modes in the common set.
    public var commonModes: [Mode] { table.withLock { $0.commonModes.map { Mode($0.name) } } }
}

// MARK: - For all kinds

extension EventRunLoop {
    /// Adds a source, and throws the reason if it cannot be added.
    package func attach(source: EventSource, to mode: Mode) throws(RunLoopError) { try attach(source, to: mode) }

    /// Adds a timer, and throws the reason if it cannot be added.
    package func attach(timer: EventTimer, to mode: Mode) throws(RunLoopError) { try attach(timer, to: mode) }

    func attach(_ item: some LoopItem, to mode: Mode) throws(RunLoopError) {
        if isOfParent { throw RunLoopError(.loopEnded) }
        guard mode != .common else { return try attachToCommon(item) }
        let entered: LoopMode? = try table.withLock { table throws(RunLoopError) in
            guard !table.hasEnded else { throw RunLoopError(.loopEnded) }
            let target = table.mode(mode)
            return try item.attach(to: target, of: self) ? target : nil
        }
        if let entered { item.didAttach(to: entered, of: self) }
    }

    private func attachToCommon(_ item: some LoopItem) throws(RunLoopError) {
        let entered: [LoopMode] = try table.withLock { table throws(RunLoopError) in
            guard !table.hasEnded else { throw RunLoopError(.loopEnded) }
            // Before the first `attach`: an item that ends after that knows where it is recorded.
            item.noteCommon(true, on: self)
            do throws(RunLoopError) {
                let entered = try enter(item, table.commonModes)
                // After the last step that can fail, and under the lock that `forgetCommon` takes: an invalid item is never
                // left recorded.
                table.record(item)
                return entered
            } catch {
                if !table.isCommonItem(item) { item.noteCommon(false, on: self) }
                throw error
            }
        }
        for target in entered { item.didAttach(to: target, of: self) }
    }

    /// Adds to all targets or to none.
    private func enter(_ item: some LoopItem, _ targets: [LoopMode]) throws(RunLoopError) -> [LoopMode] {
        var entered: [LoopMode] = []
        do {
            for target in targets where try item.attach(to: target, of: self) { entered.append(target) }
            return entered
        } catch {
            for target in entered { _ = item.detach(from: target) }
            // It was valid a moment ago: it is a one-shot timer that was due, has fired in the first mode, and is
            // finished.
            if error.code == .itemInvalid, !entered.isEmpty { return [] }
            throw error
        }
    }

    private func attachOrWarn(_ item: some LoopItem, to mode: Mode) {
        do {
            try attach(item, to: mode)
        } catch {
            LoopWarning(error).printOnce()
        }
    }

    private func detach(_ item: some LoopItem, from mode: Mode) {
        if isOfParent { return }
        guard mode == .common else {
            if let target = table.withLock({ $0.existing(mode) }) { detach(item, from: target) }
            return
        }
        let targets: [LoopMode] = table.withLock { table in
            guard table.forget(item) else { return [] }
            item.noteCommon(false, on: self)
            return table.commonModes
        }
        for target in targets { detach(item, from: target) }
    }

    func detach(_ item: some LoopItem, from mode: LoopMode) {
        if item.detach(from: mode) { item.didDetach(from: mode, of: self) }
    }

    /// Removes the item from the common items, so that no mode that becomes common later gets it.
    func forgetCommon(_ item: some LoopItem) { table.withLock { _ = $0.forget(item) } }

    private func hasAttached(_ item: some LoopItem, in mode: Mode) -> Bool {
        if isOfParent { return false }
        let target: LoopMode? = table.withLock { table in
            if mode == .common { return table.isCommonItem(item) ? table.commonModes.first : nil }
            return table.existing(mode)
        }
        guard let target else { return false }
        return mode == .common || item.isAttached(to: target)
    }
}

/// The modes of one loop and the items recorded for all common ones. Guarded by the loop's lock.
struct ModeTable: Sendable {
    /// A mode's index is its position here; modes are never destroyed (R4).
    private(set) var modes: [LoopMode] = []
    private var byName: [String: LoopMode] = [:]
    /// The actions applied to each mode that is created. Called under the loop's lock.
    var everywhere: [ObjectIdentifier: @Sendable (LoopMode) -> Void] = [:]
    /// Keyed by identity, numbered in the order in which they were added.
    private var common: [ObjectIdentifier: (number: Int, item: any LoopItem)] = [:]
    private var nextNumber = 0
    /// The loop's thread has ended: nothing more is accepted.
    private(set) var hasEnded = false

    /// Contains the default mode, which is common (R5).
    init() {
        let mode = make(EventRunLoop.Mode.default.name)
        mode.isCommon.store(true, ordering: .releasing)
    }

    var commonModes: [LoopMode] { modes.filter { $0.isCommon.load(ordering: .acquiring) } }

    func existing(_ mode: EventRunLoop.Mode) -> LoopMode? {
        // By far the most common case, and a short name is compared faster than hashed.
        mode == .default ? modes[0] : byName[mode.name]
    }

    /// The mode of that name, created if necessary (R4).
    mutating func mode(_ mode: EventRunLoop.Mode) -> LoopMode { existing(mode) ?? make(mode.name) }

    private mutating func make(_ name: String) -> LoopMode {
        require(modes.count <= Int(UInt16.max), "A loop can have 65536 modes; '\(name)' is one more: reuse names.")
        let mode = LoopMode(name: name, index: modes.count)
        modes.append(mode)
        byName[name] = mode
        for put in everywhere.values { put(mode) }
        return mode
    }

    /// The items that every mode gets when it becomes common, in the order in which they were added.
    var commonItems: [any LoopItem] { common.values.sorted { $0.number < $1.number }.map(\.item) }

    func isCommonItem(_ item: some LoopItem) -> Bool { common[ObjectIdentifier(item)] != nil }

    mutating func record(_ item: some LoopItem) {
        guard !isCommonItem(item) else { return }
        common[ObjectIdentifier(item)] = (nextNumber, item)
        nextNumber += 1
    }

    mutating func forget(_ item: some LoopItem) -> Bool { common.removeValue(forKey: ObjectIdentifier(item)) != nil }

    /// Refuses everything from now on; returns what must be released outside the lock.
    mutating func end() -> [any LoopItem] {
        hasEnded = true
        everywhere = [:]
        defer { common = [:] }
        return commonItems
    }
}
