import StallReports

/// What `top` shows, and which row is picked. Pure: keys and rows in, the next state and what is to be done out.
struct TopState: Hashable {
    enum View: Hashable {
        case live, faults
    }

    /// Something that can be picked, by what stays the same when the screen is drawn again.
    enum Row: Hashable {
        case process(run: ULID)
        case stall(ULID)
        case fault(Fingerprint)
    }

    /// What processes are sorted by.
    enum ProcessOrder: String, CaseIterable {
        case state, pid, service, stalls
    }

    private(set) var view = View.live
    private(set) var processOrder = ProcessOrder.state
    private(set) var faultOrder = FaultOrder.total
    private(set) var selected: Row?
    /// Whose page is open in the place of the tables.
    private(set) var page: Row?
    /// The first line of the page that is seen.
    private(set) var scroll = 0
    private(set) var isOver = false

    /// Where the picked row was, so that the one that takes its place is picked when it goes.
    private var position = 0

    /// Takes a key.
    ///
    /// - Parameters:
    ///   - rows: what can be picked in the view, in its order.
    ///   - room: lines of tables, or of a page, that are seen at once.
    ///   - length: lines of the open page.
    mutating func press(_ key: KeyPress, rows: [Row], room: Int, length: Int = 0) {
        if page != nil { pressOnPage(key, room: room, length: length) } else { pressOnTables(key, rows, room) }
    }

    /// Takes in what there is now. What is picked stays picked while it is there.
    mutating func settle(_ rows: [Row]) {
        if let selected, let index = rows.firstIndex(of: selected) {
            position = index
        } else {
            position = max(0, min(position, rows.count - 1))
            selected = rows.isEmpty ? nil : rows[position]
        }
    }

    private mutating func pressOnTables(_ key: KeyPress, _ rows: [Row], _ room: Int) {
        settle(rows)
        switch key {
        case .up, .character("k"): pick(position - 1, rows)
        case .down, .character("j"): pick(position + 1, rows)
        case .pageUp: pick(position - max(1, room), rows)
        case .pageDown: pick(position + max(1, room), rows)
        case .home, .character("g"): pick(0, rows)
        case .end, .character("G"): pick(rows.count - 1, rows)
        case .enter: (page, scroll) = (selected, 0)
        case .character("f"): change(to: view == .faults ? .live : .faults)
        case .character("p"), .escape: change(to: .live)
        case .character("s"): sort()
        case .character("q"): isOver = true
        case .character: break
        }
    }

    private mutating func pressOnPage(_ key: KeyPress, room: Int, length: Int) {
        let end = max(0, length - room)
        switch key {
        case .up, .character("k"): scroll -= 1
        case .down, .character("j"), .enter: scroll += 1
        case .pageUp, .character("b"): scroll -= max(1, room)
        case .pageDown, .character(" "): scroll += max(1, room)
        case .home, .character("g"): scroll = 0
        case .end, .character("G"): scroll = end
        case .escape, .character("q"): page = nil
        case .character: break
        }
        scroll = max(0, min(scroll, end))
    }

    private mutating func pick(_ index: Int, _ rows: [Row]) {
        guard !rows.isEmpty else { return }
        position = max(0, min(index, rows.count - 1))
        selected = rows[position]
    }

    private mutating func change(to view: View) {
        guard view != self.view else { return }
        (self.view, selected, position) = (view, nil, 0)
    }

    private mutating func sort() {
        switch view {
        case .live: processOrder = Self.next(after: processOrder)
        case .faults: faultOrder = Self.next(after: faultOrder)
        }
    }

    private static func next<Order: CaseIterable & Equatable>(after order: Order) -> Order {
        let all = Array(Order.allCases)
        let index = all.firstIndex(of: order) ?? 0
        return all[(index + 1) % all.count]
    }
}
