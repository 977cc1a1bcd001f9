import Hummingbird
import StallExport
import StallReading
import StallReports
import StallStore

/// The page with the flame graph of a fault, or of all stalls that the filters select: their stacks, or the difference of two
/// releases or times.
struct FlamePage {
    let title: String
    let team: String
    /// The page to which it belongs.
    let back: String
    let form: ComparisonForm
    let isCompared: Bool
    let markup = FlameGraphView.markup
    let data: String
    /// What is missing in it.
    let truncation: String?
}

extension PageRoutes {
    private struct Graph {
        var title: String?
        var data: [UInt8]
        /// Whether all stalls are in it.
        var isWhole: Bool
    }

    /// - Parameter fingerprint: Nil: the stalls of all faults.
    func flame(_ fingerprint: Fingerprint?, _ request: Request, _ question: QuestionText) async throws -> Response {
        let comparison = try Comparison(request, question)
        let reader = try readers.admit(question.query.team)
        defer { withExtendedLifetime(reader) {} }
        let choices = try await store.choices(question.query)
        let graph =
            if let sides = comparison.sides {
                try await difference(fingerprint, sides, PageLinks(question: question))
            } else {
                try await stacks(fingerprint, question.query)
            }
        let links = PageLinks(question: question)
        return Self.page(
            "flame",
            FlamePage(
                title: graph.title ?? (fingerprint == nil ? "Stalls" : "No stalls"),
                team: question.query.team,
                back: fingerprint.map { links.fault($0) } ?? links.faults,
                form: ComparisonForm(
                    PageLinks.flamePath(fingerprint),
                    question,
                    comparison,
                    choices,
                    choosesService: false
                ),
                isCompared: comparison.sides != nil,
                data: String(decoding: graph.data, as: UTF8.self),
                truncation: graph.isWhole ? nil : QuestionRoutes.truncation
            )
        )
    }

    private func stacks(_ fingerprint: Fingerprint?, _ query: StallQuery) async throws -> Graph {
        let stalls = try await store.exportedStalls(of: fingerprint, query)
        var view = FlameGraphView()
        let isWhole = try await store.eachReport(of: stalls, team: query.team) { _ = try view.add($0) }
        return Graph(
            title: fingerprint == nil ? nil : stalls.first?.culprit,
            data: try view.end(),
            isWhole: isWhole
        )
    }

    private func difference(
        _ fingerprint: Fingerprint?,
        _ sides: (before: Comparison.Side, after: Comparison.Side),
        _ links: PageLinks
    ) async throws -> Graph {
        async let old = faults(fingerprint, sides.before.query)
        async let new = faults(fingerprint, sides.after.query)
        let (before, after) = try await (old, new)
        var difference = FlameGraphDifference(
            before: .init(sides.before.name, before),
            after: .init(sides.after.name, after)
        )
        var isWhole = true
        for (side, isBefore) in [(sides.before, true), (sides.after, false)] {
            let stalls = try await store.exportedStalls(of: fingerprint, side.query)
            let isAll = try await store.eachReport(of: stalls, team: side.query.team) {
                difference.add($0, isBefore: isBefore)
            }
            isWhole = isWhole && isAll
        }
        let changes = ComparePage.Change.all(before, after)
        let data = try difference.data(
            summary:
                "A box is as wide as its time on both sides together. Red: more time after than before; blue: less."
                + partialNote(before.isPartial || after.isPartial),
            columns: ComparePage.Row.columns,
            rows: changes.map { ComparePage.Row($0, links).texts }
        )
        let title = fingerprint.flatMap { _ in (after.faults.first ?? before.faults.first)?.title }
        return Graph(title: title, data: data, isWhole: isWhole)
    }

    /// The faults of one side, or only this one.
    func faults(_ fingerprint: Fingerprint?, _ query: StallQuery) async throws -> FaultList {
        guard let fingerprint else {
            return try await store.faults(query, by: .total, limit: QuestionText.limits.upperBound)
        }
        // The watched time is that of all monitors, whichever faults they saw.
        var list = try await store.faults(query, by: .total, limit: 1)
        list.faults = try await store.fault(fingerprint, query).map { [$0] } ?? []
        return list
    }
}

extension FlameGraphDifference.Side {
    fileprivate init(_ name: String, _ list: FaultList) {
        self.init(name: name, watchedNs: list.watchedNs, totalNs: list.faults.map(\.totalNs).saturatingSum())
    }
}
