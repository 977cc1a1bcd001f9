import StallReports

/// What `top` has to draw: as of the last look.
struct TopContent {
    var snapshot: LiveSnapshot?
    /// As sorted by the last look.
    var faults: [Fault]?
    /// The open page's lines. Nil while they are read.
    var page: [StyledText]?
    var notes: [String] = []
}

/// A screen of `top`: as many lines as the terminal has, none longer than it is wide. Pure.
struct TopScreen {
    let state: TopState
    let content: TopContent
    let width: Int
    let height: Int
    var now: Timestamp = .now()

    /// Before each row, where it is shown which one is picked: also without colours.
    private static let margin = 2

    /// Lines between the title and the keys.
    var room: Int { max(1, height - 2 - notes.count) }

    /// What can be picked, in its order.
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
        guard state.page == nil, state.view == .faults else { return LiveTable(snapshot: snapshot, width: width).title }
        let count = content.faults.map { $0.count == 1 ? "1 fault" : "\($0.count) faults" } ?? "reading …"
        return "\(snapshot.at.toMilliseconds, .dim)  \(count, .bold), by \(state.faultOrder.rawValue)"
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
            return zip(lines, [nil] + faults.map { TopState.Row.fault($0.fingerprint) }).map {
                TopLine(text: $0, row: $1)
            }
        }
    }

    /// The tables, from the line on from which the picked row is seen.
    private var tables: [StyledText] {
        let body = body
        let picked = body.firstIndex { $0.row != nil && $0.row == state.selected } ?? 0
        let first = max(0, min(picked - room + 1 + (picked + 1 < body.count ? 1 : 0), body.count - room))
        let left = body.count - first - room
        let shown = body.dropFirst(first).prefix(left > 0 && room > 1 ? room - 1 : room).map { line -> StyledText in
            let isPicked = line.row != nil && line.row == state.selected
            return (isPicked ? "\(">", .bold) " : "  ") + line.text
        }
        return left > 0 && room > 1 ? shown + ["\("  … \(left + 1) more lines", .dim)"] : shown
    }

    private var keys: StyledText {
        let known: [(String, String)] =
            if state.page != nil {
                [("↑↓", "scroll"), ("space", "next page"), ("q", "back")]
            } else if state.view == .live {
                [
                    ("↑↓", "pick"), ("Enter", "open"), ("f", "faults"), ("s", "sort (\(state.processOrder.rawValue))"),
                    ("q", "quit"),
                ]
            } else {
                [
                    ("↑↓", "pick"), ("Enter", "open"), ("p", "processes"), ("s", "sort (\(state.faultOrder.rawValue))"),
                    ("q", "quit"),
                ]
            }
        return known.map { "\($0, .bold) \($1, .dim)" as StyledText }.reduce("") { $0 == "" ? $1 : "\($0)  \($1)" }
    }
}
