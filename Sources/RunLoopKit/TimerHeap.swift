/// The timers of one mode, earliest first: a binary heap over (fire date, order, sequence), whose members know their places, so that
/// adding, removing and moving take O(log n) and finding the earliest O(1). (R41)
///
/// A member has a ticket for as long as it is in the mode; `withdraw` takes it out of the order, not out of the mode.
struct TimerHeap: Sendable {
    /// An entry's key stands in the heap itself: comparing follows no reference.
    private struct Key: Sendable {
        var fireDate: MonotonicInstant
        var order: Int
        var sequence: UInt64
        var ticket: Int

        static func < (left: Key, right: Key) -> Bool {
            if left.fireDate != right.fireDate { return left.fireDate < right.fireDate }
            if left.order != right.order { return left.order < right.order }
            return left.sequence < right.sequence
        }
    }

    private struct Member: Sendable {
        var timer: EventTimer
        var sequence: UInt64
        /// Index into `keys`; nil while withdrawn.
        var position: Int?
    }

    private var keys: [Key] = []
    private var members: [Member?] = []
    private var freeTickets: [Int] = []
    private var nextSequence: UInt64 = 0

    /// The earliest fire date; `distantFuture` if there is none.
    var earliest: MonotonicInstant { keys.first?.fireDate ?? .distantFuture }

    var timers: [EventTimer] { members.compactMap { $0?.timer } }

    /// Takes the timer in, and returns its ticket.
    mutating func insert(_ timer: EventTimer, at fireDate: MonotonicInstant) -> Int {
        let member = Member(timer: timer, sequence: nextSequence, position: nil)
        nextSequence += 1
        let ticket: Int
        if let free = freeTickets.popLast() {
            ticket = free
            members[ticket] = member
        } else {
            ticket = members.count
            members.append(member)
        }
        place(ticket, at: fireDate)
        return ticket
    }

    /// Gives the ticket back; returns the timer, so that the caller can release it outside its locks.
    mutating func remove(_ ticket: Int) -> EventTimer? {
        withdraw(ticket)
        let timer = members[ticket]?.timer
        members[ticket] = nil
        freeTickets.append(ticket)
        return timer
    }

    /// Takes the member out of the order, as for the length of its callout.
    mutating func withdraw(_ ticket: Int) {
        guard let position = members[ticket]?.position else { return }
        members[ticket]?.position = nil
        let last = keys.removeLast()
        guard position < keys.count else { return }
        keys[position] = last
        settle(position)
    }

    /// Gives the member a fire date, also if it was withdrawn.
    mutating func place(_ ticket: Int, at fireDate: MonotonicInstant) {
        guard let member = members[ticket] else { return }
        if let position = member.position {
            keys[position].fireDate = fireDate
            settle(position)
        } else {
            keys.append(Key(fireDate: fireDate, order: member.timer.order, sequence: member.sequence, ticket: ticket))
            siftUp(keys.count - 1)
        }
    }

    /// Appends the timers due at `now`, in firing order. Looks at those and their children only.
    func collectDue(at now: MonotonicInstant, into due: inout [EventTimer]) {
        guard earliest <= now else { return }
        if !isDue(1, at: now) && !isDue(2, at: now) {
            // By far the most common: one.
            if let timer = members[keys[0].ticket]?.timer { due.append(timer) }
            return
        }
        var found = [0]
        var next = 0
        while next < found.count {
            for child in [2 * found[next] + 1, 2 * found[next] + 2] where isDue(child, at: now) { found.append(child) }
            next += 1
        }
        found.sort { keys[$0] < keys[$1] }
        for position in found {
            if let timer = members[keys[position].ticket]?.timer { due.append(timer) }
        }
    }

    private func isDue(_ position: Int, at now: MonotonicInstant) -> Bool {
        position < keys.count && keys[position].fireDate <= now
    }

    private mutating func settle(_ position: Int) {
        siftDown(position)
        siftUp(position)
    }

    private mutating func siftUp(_ start: Int) {
        let key = keys[start]
        var position = start
        while position > 0, key < keys[(position - 1) / 2] {
            put(keys[(position - 1) / 2], at: position)
            position = (position - 1) / 2
        }
        put(key, at: position)
    }

    private mutating func siftDown(_ start: Int) {
        let key = keys[start]
        var position = start
        while true {
            var child = 2 * position + 1
            if child + 1 < keys.count, keys[child + 1] < keys[child] { child += 1 }
            guard child < keys.count, keys[child] < key else { break }
            put(keys[child], at: position)
            position = child
        }
        put(key, at: position)
    }

    private mutating func put(_ key: Key, at position: Int) {
        keys[position] = key
        members[key.ticket]?.position = position
    }
}
