/// An item that can be added to modes; the four kinds share how they are added and removed.
///
/// Locks are taken in one order: a loop's mode table, an item's state, a mode's contents. No lock is held while foreign code
/// runs, including the deinit of objects that a closure holds.
protocol LoopItem: AnyObject, Sendable {
    /// Puts the item into a mode. False if it was there already.
    func attach(to mode: LoopMode, of loop: EventRunLoop) throws(RunLoopError) -> Bool
    /// Takes the item out of a mode. False if it was not there.
    func detach(from mode: LoopMode) -> Bool
    func isAttached(to mode: LoopMode) -> Bool
    /// Called before a loop records the item for all common modes, and when it no longer does. The item remembers the loop: if it
    /// is removed from each mode by name it is still recorded, and when it then ends, it must be forgotten there.
    func noteCommon(_ isRecorded: Bool, on loop: EventRunLoop)

    /// Called after a successful `attach` or `detach`, outside all locks, once per loop and mode (R33).
    func didAttach(to mode: LoopMode, of loop: EventRunLoop)
    func didDetach(from mode: LoopMode, of loop: EventRunLoop)
    /// Called after `didAttach` if the item was attached because the mode became common.
    func didAttachToNewCommon(_ mode: LoopMode, of loop: EventRunLoop)
}

extension LoopItem {
    func didAttach(to mode: LoopMode, of loop: EventRunLoop) {}
    func didDetach(from mode: LoopMode, of loop: EventRunLoop) {}
    func didAttachToNewCommon(_ mode: LoopMode, of loop: EventRunLoop) {}
}

/// The place of an item: one loop's mode, with the data by which the item's kind finds itself there.
struct ItemPlace<Ticket: Sendable>: Sendable {
    let loop: EventRunLoop
    let mode: LoopMode
    var ticket: Ticket
}

extension Array {
    func isIn<Ticket>(_ mode: LoopMode) -> Bool where Element == ItemPlace<Ticket> {
        contains { $0.mode === mode }
    }

    /// Removes and returns the place in a mode.
    mutating func leave<Ticket>(_ mode: LoopMode) -> ItemPlace<Ticket>? where Element == ItemPlace<Ticket> {
        firstIndex { $0.mode === mode }.map { remove(at: $0) }
    }
}

extension Array where Element == EventRunLoop {
    /// For an item that can be on several loops: those that record it for all common modes.
    mutating func noteCommon(_ isRecorded: Bool, on loop: EventRunLoop) {
        removeAll { $0 === loop }
        if isRecorded { append(loop) }
    }
}

extension Optional where Wrapped == EventRunLoop {
    /// For an item that can be on one loop: that which records it for all common modes.
    mutating func noteCommon(_ isRecorded: Bool, on loop: EventRunLoop) {
        if isRecorded {
            self = self ?? loop
        } else if self === loop {
            self = nil
        }
    }
}

/// A first-in, first-out queue that does not move the remaining tokens at each step.
struct TokenQueue: Sendable {
    private var tokens: [UInt64] = []
    private var head = 0

    var isEmpty: Bool { head == tokens.count }

    mutating func append(_ token: UInt64) { tokens.append(token) }

    mutating func removeAll() {
        tokens.removeAll(keepingCapacity: true)
        head = 0
    }

    mutating func popFirst() -> UInt64? {
        guard head < tokens.count else { return nil }
        defer {
            head += 1
            if head == tokens.count {
                removeAll()
            } else if head > 64, head > tokens.count / 2 {
                tokens.removeFirst(head)
                head = 0
            }
        }
        return tokens[head]
    }
}
