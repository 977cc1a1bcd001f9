internal import Synchronization

/// The modes of one loop and what is recorded for all common ones. Guarded by the loop's lock.
struct ModeTable: Sendable {
    /// A mode's index is its place here; modes are never destroyed (R4).
    private(set) var modes: [LoopMode] = []
    private var byName: [String: LoopMode] = [:]
    private(set) var commonItems: [any LoopItem] = []
    /// What is put into each mode that comes to be. Called under the loop's lock.
    var everywhere: [ObjectIdentifier: @Sendable (LoopMode) -> Void] = [:]
    /// The loop's thread has ended: nothing comes in any more.
    private(set) var hasEnded = false

    /// With the default mode, which is common (R5).
    init() {
        let mode = make(EventRunLoop.Mode.default.name)
        mode.isCommon.store(true, ordering: .releasing)
    }

    var commonModes: [LoopMode] { modes.filter { $0.isCommon.load(ordering: .acquiring) } }

    func existing(_ mode: EventRunLoop.Mode) -> LoopMode? { byName[mode.name] }

    /// The mode of that name, made if need be (R4).
    mutating func mode(_ mode: EventRunLoop.Mode) -> LoopMode { byName[mode.name] ?? make(mode.name) }

    private mutating func make(_ name: String) -> LoopMode {
        precondition(modes.count <= Int(UInt16.max), "A loop can have 65536 modes; reuse their names.")
        let mode = LoopMode(name: name, index: modes.count)
        modes.append(mode)
        byName[name] = mode
        for put in everywhere.values { put(mode) }
        return mode
    }

    func isCommonItem(_ item: some LoopItem) -> Bool { commonItems.contains { $0 === item } }

    mutating func record(_ item: some LoopItem) {
        if !isCommonItem(item) { commonItems.append(item) }
    }

    mutating func forget(_ item: some LoopItem) -> Bool {
        guard let index = commonItems.firstIndex(where: { $0 === item }) else { return false }
        commonItems.remove(at: index)
        return true
    }

    /// Refuses everything from now on; returns what must be released outside the lock.
    mutating func end() -> [any LoopItem] {
        hasEnded = true
        everywhere = [:]
        defer { commonItems = [] }
        return commonItems
    }
}
