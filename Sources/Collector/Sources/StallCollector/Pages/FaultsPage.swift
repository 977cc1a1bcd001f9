import StallReading
import StallReports
import StallStore

/// The start page: the faults of a time range.
struct FaultsPage {
    let title = "Stalls"
    let team: String
    let since: [Option]
    /// The end of the range. Nil if that is now.
    let until: String?
    let choices: [Choice]
    let order: [Option]
    let text: String
    let summary: String
    /// Nil without alerts.
    let alerts: AlertList?
    /// The flame graph of what is shown.
    let flame: String
    /// Why there are no faults.
    let nothing: String?
    let hasRows: Bool
    let rows: [Row]

    struct Option {
        var value: String
        var name: String
        var isChosen: Bool
    }

    struct Choice {
        var title: String
        var name: String
        var options: [Option]
    }

    struct Row {
        var link: String
        var culprit: String
        var place: String
        var total: String
        var count: Int64
        var longest: String
        var share: String
        var trend: String
        var direction: String
        var verdict: String
        var service: String
        var hosts: String
        var releases: String
        var last: String

        init(_ fault: Fault, _ links: PageLinks) {
            (link, culprit, place) = (links.fault(fault.fingerprint), fault.title, fault.place ?? "")
            (total, count, longest) = (length(fault.totalNs), fault.count, length(fault.longestNs))
            share = fault.share.map(percent) ?? ""
            (trend, direction) = (Bars.trend(fault.trend.counts), fault.trend.direction.text)
            (verdict, service) = (mostFrequent(fault.verdicts), mostFrequent(fault.services))
            (hosts, releases) = (mostFrequent(fault.hosts), mostFrequent(fault.releases))
            last = moment(fault.lastAt)
        }
    }

    struct AlertRow {
        var text: String
        var since: String
        /// The link to the alert's fault. Nil if the alert is about something else.
        var link: String?

        init(_ alert: Alert) {
            (text, since) = ("\(alert.rule): \(alert.text)", moment(alert.beganAt))
            link = AlertSubject.fault(of: alert.subject).map { PageLinks.alerted($0) }
        }
    }

    /// Current alerts, the newest first. The faults below them must stay in sight, so the page opens with few.
    struct AlertList {
        static let open = 3
        /// The number in a page: each of a new release's faults can have an alert.
        static let most = 100
        let heading: String
        let newest: [AlertRow]
        /// Nil if those are all.
        let more: More?

        struct More {
            var caption: String
            var older: [AlertRow]
            /// How many are not on the page. Nil if there are none.
            var left: String?
        }

        /// Nil if there are none.
        init?(_ alerts: [Alert]) {
            guard !alerts.isEmpty else { return nil }
            let sorted = alerts.sorted { ($1.beganAt, $0.rule, $0.subject) < ($0.beganAt, $1.rule, $1.subject) }
            let rows = sorted.prefix(Self.most).map { AlertRow($0) }
            let (hidden, left) = (sorted.count - Self.open, sorted.count - Self.most)
            heading = counted(Int64(sorted.count), "alert")
            newest = Array(rows.prefix(Self.open))
            more =
                hidden > 0
                ? More(
                    caption: counted(Int64(hidden), "more alert"),
                    older: Array(rows.dropFirst(Self.open)),
                    left: left > 0 ? "and \(counted(Int64(left), "more alert"))" : nil
                ) : nil
        }
    }

    /// - Parameter list: One fault more than the page shows, if there are more.
    init(_ question: QuestionText, _ list: FaultList, _ choices: Choices, _ alerts: [Alert]) {
        let query = question.query
        team = query.team
        self.alerts = AlertList(alerts.filter { $0.team == query.team && $0.endedAt == nil })
        (since, until) = (Self.ranges(question.since), question.until.isEmpty ? nil : question.until)
        order = Self.options(
            [("total", "blocked time"), ("count", "number"), ("worst", "worst"), ("last", "latest")],
            chosen: [question.order.rawValue]
        )
        self.choices = [
            ("Service", "service", choices.services, query.services),
            ("Release", "release", choices.releases, query.releases),
            ("Host", "host", choices.hosts, query.hosts),
            ("Why", "verdict", choices.verdicts, query.verdicts),
        ].map { title, name, all, chosen in
            Choice(title: title, name: name, options: Self.options(all.map { ($0, $0) }, chosen: chosen))
        }
        text = query.text ?? ""
        summary = Self.summary(question, list)
        hasRows = !list.faults.isEmpty
        nothing = hasRows ? nil : list.runs > 0 ? "No stalls." : "No stalls, and no monitor that ran: nobody looked."
        let links = PageLinks(question: question)
        flame = links.flame(nil)
        rows = list.faults.prefix(question.limit).map { Row($0, links) }
    }

    private static func summary(_ question: QuestionText, _ list: FaultList) -> String {
        let runs = counted(Int64(list.runs), "monitor")
        let watched = list.watchedNs > 0 ? ", which watched \(length(list.watchedNs)) together" : ""
        let isCut = list.faults.count > question.limit
        let range = "between \(moment(question.query.since)) and \(moment(question.query.until)) (UTC)"
        return "\(runs) ran \(range)\(watched)."
            + (isCut ? " Shown are the first \(question.limit)." : "")
            + partialNote(list.isPartial)
    }

    static func ranges(_ chosen: String) -> [Option] {
        options(
            [("1h", "an hour"), ("24h", "a day"), ("7d", "7 days"), ("30d", "30 days"), ("90d", "90 days")],
            chosen: [chosen]
        )
    }

    /// Always includes the current choice, even if nothing was found for it.
    static func options(_ options: [(String, String)], chosen: [String]) -> [Option] {
        let missing = chosen.filter { name in !options.contains { $0.0 == name } }.map { ($0, $0) }
        return (options + missing).map { Option(value: $0, name: $1, isChosen: chosen.contains($0)) }
    }
}
