import StallReading
import StallReports
import StallStore

/// The page of one report: its cause and all its stacks.
struct ReportPage {
    let title: String
    let team: String
    let culprit: String
    let headline: String
    let facts: [Fact]
    let faultLink: String
    let jsonLink: String
    let stacks: [Stack]

    struct Stack {
        var title: String
        var error: String?
        var frames: [Frame]
    }

    struct Frame {
        var name: String
        var place: String
        var isOwn: Bool
    }

    init(_ report: StallReport, team: String) {
        let outline = StallOutline(report)
        culprit = Self.shown(outline.culpritText)
        (title, self.team) = (culprit, team)
        let least = report.state == .recovered ? "" : "at least "
        headline = Self.shown(
            "\(least)\(length(report.durationNs)), \(report.severity.rawValue), \(outline.verdict.canonical.rawValue), "
                + "\(report.state.rawValue), \(moment(report.startedAt)) (UTC)"
        )
        var facts = Self.reasons(report)
        let service = [report.service?.name, report.service?.version].compactMap(\.self).joined(separator: " ")
        let rest = [
            ("Watched", report.watched.label), ("Service", service), ("Host", report.host.name),
            ("Process", "\(report.process.pid) \(report.process.executable ?? "")"),
        ]
        facts += rest.filter { !$0.1.isEmpty }.map { Fact(name: $0, value: Self.shown($1)) }
        facts += report.metadata.sorted { $0.key < $1.key }.prefix(20).map { name, value in
            Fact(name: Self.shown(name), value: Self.shown(value))
        }
        self.facts = facts
        faultLink = "/faults/\(report.fingerprint.rawValue)?since=\(Self.since(report.startedAt))"
        jsonLink = "/api/v1/reports/\(report.id)"
        stacks = report.stacks.prefix(20).map { Self.stack($0, report) }
    }

    /// The beginning of the time that the fault's page is to show: a month ago, or that of this stall, if it is older.
    private static func since(_ start: Timestamp) -> String {
        start < Timestamp.now().advanced(byNanoseconds: -29 * Hours.dayNs) ? start.description : "30d"
    }

    /// The cause, and what to do about it.
    static func reasons(_ report: StallReport) -> [Fact] {
        var facts: [Fact] = []
        if !report.cause.summary.isEmpty { facts.append(Fact(name: "Cause", value: shown(report.cause.summary))) }
        if let advice = Advice.of(report) {
            facts += [Fact(name: "Likely", value: advice.likely), Fact(name: "To do", value: advice.remedy)]
        }
        return facts
    }

    private static func stack(_ stack: StallReport.Stack, _ report: StallReport) -> Stack {
        let seen = stack.count > 1 ? ", seen \(stack.count) times" : ""
        return Stack(
            title: shown("\(stack.role.rawValue): thread \(stack.thread.id) \(stack.thread.name ?? "")\(seen)"),
            error: stack.error.map { shown("no stack: \($0)") },
            frames: stack.callers(from: 0).prefix(256).map { frame in
                let module = frame.module.flatMap {
                    report.modules.indices.contains($0) ? report.modules[$0].path : nil
                }
                let line = frame.line.map { ":\($0)" } ?? ""
                let file = frame.file.map { ($0.split(separator: "/").last.map(String.init) ?? $0) + line }
                return Frame(
                    name: shown(frame.function ?? frame.symbol ?? frame.placeName(in: module)),
                    place: shown(file ?? module?.split(separator: "/").last.map(String.init) ?? ""),
                    isOwn: frame.own
                )
            }
        )
    }

    private static func shown(_ text: String) -> String { VisibleText.of(text, limit: 500) }
}
