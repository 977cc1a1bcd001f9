/// The sort key of timers: fire date, then order, then insertion (R41).
struct TimerKey: Sendable {
    /// Nanoseconds on the timer's clock.
    var date: UInt64
    var sequence: UInt64
    var order: Int32
    /// Identifies the timer within its mode.
    var ticket: UInt32

    static func < (left: TimerKey, right: TimerKey) -> Bool {
        if left.date != right.date { return left.date < right.date }
        if left.order != right.order { return left.order < right.order }
        return left.sequence < right.sequence
    }
}

/// A heap of timer keys, earliest first. Positions are indexed by ticket: adding and removing take O(log n), finding the
/// earliest O(1).
///
/// A node has four children, which are adjacent in memory; the depth is half that of a binary heap. Comparing follows no
/// reference.
///
/// When the earliest key is taken, its node stays vacant until the next change. Usually that is the next date of the same timer,
/// which belongs there or not far below. So a timer that fires among a million idle ones costs no more than a single timer.
struct TimerHeap: Sendable {
    private var keys: [TimerKey] = []
    /// By ticket: the index into `keys`, or `absent`.
    private var positions: [Int32] = []
    /// The root has been taken. Its key is kept, as one that no key is less than.
    private var isRootVacant = false

    private static let absent: Int32 = -1

    var isEmpty: Bool { keys.count == (isRootVacant ? 1 : 0) }

    /// The date of the earliest key; the greatest number if there is none.
    @inline(__always)
    var earliest: UInt64 { first?.date ?? .max }

    @inline(__always)
    var first: TimerKey? {
        let root = isRootVacant ? TimerHeap.leastChild(of: 0, in: keys.span) : 0
        return root < keys.count ? keys[root] : nil
    }

    /// Adds a timer that is not in the heap.
    mutating func insert(_ key: TimerKey) {
        while positions.count <= Int(key.ticket) { positions.append(TimerHeap.absent) }
        if isRootVacant {
            isRootVacant = false
            TimerHeap.siftDown(key, from: 0, in: &keys, &positions)
        } else {
            keys.append(key)
            TimerHeap.siftUp(key, from: keys.count - 1, in: &keys, &positions)
        }
    }

    @inline(__always)
    func contains(_ ticket: UInt32) -> Bool {
        ticket < positions.count && positions[Int(ticket)] != TimerHeap.absent
    }

    /// Removes a timer; false if it is not in the heap.
    mutating func remove(_ ticket: UInt32) -> Bool {
        guard contains(ticket) else { return false }
        fillVacancy()
        let position = Int(positions[Int(ticket)])
        positions[Int(ticket)] = TimerHeap.absent
        let last = keys.removeLast()
        if position < keys.count { settle(last, at: position) }
        return true
    }

    /// Removes and returns the earliest, if its date is not later than `date`.
    mutating func popFirst(upTo date: UInt64) -> TimerKey? {
        guard let first, first.date <= date else { return nil }
        fillVacancy()
        positions[Int(first.ticket)] = TimerHeap.absent
        isRootVacant = true
        return first
    }

    private mutating func fillVacancy() {
        guard isRootVacant else { return }
        isRootVacant = false
        let last = keys.removeLast()
        if !keys.isEmpty { TimerHeap.siftDown(last, from: 0, in: &keys, &positions) }
    }

    private mutating func settle(_ key: TimerKey, at position: Int) {
        if position > 0, key < keys[(position - 1) / 4] {
            TimerHeap.siftUp(key, from: position, in: &keys, &positions)
        } else {
            TimerHeap.siftDown(key, from: position, in: &keys, &positions)
        }
    }

    /// Places the key on the path from a position, whose own key is overwritten, to the root.
    private static func siftUp(
        _ key: TimerKey,
        from start: Int,
        in keys: inout [TimerKey],
        _ positions: inout [Int32]
    ) {
        var keys = keys.mutableSpan
        var positions = positions.mutableSpan
        var position = start
        while position > 0 {
            let parent = (position - 1) / 4
            guard key < keys[parent] else { break }
            keys[position] = keys[parent]
            positions[Int(keys[parent].ticket)] = Int32(truncatingIfNeeded: position)
            position = parent
        }
        keys[position] = key
        positions[Int(key.ticket)] = Int32(truncatingIfNeeded: position)
    }

    /// Places the key below a position, whose own key is overwritten.
    private static func siftDown(
        _ key: TimerKey,
        from start: Int,
        in keys: inout [TimerKey],
        _ positions: inout [Int32]
    ) {
        var keys = keys.mutableSpan
        var positions = positions.mutableSpan
        var position = start
        while true {
            let child = TimerHeap.leastChild(of: position, in: keys.span)
            guard child < keys.count, keys[child] < key else { break }
            keys[position] = keys[child]
            positions[Int(keys[child].ticket)] = Int32(truncatingIfNeeded: position)
            position = child
        }
        keys[position] = key
        positions[Int(key.ticket)] = Int32(truncatingIfNeeded: position)
    }

    /// Beyond the last position if there are no children.
    @inline(__always)
    private static func leastChild(of position: Int, in keys: Span<TimerKey>) -> Int {
        let start = 4 * position + 1
        let end = min(start + 4, keys.count)
        var least = start
        var child = start + 1
        while child < end {
            if keys[child] < keys[least] { least = child }
            child += 1
        }
        return least
    }
}
