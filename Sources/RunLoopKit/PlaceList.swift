/// Where an item is. The first place needs no array, because most items have one place.
struct PlaceList<Ticket: Sendable>: Sendable {
    private(set) var first: Place<Ticket>?
    private var others: [Place<Ticket>] = []

    func isIn(_ mode: LoopMode) -> Bool { first?.mode === mode || others.isIn(mode) }

    mutating func append(_ place: Place<Ticket>) {
        if first == nil { first = place } else { others.append(place) }
    }

    /// Removes and returns the place in a mode.
    mutating func leave(_ mode: LoopMode) -> Place<Ticket>? {
        guard let present = first, present.mode === mode else { return others.leave(mode) }
        first = others.popLast()
        return present
    }

    func forEach(_ body: (Place<Ticket>) -> Void) {
        guard let first else { return }
        body(first)
        for place in others { body(place) }
    }
}
