/// Columns of text side by side, fitted to a width.
struct TextTable {
    struct Column {
        let title: String
        /// The column may shrink to this width. Nil: it keeps its width.
        var minimum: Int?
        /// If the columns do not fit even at their minimum widths, those with the lowest ranks are left out. Nil: never left out.
        var rank: Int?
        /// Whether a column with a rank is left out if no row has a value for it, even if there is room. Output for programs keeps it.
        var hidesEmpty = false

        /// Culprits. Other columns are left out until it has its full width, or three eighths of the table's.
        static func culprits(_ width: Int?) -> Column {
            Column(title: "CULPRIT", minimum: max(20, (width ?? 0) * 3 / 8))
        }
    }

    let columns: [Column]
    private(set) var rows: [[StyledText]] = []

    init(_ columns: [Column]) { self.columns = columns }

    mutating func append(_ row: [StyledText]) {
        precondition(row.count == columns.count, "a row has a cell for each column")
        rows.append(row)
    }

    /// The header and the rows, two blanks between columns.
    func lines(width: Int?) -> [StyledText] {
        let layout = TableLayout(columns, fitting: rows, width: width)
        return [layout.header] + rows.map(layout.line)
    }
}

/// The widths of a table's columns. Long tables are not kept in memory: rows are created once to measure them and again to write
/// them.
struct TableLayout {
    private let columns: [TextTable.Column]
    /// Nil for a column that is left out.
    private let widths: [Int?]
    private let last: Int
    private let limit: Int?

    /// Each row has a cell for each column.
    init(_ columns: [TextTable.Column], fitting rows: some Sequence<[StyledText]>, width limit: Int?) {
        var widths = columns.map { StyledText($0.title).width }
        var filled: Set<Int> = []
        for row in rows {
            for (index, cell) in row.enumerated() {
                widths[index] = max(widths[index], cell.width)
                if cell.width > 0 { filled.insert(index) }
            }
        }
        // A column without a value is left out before any other.
        let ranks = columns.indices.map { index in columns[index].rank.map { filled.contains(index) ? $0 : -1 } }
        (self.columns, self.limit) = (columns, limit)
        self.widths = limit.map { Self.shrunk(widths, columns, ranks, within: $0) } ?? widths
        last = self.widths.lastIndex { $0 != nil } ?? 0
    }

    var header: StyledText { line(columns.map { StyledText($0.title, .bold) }) }

    func line(_ cells: [StyledText]) -> StyledText {
        var line = StyledText()
        for (index, (cell, width)) in zip(cells, widths).enumerated() {
            guard let width else { continue }
            let cut = cell.truncated(to: width)
            line = line + (index == last ? cut : cut.padded(to: width + 2))
        }
        return line.truncated(to: limit ?? .max)
    }

    /// The width to which a column is shrunk before any other: a loop's name of twelve characters must not be cut beside a culprit that is
    /// several times as long, whatever their ranks.
    private static let wide = 48

    /// Leaves out needless columns, and others until the rest fits at minimum width. Then shrinks columns as needed: very wide ones, then those
    /// of low rank first.
    private static func shrunk(
        _ widths: [Int],
        _ columns: [TextTable.Column],
        _ ranks: [Int?],
        within limit: Int
    ) -> [Int?] {
        var widths = widths.map(Int?.some)
        let order = columns.indices.sorted {
            (ranks[$0] ?? .max, $0) < (ranks[$1] ?? .max, $1)
        }
        for index in order where ranks[index] != nil {
            let narrowest = zip(widths, columns).map { width, column in width.map { min($0, column.minimum ?? $0) } }
            let isNeedless = columns[index].hidesEmpty && ranks[index] == -1
            if !isNeedless, surplus(narrowest, limit) <= 0 { continue }
            widths[index] = nil
        }
        let widestFirst = columns.indices.sorted { (widths[$0] ?? 0, $1) > (widths[$1] ?? 0, $0) }
        for (index, least) in widestFirst.map({ ($0, wide) }) + order.map({ ($0, 0) }) {
            let surplus = surplus(widths, limit)
            guard surplus > 0, let width = widths[index], let minimum = columns[index].minimum.map({ max($0, least) }),
                width > minimum
            else { continue }
            widths[index] = width - min(surplus, width - minimum)
        }
        return widths
    }

    private static func surplus(_ widths: [Int?], _ limit: Int) -> Int {
        let shown = widths.compactMap(\.self)
        return shown.reduce(0, +) + 2 * max(0, shown.count - 1) - limit
    }
}
