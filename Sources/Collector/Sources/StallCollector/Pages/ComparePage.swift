import StallReading
import StallReports
import StallStore

/// The page that compares two releases or two times: their faults side by side.
struct ComparePage {
    let title = "Compare"
    let team: String
    let form: ComparisonForm
    /// What was compared, or what the user has to choose.
    let summary: String
    /// The flame graph of the difference. Nil if nothing was compared.
    let flame: String?
    let hasRows: Bool
    let rows: [Row]

    struct Row {
        static let columns = ["Function", "Change", "Stalls", "Blocked", "Of the time"]

        var change: String
        var link: String
        /// The flame graph of the difference.
        var flame: String
        var culprit: String
        var place: String
        /// The counts of both sides: `3 → 5`.
        var count: String
        var total: String
        var share: String

        /// The cells of its columns.
        var texts: [String] { [culprit, change, count, total, share] }
    }

    /// - Parameter lists: The faults of both sides. Nil unless both were chosen.
    init(
        _ question: QuestionText,
        _ choices: Choices,
        _ comparison: Comparison,
        _ lists: (before: FaultList, after: FaultList)?
    ) {
        team = question.query.team
        form = ComparisonForm("/compare", question, comparison, choices, choosesService: true)
        guard let lists, let sides = comparison.sides else {
            (summary, flame, hasRows, rows) = ("Choose two releases, or two times.", nil, false, [])
            return
        }
        let links = PageLinks(question: question, comparison: comparison)
        let changes = Change.all(lists.before, lists.after)
        rows = changes.map { Row($0, links) }
        hasRows = !rows.isEmpty
        flame = hasRows ? links.flame(nil) : nil
        let counts = Change.Kind.allCases.map { kind in "\(changes.count { $0.kind == kind }) \(kind.rawValue)" }
        let most = QuestionText.limits.upperBound
        let isCut = max(lists.before.faults.count, lists.after.faults.count) == most
        summary =
            "\(sides.before.name) → \(sides.after.name): \(counts.joined(separator: ", "))."
            + (isCut ? " On each side only the \(most) faults that blocked longest are compared." : "")
            + partialNote(lists.before.isPartial || lists.after.isPartial)
            + " These are plain figures; 'stall-monitor diff' says which changes chance does not explain."
    }

    /// A fault on both sides.
    struct Change {
        enum Kind: String, CaseIterable { case new, more, similar, less, gone }

        var before: Fault?
        var after: Fault?
        var kind: Kind
        /// By how much the blocked share of the watched time grew. Without watched times, by how many seconds the total length
        /// grew.
        var increase: Double

        /// The largest increase first.
        static func all(_ before: FaultList, _ after: FaultList) -> [Change] {
            let isShare = before.watchedNs > 0 && after.watchedNs > 0
            func cost(_ fault: Fault?, _ list: FaultList) -> Double {
                guard let fault else { return 0 }
                return Double(fault.totalNs) / (isShare ? Double(list.watchedNs) : 1e9)
            }
            var old = Dictionary(before.faults.map { ($0.fingerprint, $0) }, uniquingKeysWith: { first, _ in first })
            let pairs = after.faults.map { (old.removeValue(forKey: $0.fingerprint), Fault?.some($0)) }
            let gone = before.faults.filter { old[$0.fingerprint] != nil }.map { (Fault?.some($0), Fault?.none) }
            return (pairs + gone).map { old, new in
                let (costBefore, costAfter) = (cost(old, before), cost(new, after))
                return Change(
                    before: old,
                    after: new,
                    kind: kind(old == nil, new == nil, costBefore, costAfter),
                    increase: costAfter - costBefore
                )
            }.sorted { $0.increase > $1.increase }
        }

        /// Changes of less than a quarter count as similar.
        private static func kind(_ isNew: Bool, _ isGone: Bool, _ before: Double, _ after: Double) -> Kind {
            if isNew { return .new }
            if isGone { return .gone }
            return after > before * 1.25 ? .more : after * 1.25 < before ? .less : .similar
        }
    }
}

extension ComparePage.Row {
    init(_ change: ComparePage.Change, _ links: PageLinks) {
        let fault = change.after ?? change.before
        self.change = change.kind.rawValue
        link = fault.map { links.fault($0.fingerprint) } ?? ""
        flame = fault.map { links.flame($0.fingerprint) } ?? ""
        culprit = fault?.title ?? ""
        place = fault?.place ?? ""
        func both(_ text: (Fault) -> String) -> String {
            [change.before, change.after].map { $0.map(text) ?? "–" }.joined(separator: " → ")
        }
        count = both { "\($0.count)" }
        total = both { length($0.totalNs) }
        share = both { $0.share.map(percent) ?? "–" }
    }
}
