import StallGate
import StallReports

/// Two sets of stalls beside each other, a row for each fault that has changed.
struct DifferenceTable {
    struct Side {
        /// As given on the command line.
        let name: String
        let set: Baseline
    }

    let before: Side
    let after: Side
    let difference: FaultDifference
    var showsUnchanged = false
    var width: Int?

    var lines: [StyledText] {
        (head + [""]).wrapped(to: width, hanging: 8) + rows
            + ([summary] + notes).wrapped(to: width, hanging: 2)
    }

    private var head: [StyledText] {
        [("Before", before), ("After", after)].map { title, side in
            let stalls = side.set.faults.map { $0.count.addingSaturated($0.starved) }.saturatingSum()
            let watched = DurationText(nanoseconds: side.set.watchedNs).short
            return
                "\(StyledText(title, .dim).padded(to: 8))\(StyledText(side.name, .bold, limit: 120)): \(quantity(stalls, "stall")) in \(watched) watched (\(quantity(side.set.runs, "run")); \("\(side.set.environment)"))"
        }
    }

    private var rows: [StyledText] {
        let shown = difference.items.filter { showsUnchanged || $0.change != .unchanged }
        guard !shown.isEmpty else { return [] }
        let names = ShortFingerprints(difference.items.map(\.fingerprint))
        var table = TextTable([
            .init(title: "CHANGE"), .init(title: "FAULT"), .init(title: "BEFORE"), .init(title: "AFTER"),
            .init(title: "PER HOUR", rank: 1), .init(title: "MEDIAN", rank: 2),
            .init(title: "CHANCE", rank: 3), .culprits(width),
        ])
        for item in shown { table.append(cells(item, names)) }
        return table.lines(width: width) + [""]
    }

    private func cells(_ item: FaultDifference.Item, _ names: ShortFingerprints) -> [StyledText] {
        [
            StyledText(item.change.rawValue, style(of: item)),
            StyledText(names.short(item.fingerprint), .yellow),
            "\(item.before.count)",
            "\(item.after.count)",
            Self.change(item) { $0.count == 0 ? "0" : Figure.short($0.perHour) },
            Self.change(item) { $0.lengthsNs.isEmpty ? "–" : DurationText(nanoseconds: $0.medianNs).short },
            StyledText(item.probability >= 1 && item.change == .unchanged ? "" : Figure.chance(item.probability)),
            StyledText(item.function ?? "unknown code", limit: 120),
        ]
    }

    /// The table's headings and all faults, for a page.
    var plainTable: (columns: [String], rows: [[String]]) {
        let names = ShortFingerprints(difference.items.map(\.fingerprint))
        return (
            ["Change", "Fault", "Before", "After", "Per hour", "Median", "Chance", "Culprit"],
            difference.items.map { cells($0, names).map(\.plain) }
        )
    }

    /// `2 → 6.5`
    private static func change(_ item: FaultDifference.Item, _ text: (Comparison.Figures) -> String) -> StyledText {
        StyledText("\(text(item.before)) → \(text(item.after))")
    }

    private func style(of item: FaultDifference.Item) -> StyledText.Style? {
        guard item.isProven else { return nil }
        return switch item.change {
        case .new, .worse: .red
        case .gone, .better: .green
        case .unchanged: nil
        }
    }

    var summary: StyledText {
        let counts = FaultDifference.Change.allCases.map { change in
            let proven = difference.items.count { $0.change == change && $0.isProven }
            let count = difference.count(change)
            let isOpen = (change == .new || change == .gone) && proven < count
            return "\(count) \(change.rawValue)" + (isOpen ? " (\(proven) proven)" : "")
        }
        return StyledText(difference.items.isEmpty ? "no faults on either side" : counts.joined(separator: ", "))
    }

    private var notes: [StyledText] {
        var notes: [StyledText] = []
        let (earlier, later) = (difference.starvedBefore, difference.starvedAfter)
        if earlier > 0 || later > 0 {
            notes.append(
                "Starved of CPU, so caused by the machine and not compared: \(quantity(earlier, "stall")) before, \(later) after."
            )
        }
        // The record of a watcher that watched nothing is of the watcher itself.
        let haveWatched = before.set.watchedNs > 0 && after.set.watchedNs > 0
        if haveWatched, before.set.environment != after.set.environment {
            notes.append("The sides come from different machines or builds, which alone can cause such differences.")
        }
        return notes
    }
}

/// What `diff --format json` prints.
struct DifferenceDocument: Encodable {
    let schema = "stall-diff/1"
    let before: Side
    let after: Side
    let faults: [Fault]

    init(before: Baseline, after: Baseline, difference: FaultDifference) {
        self.before = Side(before, starved: difference.starvedBefore)
        self.after = Side(after, starved: difference.starvedAfter)
        faults = difference.items.map { item in
            Fault(
                fingerprint: item.fingerprint,
                function: item.function,
                change: item.change.rawValue,
                proven: item.isProven,
                probability: item.probability,
                before: .init(item.before),
                after: .init(item.after)
            )
        }
    }

    struct Side: Encodable {
        let runs: Int
        let watchedNs: Int64
        let starved: Int
        let environment: Baseline.Environment

        init(_ set: Baseline, starved: Int) {
            (runs, watchedNs, environment, self.starved) = (set.runs, set.watchedNs, set.environment, starved)
        }

        private enum CodingKeys: String, CodingKey {
            case runs
            case watchedNs = "watched_ns"
            case starved, environment
        }
    }

    struct Fault: Encodable {
        let fingerprint: Fingerprint
        let function: String?
        let change: String
        let proven: Bool
        let probability: Double
        let before: Figures
        let after: Figures
    }

    struct Figures: Encodable {
        let count: Int
        let watchedNs: Int64
        /// Nil if no length is known.
        let medianNs: Int64?

        init(_ figures: Comparison.Figures) {
            (count, watchedNs) = (figures.count, figures.watchedNs)
            medianNs = figures.lengthsNs.isEmpty ? nil : figures.medianNs
        }

        private enum CodingKeys: String, CodingKey {
            case count
            case watchedNs = "watched_ns"
            case medianNs = "median_ns"
        }
    }
}
