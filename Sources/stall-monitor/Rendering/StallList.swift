import StallReports

/// Stalls as a table, the newest last.
struct StallList {
    let stalls: [StallOutline]
    let ids: ShortIDs
    let faults: ShortFingerprints
    /// Stalls like it that were only counted, by the report.
    var repeats: [ULID: StallReport.Repeats] = [:]
    var now: Timestamp = .now()
    var width: Int?

    /// One after the other: there may be a hundred thousand.
    var lines: some Sequence<StyledText> {
        let hasRepeats = stalls.contains { repeats[$0.id] != nil }
        let layout = TableLayout(columns(hasRepeats), fitting: stalls.lazy.map { cells($0, hasRepeats) }, width: width)
        return (-1..<stalls.count).lazy.map {
            $0 < 0 ? layout.header : layout.line(cells(stalls[$0], hasRepeats))
        }
    }

    private func columns(_ hasRepeats: Bool) -> [TextTable.Column] {
        let columns: [TextTable.Column] = [
            .init(title: "ID"), .init(title: "STARTED", rank: 2), .init(title: "AGE", rank: 5),
            .init(title: "STATE", minimum: 9, rank: 6), .init(title: "DURATION"),
            .init(title: "KIND", rank: 1), .init(title: "VERDICT", minimum: 7, rank: 8),
            .init(title: "CULPRIT", minimum: 20), .init(title: "LABEL", minimum: 5, rank: 7),
            .init(title: "FAULT", rank: 4),
        ]
        let shown = columns.filter { width != nil || $0.title != "AGE" }
        return hasRepeats ? shown + [.init(title: "REPEATS", rank: 3)] : shown
    }

    private func cells(_ stall: StallOutline, _ hasRepeats: Bool) -> [StyledText] {
        // What is read by programs is to be the same a minute later.
        let age = width == nil ? [] : [StyledText(stall.startedAt.age(now))]
        let row =
            [
                StyledText(ids.short(stall.id)),
                StyledText(width == nil ? stall.startedAt.toSeconds : stall.startedAt.withoutYear),
            ] + age + [
                stall.styledState,
                StyledText(stall.durationText),
                stall.kind.styled,
                stall.verdict.styled,
                StyledText(stall.culpritText, limit: 120),
                StyledText(stall.label, limit: 120),
                StyledText(faults.short(stall.fingerprint), .dim),
            ]
        guard hasRepeats else { return row }
        return row + [StyledText(repeats[stall.id].map { width == nil ? $0.dated : $0.short } ?? "")]
    }
}

/// A stall as `tail` tells it: one line for each change of its state, and the cause once.
enum StallLine {
    static func lines(_ report: StallReport, isFirst: Bool) -> [StyledText] {
        let moment = isFirst && report.state == .ongoing ? report.detectedAt : report.lastKnownMoment
        let line: StyledText = """
            \(moment.toMilliseconds, .dim)  \(report.styledState.padded(to: 10))  \
            \(StyledText(report.durationText).padded(to: 7))  \
            \(report.cause.verdict.styled.padded(to: 8))  \
            \(StyledText(report.watched.label, .bold, limit: 80))  \(report.culpritText)  \(ShortFingerprints.prefix(of: report.fingerprint), .dim)  \(report.id, .dim)
            """
        let details = [report.cause.summary, report.victimText ?? ""].filter { !$0.isEmpty }
        return isFirst ? [line] + details.map { "    \($0, .dim)" } : [line]
    }

    /// One that lasts, as it grows.
    static func growth(of report: StallReport) -> StyledText {
        """
        \(report.styledState) for \(DurationText(nanoseconds: report.durationNs).short, .bold)  \
        \(StyledText(report.watched.label, limit: 80))  \(report.culpritText)
        """
    }
}

extension StallReport.Repeats {
    /// `×37 since 12:00`
    var short: String { "×\(count) since \(firstAt.timeOfDay)" }

    /// `×37 since 2026-01-31T12:00:00Z`
    var dated: String { "×\(count) since \(firstAt.toSeconds)" }

    /// `×37 since 2026-01-31T12:00:00Z, the last at 2026-01-31T12:09:31Z, 14.1s together, the longest 590ms`
    var whole: String {
        """
        \(dated), the last at \(lastAt.toSeconds), \(DurationText(nanoseconds: totalNs).short) together, \
        the longest \(DurationText(nanoseconds: longestNs).short)
        """
    }
}

/// What `tail` tells of stalls that are only counted: of each fault and loop at the first, then each time there are twice as many.
struct RepeatLines {
    private struct Key: Hashable {
        let fingerprint: Fingerprint
        let label: String?
        let type: WatchedType?
        let kind: StallKind?
    }

    private var told: [Key: Int] = [:]

    mutating func lines(_ run: RunRecord, culprits: [ULID: String]) -> [StyledText] {
        (run.repeated ?? []).compactMap { fault -> StyledText? in
            let repeats = fault.repeats
            let key = Key(fingerprint: fault.fingerprint, label: fault.label, type: fault.type, kind: fault.kind)
            let last = told[key] ?? 0
            // Fewer than before: a report holds them by now, and the count has begun anew.
            guard repeats.count / 2 >= last || repeats.count < last, repeats.count > 0 else { return nil }
            told[key] = repeats.count
            let culprit = repeats.report.flatMap { culprits[$0] } ?? "\(fault.fingerprint)"
            let name: StyledText = fault.label.map { "\(StyledText($0, .bold, limit: 80))  \(culprit)" } ?? "\(culprit)"
            return """
                \(repeats.lastAt.toMilliseconds, .dim)  \(StyledText("repeated", .yellow).padded(to: 10))  \
                \(StyledText("×\(repeats.count)").padded(to: 7))  \(name)  \
                \("since \(repeats.firstAt.toSeconds), the longest \(DurationText(nanoseconds: repeats.longestNs).short)", .dim)
                """
        }
    }
}
