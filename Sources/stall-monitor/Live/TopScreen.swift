import StallReading
import StallReports

/// A screen of `top`: as many lines as the terminal has, each cut to its width. Pure.
struct TopScreen {
    let state: TopState
    let content: TopContent
    let width: Int
    let height: Int
    var now: Timestamp = .now()

    /// Columns before each row for the selection mark, which must be visible without colours too.
    private static let margin = 2

    /// Lines between the title and the keys.
    var room: Int { max(1, height - 2 - notes.count) }

    /// The selectable rows in order.
    var rows: [TopState.Row] { body.compactMap(\.row) }

    var lines: [StyledText] {
        let visible =
            state.page == nil ? tables : (content.page ?? ["reading …"]).dropFirst(state.scroll).map { $0 }
        let shown = visible.prefix(room) + Array(repeating: "", count: max(0, room - visible.count))
        return (notes + [title] + shown + [keys]).suffix(height).map { $0.truncated(to: width) }
    }

    private var notes: [StyledText] { content.notes.prefix(3).map { StyledText($0, .red) } }

    private var title: StyledText {
        guard let snapshot = content.snapshot else { return "reading …" }
        let count: String?
        switch state.view {
        case _ where state.page != nil, .live: return LiveTable(snapshot: snapshot, width: width).title
        case .faults: count = content.faults.map { quantity($0.count, "fault") }
        case .stalls: count = content.stalls.map { $0.count == 1 ? "1 stall" : "the latest \($0.count) stalls" }
        }
        return "\(snapshot.at.toMilliseconds, .dim)  \(count ?? "reading …", .bold), by \(order)"
    }

    private var body: [TopLine] {
        switch state.view {
        case .live:
            guard let snapshot = content.snapshot else { return [] }
            return LiveTable(snapshot: snapshot.sorted(by: state.processOrder), width: width - Self.margin).body
        case .faults:
            let faults = content.faults ?? []
            guard !faults.isEmpty else { return content.faults == nil ? [] : [TopLine(text: "No faults.")] }
            let names = ShortFingerprints(faults.lazy.map(\.fingerprint))
            let lines = FaultTable(faults: faults, names: names, now: now, width: width - Self.margin).lines
            return TopLine.of(lines, faults.map { .fault($0.fingerprint) })
        case .stalls:
            let stalls = content.stalls ?? []
            guard !stalls.isEmpty else { return content.stalls == nil ? [] : [TopLine(text: "No stalls.")] }
            let list = StallList(
                stalls: stalls,
                ids: ShortIDs(stalls.map(\.id).sorted(), elides: true),
                faults: ShortFingerprints(stalls.lazy.map(\.fingerprint)),
                now: now,
                width: width - Self.margin
            )
            return TopLine.of(list.lines, stalls.map { .stall($0.id) })
        }
    }

    /// The tables, scrolled so that the selected row is visible, below the heading of its table if there are two lines.
    private var tables: [StyledText] {
        let body = body
        let picked = body.firstIndex { $0.row != nil && $0.row == state.selected } ?? 0
        // The last line says how many are below it, unless that is one, which can take its place.
        let countsRest = room > 2 && body.count > room && picked + 2 < body.count
        let window = countsRest ? room - 1 : room
        let first = picked + 2 < body.count || room < 3 ? max(0, picked - window + 1) : max(0, body.count - room)
        var shown = body.dropFirst(first).prefix(window).map(marked)
        let heading = body.prefix(picked).lastIndex { $0.row == nil }
        if let heading, heading < first, first < picked { shown[0] = marked(body[heading]) }
        let left = body.count - first - window
        return countsRest && left > 0 ? shown + ["\("  … \(left) more lines", .dim)"] : shown
    }

    private func marked(_ line: TopLine) -> StyledText {
        let isPicked = line.row != nil && line.row == state.selected
        return (isPicked ? "\(">", .bold) " : "  ") + line.text
    }

    private var order: String {
        switch state.view {
        case .live: state.processOrder.rawValue
        case .faults: state.faultOrder.rawValue
        case .stalls: state.stallOrder.rawValue
        }
    }

    private var keys: StyledText {
        let known: [(String, String)] =
            if state.page != nil {
                [
                    ("↑↓", "scroll"), ("space", "next page"), ("f", state.showsFlame ? "stacks" : "flame graph"),
                    ("q", "back"),
                ]
            } else {
                [("↑↓", "select"), ("Enter", "open")]
                    + [("p", "processes"), ("f", "faults"), ("l", "stalls")].filter { $0.0 != state.view.key }
                    + [("q", "quit"), ("s", "sort (\(order))")]
            }
        return known.map { "\($0, .bold) \($1, .dim)" as StyledText }.reduce("") { $0 == "" ? $1 : "\($0)  \($1)" }
    }
}

/// The state of `top`: view, order, selection, scroll position. Pure: it maps keys and rows to the next state.
struct TopState: Hashable {
    enum View: Hashable {
        case live, faults
        /// The latest stalls, ongoing or not.
        case stalls

        /// The key that leads there.
        fileprivate var key: String {
            switch self {
            case .live: "p"
            case .faults: "f"
            case .stalls: "l"
            }
        }
    }

    /// A selectable row, identified by values that stay the same between refreshes.
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
    private(set) var stallOrder = ListOrder.started
    private(set) var selected: Row?
    /// The row whose page is open in place of the tables.
    private(set) var page: Row?
    /// The first visible line of the page.
    private(set) var scroll = 0
    /// Whether pages show stacks as flame graphs.
    private(set) var showsFlame = false
    /// Whether the page is to be scrolled to its stacks when it is read: they may be below the screen.
    private var seeksStacks = false
    private(set) var isOver = false

    /// The selected row's index. If the row disappears, the one that takes its place is selected.
    private var position = 0

    /// Handles a key.
    ///
    /// - Parameters:
    ///   - rows: the selectable rows of the view in order.
    ///   - room: The number of visible lines of the tables or the page.
    ///   - length: The number of all lines of the open page.
    mutating func press(_ key: KeyPress, rows: [Row], room: Int, length: Int = 0) {
        if page != nil { pressOnPage(key, room: room, length: length) } else { pressOnTables(key, rows, room) }
    }

    /// The page that has to be read.
    var wantedPage: TopContent.Page? { page.map { TopContent.Page(row: $0, showsFlame: showsFlame) } }

    /// Adapts the selection to the current rows. The selected row stays selected while it exists.
    mutating func settle(_ rows: [Row]) {
        if let selected, let index = rows.firstIndex(of: selected) {
            position = index
        } else {
            position = max(0, min(position, rows.count - 1))
            selected = rows.isEmpty ? nil : rows[position]
        }
    }

    /// Scrolls to the stacks of a page that has been read, if `f` asked for them.
    mutating func take(_ page: [StyledText], room: Int) {
        guard seeksStacks else { return }
        seeksStacks = false
        let start = page.firstIndex { line in ["Flame graph of ", "Stack"].contains { line.plain.hasPrefix($0) } }
        if let start { scroll = min(start, max(0, page.count - room)) }
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
        case .character("l"): change(to: view == .stalls ? .live : .stalls)
        case .character("p"), .escape: change(to: .live)
        case .character("s"): sort()
        case .character("q"): isOver = true
        case .character, .suspend: break
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
        case .character("f"):
            showsFlame.toggle()
            seeksStacks = true
        case .character, .suspend: break
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
        case .stalls: stallOrder = Self.next(after: stallOrder)
        }
    }

    private static func next<Order: CaseIterable & Equatable>(after order: Order) -> Order {
        let all = Array(Order.allCases)
        let index = all.firstIndex(of: order) ?? 0
        return all[(index + 1) % all.count]
    }
}
