import StallReports

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
