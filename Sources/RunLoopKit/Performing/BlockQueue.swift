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
        var passedOver = PassedOver()
        var isClosed = false

        /// The place of the oldest block for a mode.
        mutating func firstIndex(for mode: LoopMode) -> Int? {
            let first = blocks[passedOver.count(for: mode)...].firstIndex { $0.modes.match(mode) }
            passedOver.note(first ?? blocks.count, for: mode)
            return first
        }

        /// Moves the blocks for a mode, the oldest of which is at `first`, to the end of `taken`.
        mutating func move(to taken: inout [Block], for mode: LoopMode, from first: Int) {
            if first == 0, (areAllForDefault && mode.isDefault) || blocks.allSatisfy({ $0.modes.match(mode) }) {
                swap(&taken, &blocks)
            } else {
                extract(to: &taken, for: mode, from: first)
            }
            if blocks.isEmpty { areAllForDefault = true }
            passedOver.note(blocks.count, for: mode)
        }

        /// Asks each block once: the mode may become common in the middle of it.
        private mutating func extract(to taken: inout [Block], for mode: LoopMode, from first: Int) {
            var kept = first
            for index in first..<blocks.count {
                if blocks[index].modes.match(mode) {
                    taken.append(blocks[index])
                } else {
                    blocks.swapAt(kept, index)
                    kept += 1
                }
            }
            blocks.removeSubrange(kept...)
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
            count.store(state.blocks.count, ordering: .releasing)
            return true
        }
    }

    /// Takes out the blocks for a mode; the others keep their places.
    func take(for mode: LoopMode) -> [Block] {
        guard count.load(ordering: .acquiring) > 0 else { return [] }
        return state.withLock { state in
            guard let first = state.firstIndex(for: mode) else { return [] }
            var taken = state.spare.take()
            state.move(to: &taken, for: mode, from: first)
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
        return state.withLock { $0.firstIndex(for: mode) != nil }
    }

    /// To be called when a mode became common: it may have become the mode of blocks that were passed over.
    func modesChanged() { state.withLock { $0.passedOver.forget() } }

    /// Releases the blocks without running them, and takes no more (R2).
    func close() {
        let blocks = state.withLock { state in
            state.isClosed = true
            state.passedOver.forget()
            count.store(0, ordering: .releasing)
            return state.blocks.take()
        }
        _ = consume blocks
    }
}
