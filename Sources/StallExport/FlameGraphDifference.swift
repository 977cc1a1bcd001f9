public import StallReports

/// Compares two sets of stalls: a flame graph coloured by what changed, and a table. A self-contained page, or the data for a page
/// with the parts of ``FlameGraphView``.
///
/// A box is as wide as its time in both sets together, so that code is visible that stalls in one set only. Red: more time after
/// than before; blue: less; grey: the same.
public struct FlameGraphDifference {
    /// One of the two sets.
    public struct Side: Sendable {
        /// As the user named it.
        public var name: String
        /// The watched time in nanoseconds; 0 if unknown. Times are compared per hour watched if it is known of both sides.
        public var watchedNs: Int64
        /// The length of all its stalls in nanoseconds, if only some of them are added: these then count for all.
        public var totalNs: Int64?

        /// Creates a side with this name.
        public init(name: String, watchedNs: Int64, totalNs: Int64? = nil) {
            (self.name, self.watchedNs, self.totalNs) = (name, watchedNs, totalNs)
        }
    }

    private let before: Side
    private let after: Side
    private var stacks = WeightedStacks()

    /// Creates a comparison without reports.
    public init(before: Side, after: Side) { (self.before, self.after) = (before, after) }

    /// Adds a report of the earlier set, or of the later one.
    public mutating func add(_ report: StallReport, isBefore: Bool) { stacks.add(report, isBefore: isBefore) }

    /// The page as HTML.
    ///
    /// - Parameters:
    ///   - summary: A line above the graph.
    ///   - columns: The table's headings.
    ///   - rows: Its rows, with a text for each column.
    /// - Throws: If the data cannot be encoded.
    package func page(summary: String, columns: [String], rows: [[String]]) throws(ReportError) -> [UInt8] {
        FlameGraphPage.page(around: try data(summary: summary, columns: columns, rows: rows))
    }

    /// The data for a page with the parts of ``FlameGraphView``: JSON without `<`.
    ///
    /// - Parameters:
    ///   - summary: A line above the graph.
    ///   - columns: The table's headings.
    ///   - rows: Its rows, with a text for each column.
    /// - Throws: If the data cannot be encoded.
    public func data(summary: String, columns: [String], rows: [[String]]) throws(ReportError) -> [UInt8] {
        var root = FlameGraph(stacks).root
        let isRate = before.watchedNs > 0 && after.watchedNs > 0
        root.scale(by: (Self.factor(after, root.amount, isRate), Self.factor(before, root.before, isRate)))
        let sides = Sides(
            before: plain(before.name),
            after: plain(after.name),
            rate: isRate,
            summary: plain(summary),
            columns: columns
        )
        let content = Content(
            graph: .init(root, isCompared: true),
            stalls: rows.map { $0.map { plain($0) } },
            sides: sides
        )
        return FlameGraphView.embedded(try ReportJSON.encode(content))
    }

    /// By what a side's times are multiplied.
    private static func factor(_ side: Side, _ added: Int64, _ isRate: Bool) -> Double {
        let whole = side.totalNs.map { added > 0 ? Double($0) / Double(added) : 1 } ?? 1
        return isRate ? whole * 3_600_000_000_000 / Double(side.watchedNs) : whole
    }

    private struct Content: Encodable {
        let graph: FlameGraphView.Box
        let stalls: [[String]]
        let sides: Sides
    }

    private struct Sides: Encodable {
        let before: String
        let after: String
        let rate: Bool
        let summary: String
        let columns: [String]
    }
}

extension FlameGraph.Node {
    fileprivate mutating func scale(by factors: (after: Double, before: Double)) {
        amount = Int64(saturating: (Double(amount) * factors.after).rounded())
        before = Int64(saturating: (Double(before) * factors.before).rounded())
        for index in children.indices { children[index].scale(by: factors) }
    }
}
