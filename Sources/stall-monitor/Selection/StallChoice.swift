import StallGate
import StallReading
import StallReports

/// The argument of `show`: the latest stall, an earlier one, or a prefix of a stall's id or a fault's fingerprint.
struct StallChoice: Hashable {
    /// As given.
    private let text: String
    /// How many stalls before the latest one. Nil for other choices.
    private let before: Int?
    /// A prefix of an id in upper case. Nil if it cannot be one.
    private let idPrefix: String?
    /// The end of the id, if its middle is left out as in lists: `01M88FJH…MZTX60`, or with two dots.
    private let idSuffix: String
    private let fingerprint: FingerprintPrefix?

    /// Nil if it cannot be a prefix of an id or fingerprint.
    init?(_ text: String) {
        self.text = text
        before = Self.stepsBeforeLatest(text)
        let parts = text.uppercased().replacing("..", with: "…").split(separator: "…", omittingEmptySubsequences: false)
        let (start, end) = (String(parts[0]), parts.count == 2 ? String(parts[1]) : "")
        let isElided = parts.count == 2 && !end.isEmpty && start.count + end.count <= 26
        let middle = String(repeating: "0", count: max(0, 26 - start.count - end.count))
        let isID = !start.isEmpty && (parts.count == 1 || isElided) && ULID(start + middle + end) != nil
        (idPrefix, idSuffix) = (isID ? start : nil, isID ? end : "")
        fingerprint = FingerprintPrefix(text)
        if before == nil, idPrefix == nil, fingerprint == nil { return nil }
    }

    /// `latest`, `latest~1` for the one before it, `latest~` for the same as `latest~1`.
    private static func stepsBeforeLatest(_ text: String) -> Int? {
        let text = text.lowercased()
        if text == "latest" { return 0 }
        guard text.hasPrefix("latest~") else { return nil }
        let number = text.dropFirst("latest~".count)
        if number.isEmpty { return 1 }
        return number.allSatisfy(\.isWholeNumber) ? Int(number) : nil
    }

    enum Found: Hashable {
        /// The stall that is this many stalls before the latest one.
        case latest(before: Int)
        case stall(ULID)
        case fault(FingerprintPrefix)
    }

    /// Reads outlines only if the text may be a fingerprint.
    func pick(from catalog: Catalogs) throws(CommandFailure) -> Found {
        if let before { return .latest(before: before) }
        let ids = idPrefix.map { self.ids(beginningWith: $0, in: catalog.stalls) } ?? []
        let faults = faults(in: catalog)
        switch (ids.count, faults.count) {
        case (1, 0): return .stall(ids[0])
        case (0, 1): return .fault(FingerprintPrefix(faults[0].fingerprint.rawValue) ?? fingerprint!)
        case (0, 0): throw CommandFailure(nothing)
        default: throw ambiguous(ids, faults, catalog)
        }
    }

    /// The ids are sorted, and so is their text.
    private func ids(beginningWith prefix: String, in stalls: [ULID]) -> [ULID] {
        let first = ULID(prefix + String(repeating: "0", count: max(0, 26 - prefix.utf8.count)))
        guard let first else { return [] }
        let candidates = stalls[stalls.firstSorted(notBefore: first)...].prefix { $0.description.hasPrefix(prefix) }
        return idSuffix.isEmpty ? Array(candidates) : candidates.filter { $0.description.hasSuffix(idSuffix) }
    }

    private var nothing: String {
        if fingerprint == nil {
            return "no stall's id begins with \(idPrefix ?? text); 'stall-monitor list' shows them"
        }
        return
            "no stall's id and no fault's fingerprint begins with \(text); 'stall-monitor list' and 'stall-monitor faults' show them"
    }

    /// One stall of each fault with a matching fingerprint or alias.
    private func faults(in catalog: Catalogs) -> [StallOutline] {
        guard let fingerprint else { return [] }
        var (found, pairs): ([Fingerprint: StallOutline], [Fingerprint: [Fingerprint]]) = ([:], [:])
        var seen: Set<Shared<OutlineTraits>.Identity> = []
        for part in catalog.all {
            _ = try? part.forEachOutline { stall in
                // What stalls have in common is compared once.
                guard seen.insert(Shared.Identity(stall.traits)).inserted else { return }
                let known = [stall.fingerprint] + (stall.aliases ?? [])
                guard known.contains(where: fingerprint.matches) else { return }
                (found[stall.fingerprint], pairs[stall.fingerprint]) = (stall, stall.aliases ?? [])
            }
        }
        // Several aliases of one fault are not ambiguous.
        let names = FaultNames(pairs: pairs.map { ($0.key, $0.value) })
        var known: Set<Fingerprint> = []
        return found.values.sorted { $0.id < $1.id }.filter { known.insert(names.first(of: $0.fingerprint)).inserted }
    }

    /// Lists the candidates with time, length and culprit.
    private func ambiguous(_ ids: [ULID], _ faults: [StallOutline], _ catalog: Catalogs) -> CommandFailure {
        var candidates = faults.prefix(5).map { "fault \($0.fingerprint)  \($0.culpritText)" }
        candidates += ids.suffix(5).reversed().map { id in
            guard let stall = try? catalog.outline(id) else { return "\(id)" }
            return "\(id)  \(stall.startedAt.toSeconds)  \(stall.durationText)  \(stall.culpritText)"
        }
        let count = ids.count + faults.count
        let left = count - candidates.count
        let what =
            faults.isEmpty
            ? "\(ids.count) stalls' ids begin with \(idPrefix ?? text)"
            : "\(count) stalls and faults begin with \(text)"
        if left > 0 { candidates.append("and \(quantity(left, "other"))") }
        return CommandFailure("\(what); give more of one:", candidates)
    }
}

/// One side of a comparison: a report directory, or stalls of the given directories chosen by release, host, day and other
/// conditions.
enum StallSet: Hashable {
    case directory(String)
    case choice(StallSelection)

    /// The names before `=`, for messages.
    static let keys = "release, host, service, label, day"

    /// Parses `./stall-reports`, or conditions such as `release=1.4,host=web*,day=yesterday`.
    ///
    /// - Throws: What is wrong with the conditions.
    init(_ text: String, now: Timestamp = .now()) throws(CommandFailure) {
        guard text.contains("="), !text.contains("/") else {
            self = .directory(text)
            return
        }
        var selection = StallSelection()
        for condition in text.split(separator: ",", omittingEmptySubsequences: false) {
            let parts = condition.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
            guard parts.count == 2, !parts[1].isEmpty else {
                throw CommandFailure("'\(text)' is not a choice of stalls: give \(Self.keys) with =, as in release=1.4")
            }
            switch parts[0] {
            case "release": selection.releases.append(NamePattern(parts[1]))
            case "host": selection.hosts.append(NamePattern(parts[1]))
            case "service": selection.services.append(NamePattern(parts[1]))
            case "label": selection.labels.append(NamePattern(parts[1]))
            case "day": try selection.choose(day: parts[1], now: now)
            default: throw CommandFailure("'\(parts[0])' cannot be chosen by: give \(Self.keys)")
            }
        }
        self = .choice(selection)
    }

    /// The choice as a selection; everything for a directory.
    var selection: StallSelection { if case .choice(let selection) = self { selection } else { .everything } }

    /// The side's own directory; for a choice, the directories to search.
    func places(or sources: ReportSources) throws -> ReportSources {
        guard case .directory(let path) = self else { return sources }
        // `diff 1.4 1.5`
        if !path.contains("/"), !OutputFile.exists(path) {
            throw CommandFailure("\(path): there is no such directory or file; stalls are chosen as in release=\(path)")
        }
        return try ReportSources([path], covering: [.everything])
    }

    /// Passes the side's reports to `use`, one by one. Unreadable ones are left out: the comparison has named them.
    func forEachReport(in sources: ReportSources, _ use: (StallReport) -> Void) throws {
        let catalogs = try places(or: sources).catalogs()
        var unreadable: [ReportError] = []
        for id in try catalogs.stalls(of: selection, names: nil, &unreadable) {
            if let report = try? catalogs.report(id), selection.includes(report) { use(report) }
        }
    }

    /// The side's part of all stalls.
    ///
    /// - Parameter name: The side's name for messages.
    func baseline(of whole: ReportReader.Overview, named name: String) throws(CommandFailure) -> Baseline {
        let overview = whole.chosen(by: selection)
        if let doubt = whole.doubts(of: selection).first { Output.note("\(name): \(doubt)") }
        guard let stalls = Baseline(overview, at: .now(), outOf: whole) else {
            if let unknown = selection.unknownName(in: whole.runs) { throw CommandFailure("\(name): \(unknown)") }
            let found = overview.stalls.isEmpty ? "no stalls and " : ""
            throw CommandFailure("\(name): \(found)no run record of a monitor, so nobody knows how long it was watched")
        }
        return stalls
    }
}

extension StallSelection {
    /// Chooses the stalls of one day.
    ///
    /// - Parameter day: As a user writes it: `today`, `yesterday` or a date, but no hour.
    fileprivate mutating func choose(day: String, now: Timestamp) throws(CommandFailure) {
        let isDate = day.utf8.count == 10 && day.contains("-")
        let isDay = isDate || ["today", "yesterday"].contains(day.lowercased())
        guard isDay, let start = Moment(day, now: now)?.timestamp else {
            throw CommandFailure("'\(day)' is not a day: give today, yesterday, or a date like 2026-11-22")
        }
        let next = ShownTime.startOfDay(of: start, plus: 1)
        (since, until) = (start, next.advanced(byNanoseconds: -1))
        beginning = start
    }
}
