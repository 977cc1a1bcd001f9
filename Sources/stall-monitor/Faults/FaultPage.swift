import StallReading
import StallReports

/// A fault's page: cost, place, cause, one tree of all its stacks, lock owners, days, reports.
struct FaultPage {
    let fault: Fault
    let evidence: FaultEvidence
    let ids: ShortIDs
    var now: Timestamp = .now()
    /// Lines of the culprit's source file, if it is on this machine.
    var source: [StyledText] = []
    var style = PageStyle()

    var lines: [StyledText] {
        var lines = [headline, ""]
        lines += rows.map { "\(StyledText($0, .dim).padded(to: 10))\($1)" }
        lines = (lines + [""]).wrapped(to: style.width, hanging: 10)
        lines += stacks.wrapped(to: style.width, hanging: 12)
        lines += days
        return lines + [""] + reports
    }

    private var headline: StyledText {
        let total = DurationText(nanoseconds: fault.totalNs).short
        let worst = DurationText(nanoseconds: fault.longestNs).short
        let stalls = quantity(fault.count, "stall")
        let share = fault.share.map { " (\(FaultTable.percent($0)) of the watched time)" } ?? ""
        return
            "\("Fault", .bold) \(StyledText(fault.fingerprint.rawValue, .yellow)): \(stalls, .bold), \(total) together\(share), worst \(worst, .bold)"
    }

    /// `2026-01-31T12:00:00Z (3h ago)`
    private func seen(_ moment: Timestamp) -> String { "\(moment.toSeconds) (\(moment.ago(now)))" }

    private var trend: String {
        fault.trend.direction == .few ? "unknown (too few stalls)" : fault.trend.direction.text
    }

    private var rows: [(String, StyledText)] {
        let others = fault.count - fault.reports
        let counted: StyledText =
            "\(fault.reports); the figures below are theirs. \(quantity(others, "more stall")) \(others == 1 ? "was" : "were") only counted"
        let (why, advice) = (evidence.latest?.cause.summary ?? "", evidence.latest.flatMap(Advice.of))
        let aliases = fault.aliases.prefix(4).map(\.rawValue).joined(separator: ", ")
        let rows: [(String, StyledText?)] = [
            ("Seen", "first \(seen(fault.firstAt)), last \(seen(fault.lastAt)); trend \(trend)"),
            ("Reports", others > 0 ? counted : nil), ("Verdicts", Self.counts(fault.verdicts) ?? ""),
            ("Why", why.isEmpty ? nil : "\(why) \("(latest stall)", .dim)"),
            ("Likely", advice.map { "\($0.likely)" }), ("To do", advice.map { "\($0.remedy)" }),
            ("Held by", Self.counts(evidence.owners)), ("Services", Self.counts(fault.services)),
            ("Hosts", Self.counts(fault.hosts) ?? ""), ("Releases", Self.counts(fault.releases)),
            ("Also", aliases.isEmpty ? nil : "\(aliases) \("(before symbolication)", .dim)"),
        ]
        return [("Where", "\(fault.culpritText, .bold)  \(fault.place ?? "")")] + source.map { ("", $0) } + rows.known
    }

    /// `waiting 37, starved 2`: most frequent first, at most eight. Without a number if there are no reports. Nil if there are none.
    private static func counts(_ counts: [String: Int64]) -> StyledText? {
        guard !counts.isEmpty else { return nil }
        let sorted = counts.sorted { ($1.value, $0.key) < ($0.value, $1.key) }
        let some = sorted.prefix(8).map { VisibleText.of($0.key, limit: 120) + ($0.value > 0 ? " \($0.value)" : "") }
            .joined(separator: ", ")
        return StyledText(some + (sorted.count > 8 ? ", and \(quantity(sorted.count - 8, "other"))" : ""), limit: 2000)
    }

    private var stacks: [StyledText] {
        let count = quantity(evidence.treeReports, "report")
        if style.showsFlame { return FlameChart(tree: evidence.tree, title: count, style: style).lines + [""] }
        let listing = StackTreeListing(tree: evidence.tree, style: style).lines
        guard !listing.isEmpty else { return ["No stack was captured.", ""] }
        return ["\("Stacks", .bold) of \(count) by blocked time, outermost call first" as StyledText] + listing + [""]
    }

    /// Reports per day, for the latest 14 days with one.
    private var days: [StyledText] {
        let (all, limit) = (evidence.days, 14)
        let known = all.sorted { $0.key < $1.key }.suffix(limit)
        let most = Double(known.map(\.value).max() ?? 1)
        let part = all.count > limit ? ", the latest \(limit) of \(all.count)" : ""
        return ["\("Days", .bold)\(ShownTime.isUTC ? " (UTC)" : "")\(part)" as StyledText]
            + known.map { day, count in
                let bar = String(repeating: "█", count: max(1, Int(saturating: Double(count) / most * 20)))
                return "  \(day)  \(bar, .cyan) \(count)"
            }
    }

    private var reports: [StyledText] {
        var table = TextTable([
            .init(title: "REPORT"), .init(title: "STARTED", rank: 3), .init(title: "DURATION"),
            .init(title: "STATE", rank: 1),
            .init(title: "VERDICT", rank: 4), .init(title: "HOST", minimum: 6),
            .init(title: "RELEASE", minimum: 7, rank: 2, hidesEmpty: true),
        ])
        for stall in evidence.recent.reversed() {
            table.append([
                StyledText(ids.short(stall.id)), StyledText(stall.startedAt.toSeconds), StyledText(stall.durationText),
                stall.styledState, stall.verdict.styled, StyledText(stall.host, limit: 80),
                StyledText(stall.release ?? "", limit: 40),
            ])
        }
        let older = fault.reports - Int64(evidence.recent.count)
        let rest = "… \(quantity(older, "older one")): stall-monitor list --fingerprint \(fault.fingerprint)"
        let more: [StyledText] = older > 0 ? ["\(rest, .dim)"] : []
        return table.lines(width: style.width ?? .max) + more.wrapped(to: style.width, hanging: 2)
    }
}

/// Details of one fault beyond its sums. Only the latest reports are read whole.
struct FaultEvidence {
    /// How many reports are merged into the tree, and how many are listed.
    static let treeLimit = 200
    static let listLimit = 10

    private(set) var tree = StackTree()
    private(set) var treeReports = 0
    private(set) var latest: StallReport?
    /// Lock owners, each with its number of reports.
    private(set) var owners: [String: Int64] = [:]
    /// Reports by quarters of an hour since the epoch: days begin at one of them in every time zone.
    private var quarters: [Int64: Int64] = [:]
    private static let quarter: Int64 = 900
    /// The latest stalls, oldest first once ``read(_:)`` was called.
    private var stalls: [StallOutline] = []

    /// Those to list.
    var recent: ArraySlice<StallOutline> { stalls.suffix(Self.listLimit) }

    mutating func add(_ stall: StallOutline) {
        quarters[stall.startedAt.seconds / Self.quarter, default: 0] += 1
        stalls.append(stall)
        if stalls.count > 2 * Self.treeLimit { keepLatest() }
    }

    /// Reports by day.
    var days: [String: Int64] {
        quarters.reduce(into: [:]) { days, part in
            days[Timestamp(seconds: part.key * Self.quarter).day, default: 0] += part.value
        }
    }

    private mutating func keepLatest() { stalls = stalls.sorted { $0.id < $1.id }.suffix(Self.treeLimit) }

    /// Call this after all stalls are added.
    ///
    /// - Parameter load: reads a report; nil if that fails.
    mutating func read(_ load: (ULID) -> StallReport?) {
        keepLatest()
        for stall in stalls {
            guard let report = load(stall.id) else { continue }
            tree.add(report)
            treeReports += 1
            latest = report
            guard let lock = report.cause.lock, let owner = lock.owner, owners.count < 256 else { continue }
            owners["\(owner.plainName ?? "thread \(owner.id)") (\(lock.label ?? lock.kind.rawValue))", default: 0] += 1
        }
    }
}

/// Faults as a table with one row each.
struct FaultTable {
    let faults: [Fault]
    let names: ShortFingerprints
    let now: Timestamp
    var width: Int?

    var lines: [StyledText] {
        var table = TextTable([
            .init(title: "FAULT"), .init(title: "COUNT", rank: 9), .init(title: "TOTAL"),
            .init(title: "WORST", rank: 7), .init(title: "SHARE", rank: 4), .init(title: "LAST", rank: 6),
            .init(title: "FIRST", rank: 1), .init(title: "TREND", rank: 3), .init(title: "VERDICT", rank: 8),
            .culprits(width), .init(title: "SERVICE", minimum: 7, rank: 0),
            .init(title: "HOSTS", minimum: 7, rank: 2), .init(title: "RELEASES", minimum: 8, rank: 5, hidesEmpty: true),
        ])
        for fault in faults { table.append(cells(fault)) }
        return table.lines(width: width)
    }

    private func cells(_ fault: Fault) -> [StyledText] {
        [
            StyledText(names.short(fault.fingerprint), .yellow),
            "\(fault.count)",
            "\(DurationText(nanoseconds: fault.totalNs).short)",
            "\(DurationText(nanoseconds: fault.longestNs).short)",
            StyledText(fault.share.map(Self.percent) ?? ""),
            StyledText(fault.lastAt.ago(now)),
            StyledText(fault.firstAt.ago(now)),
            StyledText(fault.trend.direction.text),
            StyledText(Self.main(fault.verdicts), Verdict(rawValue: fault.verdicts.most ?? "").style, limit: 60),
            StyledText(fault.culpritText, limit: 120),
            StyledText(Self.main(fault.services), limit: 60),
            StyledText(Self.names(fault.hosts), limit: 60),
            StyledText(Self.names(fault.releases), limit: 60),
        ]
    }

    /// `12.3 %`; never 0 for a share above 0.
    static func percent(_ share: Double) -> String {
        let tenths = Int(saturating: (share * 1000).rounded())
        return tenths == 0 && share > 0 ? "<0.1 %" : "\(tenths / 10).\(tenths % 10) %"
    }

    /// The most frequent name, and the number of others.
    private static func main(_ counts: [String: Int64]) -> String {
        guard let most = counts.most else { return "" }
        return counts.count == 1 ? most : "\(most) +\(counts.count - 1)"
    }

    /// The names. If there are more than two, only their number, which fits into any column.
    private static func names(_ counts: [String: Int64]) -> String {
        counts.count > 2 ? "\(counts.count)" : counts.keys.sorted().joined(separator: ", ")
    }
}

extension Trend.Direction {
    var text: String { self == .few ? "too few" : rawValue }
}

extension Fault {
    var culpritText: String { culprit ?? "only counted, in no report" }
}

extension [String: Int64] {
    /// The name with the highest count; among equals the alphabetically first.
    var most: String? { self.min { ($0.value, $1.key) > ($1.value, $0.key) }?.key }
}
