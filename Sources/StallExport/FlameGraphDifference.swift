package import StallReports

/// A self-contained page that compares two sets of stalls: a flame graph coloured by what changed, and a table of the faults.
///
/// A box is as wide as its time in both sets together, so that code is visible that stalls in one set only. Red: more time after
/// than before; blue: less; grey: the same.
package struct FlameGraphDifference {
    /// One of the two sets.
    package struct Side: Sendable {
        /// As the user named it.
        package var name: String
        /// The watched time in nanoseconds; 0 if unknown. Times are compared per hour watched if it is known of both sides.
        package var watchedNs: Int64

        /// Creates a side with this name.
        package init(name: String, watchedNs: Int64) { (self.name, self.watchedNs) = (name, watchedNs) }
    }

    private let before: Side
    private let after: Side
    private var stacks = WeightedStacks()

    /// Creates a comparison without reports.
    package init(before: Side, after: Side) { (self.before, self.after) = (before, after) }

    /// Adds a report of the earlier set, or of the later one.
    package mutating func add(_ report: StallReport, isBefore: Bool) { stacks.add(report, isBefore: isBefore) }

    /// The page as HTML.
    ///
    /// - Parameters:
    ///   - summary: A line above the graph.
    ///   - columns: The table's headings.
    ///   - rows: Its rows, with a text for each column.
    /// - Throws: If the data cannot be encoded.
    package func page(summary: String, columns: [String], rows: [[String]]) throws(ReportError) -> [UInt8] {
        let isRate = before.watchedNs > 0 && after.watchedNs > 0
        var root = FlameGraph(stacks).root
        if isRate { root.scale(by: (Self.perHour(after), Self.perHour(before))) }
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
        return FlameGraphPage.page(around: FlameGraphView.embedded(try ReportJSON.encode(content)))
    }

    private static func perHour(_ side: Side) -> Double { 3_600_000_000_000 / Double(side.watchedNs) }

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
        amount = Int64(saturating: Double(amount) * factors.after)
        before = Int64(saturating: Double(before) * factors.before)
        for index in children.indices { children[index].scale(by: factors) }
    }
}
