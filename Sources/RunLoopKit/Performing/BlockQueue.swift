internal import Synchronization

/// The blocks that wait for a loop, in the order of their coming (R51). Any thread enqueues; the loop's thread takes.
final class BlockQueue: Sendable {
    struct Block: Sendable {
        let modes: Modes
        let body: @Sendable () -> Void
    }

    /// Copied for each block: the two that nearly all blocks name hold no reference.
    enum Modes: Sendable {
        case `default`
        case common
        case named(Set<EventRunLoop.Mode>)

        init(_ mode: EventRunLoop.Mode) {
            switch mode {
            case .default: self = .default
            case .common: self = .common
            default: self = .named([mode])
            }
        }

        func match(_ mode: LoopMode) -> Bool {
            switch self {
            case .default: mode.isDefault
            case .common: mode.isCommon.load(ordering: .acquiring)
            case .named(let modes):
                modes.contains(EventRunLoop.Mode(mode.name))
                    || (modes.contains(.common) && mode.isCommon.load(ordering: .acquiring))
            }
        }
    }

    private struct State: Sendable {
        var blocks: [Block] = []
        /// A second buffer, to be swapped with `blocks`, so that turns do not allocate.
        var spare: [Block] = []
        /// Whether the default mode, which is common for ever, matches all blocks.
        var areAllForDefault = true
        /// The mode in which the present blocks have been looked through in vain; -1 if none.
        var fruitlessMode = -1
        var isClosed = false

        func match(_ mode: LoopMode) -> Bool {
            (areAllForDefault && mode.isDefault) || blocks.allSatisfy { $0.modes.match(mode) }
        }
    }

    private let state = Mutex(State())
    /// Written under the lock; read without it by the loop's thread, for which a block that comes in that moment is one for the
    /// next drain point.
    private let count = Atomic<Int>(0)

    /// How many wait, for any mode.
    var queuedCount: Int { count.load(ordering: .relaxed) }

    /// False if the loop has ended; then the block is not kept.
    func append(_ block: Block) -> Bool {
        state.withLock { state in
            guard !state.isClosed else { return false }
            state.blocks.append(block)
            if case .named = block.modes { state.areAllForDefault = false }
            state.fruitlessMode = -1
            count.store(state.blocks.count, ordering: .releasing)
            return true
        }
    }

    /// Takes out the blocks for a mode; the others keep their places.
    func take(for mode: LoopMode) -> [Block] {
        guard count.load(ordering: .acquiring) > 0 else { return [] }
        return state.withLock { state in
            guard state.fruitlessMode != mode.index else { return [] }
            var taken = state.spare.take()
            if state.match(mode) {
                swap(&taken, &state.blocks)
                state.areAllForDefault = true
            } else {
                taken += state.blocks.filter { $0.modes.match(mode) }
                state.blocks.removeAll { $0.modes.match(mode) }
                state.fruitlessMode = mode.index
            }
            count.store(state.blocks.count, ordering: .releasing)
            return taken
        }
    }

    /// Gives a buffer back for the next drain. Its blocks are released here, outside the lock.
    func recycle(_ buffer: consuming [Block]) {
        buffer.removeAll(keepingCapacity: true)
        state.withLock { state in
            if state.spare.capacity < buffer.capacity { swap(&state.spare, &buffer) }
        }
    }

    func hasBlocks(for mode: LoopMode) -> Bool {
        guard count.load(ordering: .acquiring) > 0 else { return false }
        return state.withLock { state in
            state.fruitlessMode != mode.index && state.blocks.contains { $0.modes.match(mode) }
        }
    }

    /// To be called when a mode became common: it may have become the mode of blocks that were passed over.
    func modesChanged() { state.withLock { $0.fruitlessMode = -1 } }

    /// Releases the blocks without running them, and takes no more (R2).
    func close() {
        let blocks = state.withLock { state in
            state.isClosed = true
            count.store(0, ordering: .releasing)
            return state.blocks.take()
        }
        _ = consume blocks
    }
}
