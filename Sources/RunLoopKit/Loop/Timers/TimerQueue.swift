/// The timers of one mode. Guarded by the mode's lock.
///
/// A member has a ticket for as long as it is in the mode. It is in a schedule, then among the due timers of a pass. It is in
/// neither during its callout, even if another of its modes calls it.
struct TimerQueue: Sendable {
    private struct Member: Sendable {
        /// Nil if the ticket is free.
        var timer: EventTimer?
        var sequence: UInt64
        /// Index into `due`, or -1.
        var dueIndex: Int32 = -1
        /// The timer has left the mode, but not the loop, and keeps its turn in the pass.
        var hasLeft = false
    }

    private var members: [Member] = []
    private var freeTickets: [UInt32] = []
    private var nextSequence: UInt64 = 0
    private var monotonic = TimerSchedule()
    private var wall = TimerSchedule()
    /// The timers that a pass found due and has not reached yet, from `nextDue` on; sorted, with the dates in monotonic time.
    /// An entry that was removed has no ticket.
    private var due: [TimerKey] = []
    private var nextDue = 0

    private static let noTicket = UInt32.max
    /// A pass with more entries frees its buffer.
    private static let keptDue = 1024

    var timers: [EventTimer] { members.compactMap(\.timer) }

    /// The dates that the loop needs for its sleep.
    var outlook: TimerOutlook {
        let waiting = nextDue < due.count ? due[nextDue].date : .max
        return TimerOutlook(
            fire: min(monotonic.earliestFire, waiting),
            deadline: min(monotonic.earliestDeadline, waiting),
            wallFire: wall.earliestFire,
            wallDeadline: wall.earliestDeadline
        )
    }
}

// MARK: - Adding and removing

extension TimerQueue {
    /// Adds the timer, and returns its ticket. It is not in a schedule yet.
    mutating func insert(_ timer: EventTimer) -> UInt32 {
        let member = Member(timer: timer, sequence: nextSequence)
        nextSequence += 1
        if let free = freeTickets.popLast() {
            members[Int(free)] = member
            return free
        }
        require(members.count < Int32.max, "A mode can have two thousand million timers.")
        members.append(member)
        return UInt32(members.count - 1)
    }

    /// Frees the ticket.
    mutating func remove(_ ticket: UInt32) {
        withdraw(ticket)
        free(Int(ticket))
    }

    /// Frees the ticket of a timer that stays on the loop in another mode. In a pass that has found it due it keeps its turn
    /// (R43).
    mutating func leave(_ ticket: UInt32) {
        guard members[Int(ticket)].dueIndex >= 0 else { return remove(ticket) }
        members[Int(ticket)].hasLeft = true
    }

    private mutating func free(_ ticket: Int) {
        members[ticket].timer = nil
        freeTickets.append(UInt32(ticket))
    }

    /// Removes the member from the order, for example for the duration of its callout.
    mutating func withdraw(_ ticket: UInt32) {
        if monotonic.remove(ticket) || wall.remove(ticket) { return }
        let index = Int(members[Int(ticket)].dueIndex)
        guard index >= 0 else { return }
        members[Int(ticket)].dueIndex = -1
        due[index].ticket = TimerQueue.noTicket
        skipTaken()
    }

    /// Gives the member a fire date, whether it has one or was withdrawn.
    ///
    /// - Parameter isDue: Whether that date has been reached: then a member that a pass has found due keeps its turn (R43).
    mutating func place(_ ticket: UInt32, at date: TimerDate, order: Int32, isDue: @autoclosure () -> Bool = false) {
        if members[Int(ticket)].dueIndex >= 0, isDue() { return }
        withdraw(ticket)
        let sequence = members[Int(ticket)].sequence
        let key = TimerKey(date: date.nanoseconds, sequence: sequence, order: order, ticket: ticket)
        switch date.clock {
        case .monotonic: monotonic.insert(key, tolerance: date.tolerance)
        case .wall: wall.insert(key, tolerance: date.tolerance)
        }
    }
}

// MARK: - A pass

extension TimerQueue {
    /// Collects the timers due now: a snapshot, which later changes only reduce (R43). What the pass of an outer run has not
    /// reached is taken over (R23), except the timers that have left the mode since then: those have lost their turn.
    ///
    /// - Returns: The timers that have left. The pass may have had the last references to them, and their callbacks hold foreign
    ///   objects, so they must be released outside the lock.
    mutating func collectDue(at now: ClockReading) -> [EventTimer] {
        var gone: [EventTimer] = []
        for key in due[nextDue...] where key.ticket != TimerQueue.noTicket && members[Int(key.ticket)].hasLeft {
            if let timer = members[Int(key.ticket)].timer { gone.append(timer) }
            remove(key.ticket)
        }
        let takenOver = due.count - nextDue
        while let key = popFirst(at: now) {
            members[Int(key.ticket)].dueIndex = Int32(due.count)
            due.append(key)
        }
        if takenOver > 0 { sortDue() }
        return gone
    }

    /// The next due timer, which is not in the order from then on.
    mutating func takeDue() -> EventTimer? {
        guard nextDue < due.count else { return nil }
        let ticket = Int(due[nextDue].ticket)
        nextDue += 1
        members[ticket].dueIndex = -1
        skipTaken()
        defer { if members[ticket].hasLeft { free(ticket) } }
        return members[ticket].timer
    }

    private mutating func popFirst(at now: ClockReading) -> TimerKey? {
        guard let byWall = wall.first else { return monotonic.popFirst(upTo: now.monotonic) }
        let converted = now.monotonic(ofWall: byWall)
        if let other = monotonic.first, other < converted { return monotonic.popFirst(upTo: now.monotonic) }
        return wall.popFirst(upTo: now.wall) == nil ? nil : converted
    }

    private mutating func sortDue() {
        due[nextDue...].sort(by: <)
        for index in nextDue..<due.count where due[index].ticket != TimerQueue.noTicket {
            members[Int(due[index].ticket)].dueIndex = Int32(index)
        }
    }

    /// Skips removed entries so that the front of the due timers has a ticket, and keeps the buffer for the next pass.
    private mutating func skipTaken() {
        while nextDue < due.count, due[nextDue].ticket == TimerQueue.noTicket { nextDue += 1 }
        guard nextDue == due.count else { return }
        due.removeAll(keepingCapacity: due.count <= TimerQueue.keptDue)
        nextDue = 0
    }
}

/// The timers of one mode that use one clock.
struct TimerSchedule: Sendable {
    /// The timers without tolerance.
    private var exact = TimerHeap()
    /// The timers with tolerance by fire date, and the same timers by the latest date that their tolerance allows (R46).
    private var lenient = TimerHeap()
    private var deadlines = TimerHeap()

    var isEmpty: Bool { exact.isEmpty && lenient.isEmpty }

    /// The earliest date at which a timer may fire.
    @inline(__always)
    var earliestFire: UInt64 { lenient.isEmpty ? exact.earliest : min(exact.earliest, lenient.earliest) }

    /// The earliest date at which a timer must not wait any longer: when to wake up.
    @inline(__always)
    var earliestDeadline: UInt64 { lenient.isEmpty ? exact.earliest : min(exact.earliest, deadlines.earliest) }

    mutating func insert(_ key: TimerKey, tolerance: UInt64) {
        guard tolerance > 0 else { return exact.insert(key) }
        lenient.insert(key)
        var deadline = key
        deadline.date = key.date.addingSaturated(tolerance)
        deadlines.insert(deadline)
    }

    /// False if it is not in the schedule.
    mutating func remove(_ ticket: UInt32) -> Bool {
        if exact.remove(ticket) { return true }
        guard lenient.remove(ticket) else { return false }
        return deadlines.remove(ticket)
    }

    /// The first of the timers that may fire.
    var first: TimerKey? {
        guard let other = lenient.first else { return exact.first }
        guard let one = exact.first else { return other }
        return other < one ? other : one
    }

    /// Removes and returns the first, if its fire date is not later than `date`.
    mutating func popFirst(upTo date: UInt64) -> TimerKey? {
        guard let other = lenient.first else { return exact.popFirst(upTo: date) }
        if let one = exact.first, one < other { return exact.popFirst(upTo: date) }
        guard let popped = lenient.popFirst(upTo: date) else { return nil }
        _ = deadlines.remove(popped.ticket)
        return popped
    }
}
