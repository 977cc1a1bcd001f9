import StallExport
import StallReading
import StallReports
import StallStore

struct Fact {
    var name: String
    var value: String
}

/// One fault: its cost, cause and advice, and when and where it occurred.
struct FaultDetailPage {
    let title: String
    let team: String
    let culprit: String
    let headline: String
    let facts: [Fact]
    let flameLink: String
    /// The stacks of its longest stalls as one tree. Nil if no report has one.
    let stacks: MergedStacks?
    let exports: [Export]
    let jsonLink: String
    let days: [Day]
    let daysNote: String?
    let counts: [Counts]
    let stalls: [Stall]
    let stallsNote: String?

    struct Export {
        var link: String
        var name: String
        var summary: String
    }

    struct MergedStacks {
        var title: String
        var lines: [Line]

        struct Line {
            var share: String
            /// The class of its indentation.
            var depth: Int
            var name: String
            var place: String
            var isOwn: Bool
        }
    }

    struct Day {
        var day: String
        var count: Int64
        var total: String
        var bar: String
    }

    struct Counts {
        var title: String
        var rows: [Row]
        var note: String?

        struct Row {
            var name: String
            var link: String?
            var count: Int64
            var bar: String
        }

        /// - Parameter link: The address of a name's own page.
        init?(_ title: String, _ counts: [String: Int64], link: (String) -> String? = { _ in nil }) {
            guard let most = counts.values.max() else { return nil }
            self.title = title
            rows = sorted(counts).prefix(50).map { name, count in
                Row(name: name, link: link(name), count: count, bar: Bars.share(count, of: most))
            }
            // Of a fault not all names are known.
            let all = counts.count < Fault.nameLimit ? "\(counts.count)" : "\(counts.count) or more"
            note = rows.count < counts.count ? "Shown are the first \(rows.count) of \(all)." : nil
        }
    }

    struct Stall {
        var link: String
        var began: String
        var length: String
        var verdict: String
        var label: String
        var service: String
        var host: String

        init(_ stall: StoredStall) {
            (link, began) = (PageLinks.report(stall.id), moment(stall.startedAt))
            length = StallCollector.length(stall.durationNs) + (stall.isOver ? "" : " and lasts")
            (verdict, label, service, host) = (stall.verdict.rawValue, stall.label, stall.service, stall.host)
        }
    }

    /// Formats that are made from reports. The others are made from run records.
    private static let formats = ExportFormat.allCases.filter { ![.otlpMetrics, .prometheus].contains($0) }

    /// - Parameters:
    ///   - latest: The fault's latest report, if there is one.
    ///   - stacks: The stacks of the longest of `stalls`, and the number of these.
    ///   - stalls: The latest ones. The page lists those of them that the query's limit permits.
    init(
        _ question: QuestionText,
        _ fault: Fault,
        _ latest: StallReport?,
        _ stacks: (tree: StackTree, reports: Int),
        _ days: [DayCount],
        _ stalls: [StoredStall]
    ) {
        self.stacks = MergedStacks(stacks.tree, stacks.reports, among: stalls.count, of: fault.reports)
        let links = PageLinks(question: question)
        culprit = fault.title
        (title, team) = (culprit, question.query.team)
        headline = Self.headline(question, fault)
        facts = Self.facts(of: fault, latest)
        flameLink = links.flame(fault.fingerprint)
        exports = Self.formats.map {
            Export(link: links.export(fault.fingerprint, $0.rawValue), name: $0.rawValue, summary: $0.summary)
        }
        jsonLink = links.json(fault.fingerprint)
        (self.days, daysNote) = Self.lastDays(days)
        counts = [
            Counts("Hosts", fault.hosts) { links.timeline($0) }, Counts("Releases", fault.releases),
            Counts("Why", fault.verdicts), Counts("Services", fault.services),
        ].compactMap(\.self)
        self.stalls = stalls.prefix(question.limit).map { Stall($0) }
        let shown = self.stalls.count
        stallsNote = shown < fault.reports ? "Shown are the latest \(shown) of \(fault.reports) reports." : nil
    }

    private static func lastDays(_ days: [DayCount]) -> (shown: [Day], note: String?) {
        let last = days.suffix(31)
        let most = last.map(\.count).max() ?? 0
        let shown = last.map { day in
            Day(
                day: String(day.day.description.prefix(10)),
                count: day.count,
                total: length(day.totalNs),
                bar: Bars.share(day.count, of: most)
            )
        }
        let isCut = last.count < days.count
        return (shown, isCut ? "Shown are the last \(last.count) of \(days.count) days with stalls." : nil)
    }

    private static func headline(_ question: QuestionText, _ fault: Fault) -> String {
        let share = fault.share.map { " (\(percent($0)) of the time watched)" } ?? ""
        let (since, until) = (moment(question.query.since), moment(question.query.until))
        let range = question.until.isEmpty ? "since \(since)" : "from \(since) to \(until)"
        let sums = "\(counted(fault.count, "stall")), \(length(fault.totalNs)) together\(share)"
        return "\(sums), the worst \(length(fault.longestNs)), \(range) (UTC)"
    }

    private static func facts(of fault: Fault, _ latest: StallReport?) -> [Fact] {
        var facts: [Fact] = []
        if let place = fault.place { facts.append(Fact(name: "Where", value: place)) }
        let trend = fault.trend.direction.text
        let seen = "first \(moment(fault.firstAt)), last \(moment(fault.lastAt))"
        facts.append(Fact(name: "Seen", value: trend.isEmpty ? seen : "\(seen); trend \(trend)"))
        facts += latest.map(ReportPage.reasons) ?? []
        if !fault.aliases.isEmpty {
            facts.append(Fact(name: "Also", value: fault.aliases.prefix(4).map(\.rawValue).joined(separator: ", ")))
        }
        return facts + [Fact(name: "Fault", value: fault.fingerprint.rawValue)]
    }
}

extension FaultDetailPage.MergedStacks {
    /// - Parameter latest: The number of the latest stalls, of which these reports are the longest.
    init?(_ tree: StackTree, _ reports: Int, among latest: Int, of all: Int64) {
        lines = tree.lines().map(Line.init)
        guard !lines.isEmpty else { return nil }
        let which =
            Int64(latest) < all
            ? "the \(reports) longest of its latest \(latest) stalls"
            : Int64(reports) < all ? "its \(reports) longest stalls" : counted(Int64(reports), "stall")
        title = "Stacks of \(which) by blocked time, outermost call first"
    }
}

extension FaultDetailPage.MergedStacks.Line {
    init(_ line: StackTree.Line) {
        depth = line.depth
        (share, place, isOwn) = ("", "", false)
        switch line.part {
        case .call(let call, let part):
            (share, isOwn) = (percent(part), call.own)
            name = VisibleText.of(call.name, limit: 200)
            place = VisibleText.of(call.place ?? "", limit: 100)
        case .folded(let count): name = "… \(count) library calls"
        case .rare(let count): name = "… \(count) \(count == 1 ? "way" : "ways") of less than 1 %"
        case .more: name = "… more calls, which the flame graph shows"
        }
    }
}
