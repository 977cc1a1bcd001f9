import Locking
import Synchronization

/// The blocks that wait for a loop, in the order in which they were enqueued (R51). Any thread enqueues; the loop's thread
/// takes.
final class BlockQueue: Sendable {
    struct Block: Sendable {
        let modes: Modes
        let body: @Sendable () -> Void
    }

    /// Copied for each block: the two cases that nearly all blocks use hold no reference.
    enum Modes: Sendable {
        case `default`
        case common
        case named(Set<EventRunLoop.Mode>)

        init(_ mode: EventRunLoop.Mode) {
            switch mode {
            // First what most callers leave out: names are compared one after the other.
            case .common: self = .common
            case .default: self = .default
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

    /// The result of enqueuing a block.
    enum Acceptance {
        /// The loop has ended; the block is not kept.
        case refused
        /// The loop has to be woken, if the block asks for it.
        case needsWakeUp
        /// A wake-up has been requested since the loop last checked.
        case isAnnounced
    }

    private struct State: ~Copyable {
        var blocks = BlockBuffer()
        /// A second buffer, swapped with `blocks`, so that turns do not allocate.
        var spare = BlockBuffer()
        /// Whether the default mode, which is always common, matches all blocks.
        var areAllForDefault = true
        var passedOver = PassedOver()
        /// Whether a caller that enqueued a block since the loop last checked wakes the loop.
        var isAnnounced = false
        var isClosed = false

        /// The index of the oldest block for a mode.
        mutating func firstIndex(for mode: LoopMode) -> Int? {
            let first = blocks.firstIndex(for: mode, from: passedOver.count(for: mode))
            passedOver.note(first ?? blocks.count, for: mode)
            return first
        }

        /// Moves the blocks for a mode, the oldest of which is at `first`, to `taken`, which is empty.
        mutating func move(to taken: inout BlockBuffer, for mode: LoopMode, from first: Int) {
            if first == 0, areAllForDefault && mode.isDefault {
                swap(&taken, &blocks)
            } else {
                blocks.move(to: &taken, for: mode, from: first)
            }
            if blocks.isEmpty { areAllForDefault = true }
            passedOver.note(blocks.count, for: mode)
        }
    }

    private let state = ForkSafeMutex(State())
    /// Written under the lock and read without it by the loop's thread: a block that is enqueued at that moment is left for the
    /// next drain point.
    private let count = Atomic<Int>(0)

    /// The number of blocks that wait, for any mode.
    var queuedCount: Int { count.load(ordering: .relaxed) }

    /// - Parameter wakes: Whether the caller wakes the loop for the block, unless a wake-up is already announced.
    func append(_ block: consuming Block, wakes: Bool) -> Acceptance {
        // Moved out of this variable into the queue: a copy would be a retain under the lock.
        var block = Optional(block)
        return state.withLock { state in
            guard !state.isClosed, let block = block.take() else { return .refused }
            if case .named = block.modes { state.areAllForDefault = false }
            state.blocks.append(block)
            count.store(state.blocks.count, ordering: .releasing)
            // One wake-up is enough for all blocks up to the loop's next check: the caller that announced it wakes the loop
            // after this, or has done so, and the loop does not sleep between a wake-up and its next check.
            if state.isAnnounced { return .isAnnounced }
            state.isAnnounced = wakes
            return .needsWakeUp
        }
    }

    /// Takes the blocks for a mode; the others keep their positions. The loop's thread, after each wake-up.
    func take(for mode: LoopMode) -> BlockBuffer {
        guard count.load(ordering: .acquiring) > 0 else { return BlockBuffer() }
        return state.withLock { state in
            // Also if there is no block for the mode: the wake-up was consumed.
            state.isAnnounced = false
            var taken = BlockBuffer()
            guard let first = state.firstIndex(for: mode) else { return taken }
            swap(&taken, &state.spare)
            state.move(to: &taken, for: mode, from: first)
            count.store(state.blocks.count, ordering: .releasing)
            return taken
        }
    }

    /// Returns an empty buffer for the next drain.
    func recycle(_ buffer: consuming BlockBuffer) {
        state.withLock { state in
            if state.spare.capacity < buffer.capacity { swap(&state.spare, &buffer) }
        }
    }

    func hasBlocks(for mode: LoopMode) -> Bool {
        guard count.load(ordering: .acquiring) > 0 else { return false }
        return state.withLock { $0.firstIndex(for: mode) != nil }
    }

    /// Call it when a mode became common: it may now match blocks that were skipped.
    func modesChanged() { state.withLock { $0.passedOver.forget() } }

    /// Releases the blocks without running them, and accepts no more (R2).
    func close() {
        var blocks = BlockBuffer()
        state.withLock { state in
            state.isClosed = true
            state.passedOver.forget()
            count.store(0, ordering: .releasing)
            swap(&blocks, &state.blocks)
        }
        blocks.removeAll()
    }
}

/// Blocks in the order in which they were enqueued; each is moved in and moved out again.
///
/// Not an array: running a block out of an array retains and releases it once more. That is noticeable for threads that enqueue
/// one closure repeatedly, because they share its reference count.
///
/// Sendable: it is the only owner of its memory, and blocks are Sendable.
@safe
struct BlockBuffer: ~Copyable, @unchecked Sendable {
    private var memory = unsafe UnsafeMutableBufferPointer<BlockQueue.Block>(start: nil, count: 0)
    private(set) var count = 0

    deinit {
        unsafe memory[..<count].deinitialize()
        unsafe memory.deallocate()
    }

    var isEmpty: Bool { count == 0 }
    var capacity: Int { unsafe memory.count }

    mutating func append(_ block: consuming BlockQueue.Block) {
        if count == capacity { grow() }
        unsafe memory.initializeElement(at: count, to: block)
        count += 1
    }

    private mutating func grow() {
        let larger = UnsafeMutableBufferPointer<BlockQueue.Block>.allocate(capacity: max(16, 2 * capacity))
        _ = unsafe larger.moveInitialize(fromContentsOf: memory[..<count])
        unsafe memory.deallocate()
        unsafe memory = larger
    }

    /// The index of the first block for a mode, from an index on.
    func firstIndex(for mode: LoopMode, from start: Int) -> Int? {
        (start..<count).first { unsafe memory[$0].modes.match(mode) }
    }

    /// Moves the blocks for a mode, the oldest of which is at `first`, to the end of another buffer; the others keep their
    /// order. Each block is tested once: the mode may become common during the loop.
    mutating func move(to taken: inout BlockBuffer, for mode: LoopMode, from first: Int) {
        var kept = first
        for index in first..<count {
            let block = unsafe memory.moveElement(from: index)
            if block.modes.match(mode) {
                taken.append(block)
            } else {
                unsafe memory.initializeElement(at: kept, to: block)
                kept += 1
            }
        }
        count = kept
    }

    /// Runs each block, and releases it afterwards.
    ///
    /// - Parameter willRun: Called before each block.
    @inline(__always)
    mutating func runAll(_ willRun: () -> Void) {
        let all = count
        count = 0
        guard let first = unsafe memory.baseAddress else { return }
        for index in 0..<all {
            willRun()
            unsafe callOut(moving: first + index)
        }
    }

    mutating func removeAll() {
        unsafe memory[..<count].deinitialize()
        count = 0
    }
}
