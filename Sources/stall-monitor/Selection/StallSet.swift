import StallGate
import StallReports

/// One side of a comparison: a report directory, or those stalls of the given directories that have a release, a host, a day.
enum StallSet: Hashable {
    case directory(String)
    case choice(StallSelection)

    /// The names before `=`, as they are told.
    static let keys = "release, host, service, label, day"

    /// `./stall-reports`, or conditions as `release=1.4,host=web*,day=yesterday`.
    ///
    /// - Throws: what is wrong with the conditions.
    init(_ text: String, now: Timestamp = .now()) throws(CommandFailure) {
        guard text.contains("="), !text.contains("/") else {
            self = .directory(text)
            return
        }
        var selection = StallSelection()
        for condition in text.split(separator: ",", omittingEmptySubsequences: false) {
            let parts = condition.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
            guard parts.count == 2, !parts[1].isEmpty else {
                throw CommandFailure("'\(text)' is no choice of stalls: give \(Self.keys) with =, as in release=1.4")
            }
            switch parts[0] {
            case "release": selection.releases.append(NamePattern(parts[1]))
            case "host": selection.hosts.append(NamePattern(parts[1]))
            case "service": selection.services.append(NamePattern(parts[1]))
            case "label": selection.labels.append(NamePattern(parts[1]))
            case "day":
                let isDay = ["today", "yesterday"].contains(parts[1].lowercased()) || parts[1].utf8.count == 10
                guard isDay, let start = Moment(parts[1], now: now)?.timestamp else {
                    throw CommandFailure("'\(parts[1])' is no day: give today, yesterday, or one as 2026-11-22")
                }
                (selection.since, selection.until) = (start, start.advanced(byNanoseconds: 86_400_000_000_000 - 1))
            default: throw CommandFailure("'\(parts[0])' cannot be chosen by: give \(Self.keys)")
            }
        }
        self = .choice(selection)
    }

    /// What the side holds.
    ///
    /// - Parameter sources: where a choice looks.
    func overview(in sources: ReportSources) throws(ReportError) -> ReportReader.Overview {
        switch self {
        case .directory(let path): try ReportSources([path]).overview()
        case .choice(let selection): try sources.overview().chosen(by: selection)
        }
    }
}
