/// Columns of text side by side, fitted to a width.
struct TextTable {
    struct Column {
        let title: String
        /// How narrow the column may be made to fit; nil: it keeps its width.
        var minimum: Int?
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

/// How wide a table's columns are. For tables too long to be held: their rows are made once to be measured, once to be written.
struct TableLayout {
    private let columns: [TextTable.Column]
    private let widths: [Int]
    private let limit: Int?

    /// Each row has a cell for each column.
    init(_ columns: [TextTable.Column], fitting rows: some Sequence<[StyledText]>, width limit: Int?) {
        var widths = columns.map { StyledText($0.title).width }
        for row in rows {
            for (index, cell) in row.enumerated() { widths[index] = max(widths[index], cell.width) }
        }
        (self.columns, self.limit) = (columns, limit)
        self.widths = limit.map { Self.shrunk(widths, columns, within: $0) } ?? widths
    }

    var header: StyledText { line(columns.map { StyledText($0.title, .bold) }) }

    func line(_ cells: [StyledText]) -> StyledText {
        var line = StyledText()
        for (index, (cell, width)) in zip(cells, widths).enumerated() {
            let cut = cell.truncated(to: width)
            line = line + (index == cells.count - 1 ? cut : cut.padded(to: width + 2))
        }
        return line.truncated(to: limit ?? .max)
    }

    /// What is too much is taken from the columns that may shrink, in their order.
    private static func shrunk(_ widths: [Int], _ columns: [TextTable.Column], within limit: Int) -> [Int] {
        var widths = widths
        var surplus = widths.reduce(0, +) + 2 * (columns.count - 1) - limit
        for (index, column) in columns.enumerated() where surplus > 0 {
            guard let minimum = column.minimum, widths[index] > minimum else { continue }
            let cut = min(surplus, widths[index] - minimum)
            widths[index] -= cut
            surplus -= cut
        }
        return widths
    }
}
