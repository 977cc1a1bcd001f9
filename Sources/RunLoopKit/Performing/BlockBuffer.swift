/// Blocks in the order of their coming, each moved in and moved out again.
///
/// Not an array: to run a block out of one, it is retained and released once more. That is felt by threads that enqueue one closure
/// over and over, because they all count its references.
///
/// Sendable: it alone owns its memory, and blocks are.
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

    /// The place of the first block for a mode, from a place on.
    func firstIndex(for mode: LoopMode, from start: Int) -> Int? {
        (start..<count).first { unsafe memory[$0].modes.match(mode) }
    }

    /// Moves the blocks for a mode, the oldest of which is at `first`, to the end of another buffer; the others keep their order. Asks
    /// each block once: the mode may become common in the middle of it.
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

    /// Runs each block, and releases it then.
    ///
    /// - Parameter willRun: Called before each.
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
