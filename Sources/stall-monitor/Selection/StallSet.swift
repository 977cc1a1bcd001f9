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
                let next = ShownTime.startOfDay(of: start, plus: 1)
                (selection.since, selection.until) = (start, next.advanced(byNanoseconds: -1))
            default: throw CommandFailure("'\(parts[0])' cannot be chosen by: give \(Self.keys)")
            }
        }
        self = .choice(selection)
    }

    /// What a choice chooses by.
    var selection: StallSelection { if case .choice(let selection) = self { selection } else { .everything } }

    /// What the side holds.
    ///
    /// - Parameters:
    ///   - sources: where a choice looks.
    ///   - name: the side's, for a person.
    ///   - failures: is added what could not be read, each once.
    func baseline(in sources: ReportSources, named name: String, _ failures: inout [ReportError]) throws -> Baseline {
        let sources =
            if case .directory(let path) = self {
                try ReportSources([path], covering: [.everything])
            } else {
                sources
            }
        let whole = try CommandFailure.wrapping { () throws(ReportError) in try sources.overview() }
        for failure in whole.failures where !failures.contains(failure) { failures.append(failure) }
        return try baseline(of: whole, named: name)
    }

    /// What the side holds of what there is.
    func baseline(of whole: ReportReader.Overview, named name: String) throws(CommandFailure) -> Baseline {
        let overview = whole.chosen(by: selection)
        if let doubt = whole.doubts(of: selection).first { Output.note("\(name): \(doubt)") }
        guard let stalls = Baseline(overview, at: .now()) else {
            let found = overview.stalls.isEmpty ? "no stalls and " : ""
            throw CommandFailure("\(name): \(found)no run record of a monitor, so nobody knows how long it was watched")
        }
        return stalls
    }
}
