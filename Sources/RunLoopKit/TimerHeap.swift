/// What timers are sorted by: fire date, then order, then insertion (R41).
struct TimerKey: Sendable {
    /// Nanoseconds on the clock that the timer goes by.
    var date: UInt64
    var sequence: UInt64
    var order: Int32
    /// Names the timer within its mode.
    var ticket: UInt32

    static func < (left: TimerKey, right: TimerKey) -> Bool {
        if left.date != right.date { return left.date < right.date }
        if left.order != right.order { return left.order < right.order }
        return left.sequence < right.sequence
    }
}

/// Timers by their keys, earliest first. Its members know their places: adding and removing take O(log n), finding the earliest O(1).
///
/// A node has four children: next to each other in memory, and at half the depth of a binary heap. Comparing follows no reference.
/// When the earliest is taken, its node stays vacant until the next change, because mostly that is the same timer's next date, which
/// belongs there or not far below: a fire among a million idle timers costs as much as one alone.
struct TimerHeap: Sendable {
    private var keys: [TimerKey] = []
    /// By ticket: the index into `keys`, or `absent`.
    private var positions: [Int32] = []
    /// The root has been taken. Its key stays, as one that none is less than.
    private var isRootVacant = false

    private static let absent: Int32 = -1

    var isEmpty: Bool { first == nil }

    /// The date of the earliest; the greatest number if there is none.
    var earliest: UInt64 { first?.date ?? .max }

    var first: TimerKey? {
        let root = isRootVacant ? leastChild(of: 0) : 0
        return root < keys.count ? keys[root] : nil
    }

    /// Adds a timer that is not here.
    mutating func insert(_ key: TimerKey) {
        let ticket = Int(key.ticket)
        if ticket >= positions.count {
            positions.append(contentsOf: repeatElement(TimerHeap.absent, count: ticket + 1 - positions.count))
        }
        if isRootVacant {
            isRootVacant = false
            siftDown(key, from: 0)
        } else {
            keys.append(key)
            siftUp(key, from: keys.count - 1)
        }
    }

    /// Takes a timer out; false if it is not here.
    mutating func remove(_ ticket: UInt32) -> Bool {
        guard ticket < positions.count, positions[Int(ticket)] != TimerHeap.absent else { return false }
        fillVacancy()
        let position = Int(positions[Int(ticket)])
        positions[Int(ticket)] = TimerHeap.absent
        let last = keys.removeLast()
        if position < keys.count { settle(last, at: position) }
        return true
    }

    /// Takes out the earliest, if its date is not later than `date`.
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
        if !keys.isEmpty { siftDown(last, from: 0) }
    }

    private mutating func settle(_ key: TimerKey, at position: Int) {
        if position > 0, key < keys[(position - 1) / 4] {
            siftUp(key, from: position)
        } else {
            siftDown(key, from: position)
        }
    }

    /// Puts the key where it belongs on the way from a position, whose own key is lost, to the root.
    private mutating func siftUp(_ key: TimerKey, from start: Int) {
        var position = start
        while position > 0, key < keys[(position - 1) / 4] {
            put(keys[(position - 1) / 4], at: position)
            position = (position - 1) / 4
        }
        put(key, at: position)
    }

    /// Puts the key where it belongs below a position, whose own key is lost.
    private mutating func siftDown(_ key: TimerKey, from start: Int) {
        var position = start
        while true {
            let child = leastChild(of: position)
            guard child < keys.count, keys[child] < key else { break }
            put(keys[child], at: position)
            position = child
        }
        put(key, at: position)
    }

    /// Beyond the last position if there are no children.
    private func leastChild(of position: Int) -> Int {
        let start = 4 * position + 1
        var least = start
        for child in start + 1..<max(start + 1, min(start + 4, keys.count)) where keys[child] < keys[least] {
            least = child
        }
        return least
    }

    private mutating func put(_ key: TimerKey, at position: Int) {
        keys[position] = key
        positions[Int(key.ticket)] = Int32(truncatingIfNeeded: position)
    }
}
