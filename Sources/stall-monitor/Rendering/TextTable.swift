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
        let header = columns.map { StyledText($0.title, .bold) }
        let widths = widths(for: [header] + rows, within: width)
        return ([header] + rows).map { line($0, widths).truncated(to: width ?? .max) }
    }

    private func line(_ cells: [StyledText], _ widths: [Int]) -> StyledText {
        var line = StyledText()
        for (index, (cell, width)) in zip(cells, widths).enumerated() {
            let cut = cell.truncated(to: width)
            line = line + (index == cells.count - 1 ? cut : cut.padded(to: width + 2))
        }
        return line
    }

    /// As wide as the widest cell; what is too much is taken from the columns that may shrink, in their order.
    private func widths(for lines: [[StyledText]], within limit: Int?) -> [Int] {
        var widths = columns.indices.map { column in lines.map { $0[column].width }.max() ?? 0 }
        guard let limit else { return widths }
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
