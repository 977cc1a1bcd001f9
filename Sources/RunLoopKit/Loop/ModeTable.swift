internal import Synchronization

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
