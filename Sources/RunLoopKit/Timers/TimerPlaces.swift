internal import Synchronization

/// Where a timer is: in modes of one loop, with a ticket in the queue of each. The first needs no array, because most timers are in one.
struct TimerPlaces: Sendable {
    private(set) var loop: EventRunLoop?
    private var mode: LoopMode?
    private var ticket: UInt32 = 0
    private var others: [(mode: LoopMode, ticket: UInt32)] = []

    func isIn(_ mode: LoopMode) -> Bool { self.mode === mode || others.contains { $0.mode === mode } }

    /// The mode must be of the loop that the others are of.
    mutating func append(_ mode: LoopMode, of loop: EventRunLoop, ticket: UInt32) {
        guard self.mode != nil else {
            (self.loop, self.mode, self.ticket) = (loop, mode, ticket)
            return
        }
        others.append((mode, ticket))
    }

    /// Forgets the place in a mode, and returns its ticket.
    mutating func leave(_ mode: LoopMode) -> UInt32? {
        guard self.mode === mode else {
            return others.firstIndex { $0.mode === mode }.map { others.remove(at: $0).ticket }
        }
        let left = ticket
        if let next = others.popLast() {
            (self.mode, ticket) = next
        } else {
            (loop, self.mode) = (nil, nil)
        }
        return left
    }

    /// Takes the timer out of all its modes' queues.
    func leaveQueues() {
        forEach { mode, ticket in
            mode.withTimers { $0.remove(ticket) }
            mode.population.subtract(1, ordering: .releasing)
        }
    }

    /// - Parameter body: Called with each mode and the ticket there.
    @inline(__always)
    func forEach(_ body: (LoopMode, UInt32) -> Void) {
        if let mode { body(mode, ticket) }
        for place in others { body(place.mode, place.ticket) }
    }

    mutating func take() -> TimerPlaces {
        var taken = TimerPlaces()
        swap(&taken, &self)
        return taken
    }
}
