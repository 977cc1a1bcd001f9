import StallReading
import StallReports

/// Stalls as a table, newest last.
struct StallList {
    let stalls: [StallOutline]
    let ids: ShortIDs
    let faults: ShortFingerprints
    /// For each report: similar stalls that were only counted.
    var repeats: [ULID: StallReport.Repeats] = [:]
    var now: Timestamp = .now()
    var width: Int?

    /// Columns that lists without a value for them do not have.
    private struct Extra { let services, repeats: Bool }

    /// Lazy, because there may be a hundred thousand lines.
    var lines: some Sequence<StyledText> {
        let first = stalls.first?.service
        let extra = Extra(
            services: stalls.contains { $0.service != first },
            repeats: stalls.contains { repeats[$0.id] != nil }
        )
        let layout = TableLayout(columns(extra), fitting: widest.lazy.map { cells($0, extra) }, width: width)
        return (-1..<stalls.count).lazy.map {
            $0 < 0 ? layout.header : layout.line(cells(stalls[$0], extra))
        }
    }

    /// Stalls whose rows are as wide as the widest of all. They are few: durations, ages and functions repeat.
    private var widest: [StallOutline] {
        struct Length: Hashable { let duration: DurationText, isWhole: Bool }
        var (traits, services): (Set<Shared<OutlineTraits>.Identity>, Set<String?>) = ([], [])
        var (lengths, ages): (Set<Length>, Set<Int64>) = ([], [])
        return stalls.filter { stall in
            let length = Length(
                duration: DurationText(nanoseconds: stall.durationNs).rounded,
                isWhole: stall.state == .recovered
            )
            let isNew = traits.insert(.init(stall.traits)).inserted
            let isOther = services.insert(stall.service).inserted
            let isLonger = lengths.insert(length).inserted
            let isOlder = ages.insert(Self.coarse(now.nanoseconds(since: stall.startedAt) / 1_000_000_000)).inserted
            return isNew || isOther || isLonger || isOlder || repeats[stall.id] != nil
        }
    }

    /// Ages that are shown alike give the same number.
    private static func coarse(_ seconds: Int64) -> Int64 {
        for unit in [86_400, 3600, 60] as [Int64] where seconds >= 2 * unit { return seconds / unit * unit }
        return seconds
    }

    /// An unfinished stall's duration ends with a plus, so its state is left out before its fault.
    private func columns(_ extra: Extra) -> [TextTable.Column] {
        var columns: [TextTable.Column] = [.init(title: "ID"), .init(title: "STARTED", rank: 2)]
        // Output for programs must not depend on the time at which it is printed.
        if width != nil { columns.append(.init(title: "AGE", rank: 8)) }
        columns += [
            .init(title: "STATE", minimum: 10, rank: 4), .init(title: "DURATION"),
            .init(title: "KIND", rank: 1), .init(title: "VERDICT", minimum: 9, rank: 9),
            .culprits(width),
        ]
        if extra.services { columns.append(.init(title: "SERVICE", minimum: 8, rank: 6)) }
        columns += [.init(title: "LABEL", minimum: 5, rank: 5), .init(title: "FAULT", rank: 7)]
        return extra.repeats ? columns + [.init(title: "REPEATS", rank: 3)] : columns
    }

    private func cells(_ stall: StallOutline, _ extra: Extra) -> [StyledText] {
        var row = [
            // As wide in each row: not all rows are measured.
            StyledText(ids.short(stall.id)).padded(to: ids.width),
            StyledText(width == nil ? stall.startedAt.toSeconds : stall.startedAt.withoutYear),
        ]
        if width != nil { row.append(StyledText(stall.startedAt.age(now))) }
        row += [
            stall.styledState,
            StyledText(stall.durationText, stall.state == .ongoing ? .yellow : nil),
            stall.kind.styled,
            stall.verdict.styled,
            StyledText(stall.culpritText, limit: 120),
        ]
        if extra.services { row.append(StyledText(stall.service ?? "", limit: 120)) }
        row += [StyledText(stall.label, limit: 120), StyledText(faults.short(stall.fingerprint), .dim)]
        if extra.repeats {
            row.append(StyledText(repeats[stall.id].map { width == nil ? $0.dated : $0.short(now) } ?? ""))
        }
        return row
    }
}

/// A stall in `tail`: one line for each change of its state, and its cause once.
enum StallLine {
    /// - Parameter width: The terminal's. Nil: for programs, with whole ids.
    static func lines(_ report: StallReport, isFirst: Bool, width: Int?) -> [StyledText] {
        let moment = isFirst && report.state == .ongoing ? report.detectedAt : report.lastKnownMoment
        // A program watched from outside is its own service, and so is the thread's name.
        let service =
            report.service.flatMap { $0.name == report.watched.label ? nil : StyledText($0.name, limit: 80) + "  " }
            ?? ""
        let id = width == nil ? report.id.description : ShortIDs.elided(report.id)
        let line: StyledText = """
            \(moment.toMilliseconds, .dim)  \(report.styledState.padded(to: 10))  \
            \(StyledText(report.durationText).padded(to: 7))  \
            \(report.cause.verdict.styled.padded(to: 9))  \
            \(service)\(StyledText(report.watched.label, .bold, limit: 80))  \
            \(report.culpritText)  \(ShortFingerprints.prefix(of: report.fingerprint), .dim)  \(id, .dim)
            """
        let details = [report.cause.summary, report.victimText ?? ""].filter { !$0.isEmpty }
        return (isFirst ? [line] + details.map { "    \($0, .dim)" } : [line]).wrapped(to: width, hanging: 4)
    }

    /// The status line of an ongoing stall.
    static func growth(of report: StallReport) -> StyledText {
        """
        \(report.styledState) for \(DurationText(nanoseconds: report.durationNs).short, .bold)  \
        \(StyledText(report.watched.label, limit: 80))  \(report.culpritText)
        """
    }
}

extension StallReport.Repeats {
    /// `×37 since 12:00`, with the date if that was on another day: `×37 since 01-31 12:00`
    func short(_ now: Timestamp) -> String {
        "×\(count) since \(firstAt.day == now.day ? firstAt.timeOfDay : String(firstAt.withoutYear.dropLast(3)))"
    }

    /// `×37 since 2026-01-31T12:00:00Z`
    var dated: String { "×\(count) since \(firstAt.toSeconds)" }

    /// Of a single one `×1 at 2026-01-31T12:00:00Z, 590ms`; of several
    /// `×37 since 2026-01-31T12:00:00Z, the last at 2026-01-31T12:09:31Z, 14.1s together, the longest 590ms`
    var whole: String {
        if count == 1 { return "×1 at \(firstAt.toSeconds), \(DurationText(nanoseconds: longestNs).short)" }
        return """
            \(dated), the last at \(lastAt.toSeconds), \(DurationText(nanoseconds: totalNs).short) together, \
            the longest \(DurationText(nanoseconds: longestNs).short)
            """
    }
}

/// The lines of `tail` and `watch` about stalls that are only counted. For each fault and loop of a run (of `watch`: for each fault) there is a
/// line at the first stall, and another whenever the count has doubled.
struct RepeatLines {
    private struct Key: Hashable {
        let fingerprint: Fingerprint
        let label: String?
        let type: WatchedType?
        let kind: StallKind?
        let service: String?
    }

    /// By run: each counts for itself.
    private var shown: [ULID: [Key: Int]] = [:]

    /// The largest number of runs remembered: `tail -f` may run for months.
    private static let remembered = 1000
    private static let rememberedFaults = 1024

    mutating func lines(_ run: RunRecord, culprits: [ULID: String]) -> [StyledText] {
        (run.repeated ?? []).compactMap { line($0, of: run.id, culprits: culprits) }
    }

    /// Nil if the count has not doubled since the last line.
    ///
    /// - Parameter culprits: By the ids of reports.
    mutating func line(_ fault: RunRecord.Repeated, of run: ULID, culprits: [ULID: String]) -> StyledText? {
        // The run that began first has probably ended.
        if shown[run] == nil, shown.count >= Self.remembered, let oldest = shown.keys.min() { shown[oldest] = nil }
        let repeats = fault.repeats
        let key = Key(
            fingerprint: fault.fingerprint,
            label: fault.label,
            type: fault.type,
            kind: fault.kind,
            service: fault.service
        )
        // As many as a monitor remembers: `watch` may run for months. A forgotten fault is shown once more.
        if shown[run]?[key] == nil, shown[run]?.count ?? 0 >= Self.rememberedFaults { shown[run] = nil }
        let last = shown[run]?[key] ?? 0
        // A lower count than before means that a report was written and counting started again.
        guard repeats.count / 2 >= last || repeats.count < last, repeats.count > 0 else { return nil }
        shown[run, default: [:]][key] = repeats.count
        let culprit = repeats.report.flatMap { culprits[$0] } ?? "\(fault.fingerprint)"
        let name: StyledText = fault.label.map { "\(StyledText($0, .bold, limit: 80))  \(culprit)" } ?? "\(culprit)"
        return """
            \(repeats.lastAt.toMilliseconds, .dim)  \(StyledText("repeated", .yellow).padded(to: 10))  \
            \(StyledText("×\(repeats.count)").padded(to: 7))  \(name)  \
            \("since \(repeats.firstAt.toSeconds), the longest \(DurationText(nanoseconds: repeats.longestNs).short)", .dim)
            """
    }
}

/// The order of `list`. The most important stalls come last, above the prompt.
enum ListOrder: String, CaseIterable {
    case started, duration, severity, label

    /// Stable: among equals the newest is last.
    func sorted(_ stalls: [StallOutline]) -> [StallOutline] {
        switch self {
        case .started: stalls
        case .duration: stalls.sorted { ($0.durationNs, $0.id) < ($1.durationNs, $1.id) }
        case .severity: stalls.sorted { ($0.severity.rank, $0.id) < ($1.severity.rank, $1.id) }
        case .label: stalls.sorted { ($0.label, $0.id) < ($1.label, $1.id) }
        }
    }
}
