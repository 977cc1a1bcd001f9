import StallGate
import StallReports

/// Which stalls are wanted. Every condition that is given must hold; of several values for one condition, any.
struct StallSelection: Hashable {
    /// Stalls that ended at this moment or later, or have not ended.
    var since: Timestamp?
    /// Stalls that began at this moment or before.
    var until: Timestamp?
    var services: [NamePattern] = []
    var hosts: [NamePattern] = []
    /// The service's version.
    var releases: [NamePattern] = []
    var labels: [NamePattern] = []
    var types: [WatchedType] = []
    var kinds: [StallKind] = []
    var verdicts: [Verdict] = []
    /// This severity or a worse one.
    var severity: Severity?
    var states: [StallState] = []
    /// What the culprit's name contains.
    var functions: [NamePattern] = []
    var fingerprints: [FingerprintPrefix] = []
    var minDurationNs: Int64?

    static let everything = StallSelection()

    /// Whether nothing is left out.
    var isEverything: Bool { self == .everything }

    /// What is said where no stall is wanted of those that there are.
    var nothingFound: String { isEverything ? "no stalls" : "no stalls of those asked for" }

    /// - Parameter names: what else faults are known by; without it, what the stall itself says.
    func includes(_ stall: StallOutline, names: FaultNames? = nil) -> Bool {
        isInTime(stall) && includes(service: stall.service, release: stall.release, host: stall.host)
            && includes(label: stall.label, type: stall.type) && looks(stall) && isOfFault(stall, names)
    }

    func includes(_ report: StallReport, names: FaultNames? = nil) -> Bool {
        isEverything || includes(StallOutline(report), names: names)
    }

    /// Whether a run may hold stalls that are wanted: by its process and its time. Which of its loops stalled, and how, is not asked.
    func includes(_ run: RunRecord) -> Bool {
        since.map { run.state == .running || run.updatedAt >= $0 } ?? true && until.map { run.startedAt <= $0 } ?? true
            && includes(service: run.service?.name, release: run.service?.version, host: run.host.name)
    }

    /// Whether a process's stalls are wanted, whenever they were.
    func includes(service: String?, release: String?, host: String) -> Bool {
        services.allow(service) && releases.allow(release) && hosts.allow(host)
    }

    /// Whether stalls of a watched thing are wanted.
    func includes(label: String, type: WatchedType) -> Bool {
        labels.allow(label) && (types.isEmpty || types.contains(type))
    }

    private func isInTime(_ stall: StallOutline) -> Bool {
        if let until, stall.startedAt > until { return false }
        guard let since else { return true }
        return stall.state == .ongoing || stall.lastKnownMoment >= since
    }

    private func looks(_ stall: StallOutline) -> Bool {
        (kinds.isEmpty || kinds.contains(stall.kind)) && (states.isEmpty || states.contains(stall.state))
            && (verdicts.isEmpty || verdicts.contains(stall.verdict.canonical))
            && (severity.map { stall.severity.rank >= $0.rank } ?? true)
            && (minDurationNs.map { stall.durationNs >= $0 } ?? true)
    }

    private func isOfFault(_ stall: StallOutline, _ names: FaultNames?) -> Bool {
        functions.allow(stall.culpritName) && includes(stall.fingerprint, aliases: stall.aliases ?? [], names)
    }

    /// Whether stalls of a fault are wanted.
    func includes(_ fault: Fingerprint, aliases: [Fingerprint] = [], _ names: FaultNames?) -> Bool {
        guard !fingerprints.isEmpty else { return true }
        let known = (names?.all(of: fault) ?? [fault]).union(aliases)
        return fingerprints.contains { known.contains(where: $0.matches) }
    }
}

extension [NamePattern] {
    /// No pattern allows everything, also what has no name.
    fileprivate func allow(_ name: String?) -> Bool {
        isEmpty || name.map { name in contains { $0.matches(name) } } ?? false
    }
}

extension Severity {
    /// The greater, the worse; one that is not known counts as the worst, so that it is not missed.
    var rank: Int { [.warning, .error, .critical].firstIndex(of: self) ?? 3 }
}

extension ReportReader.Overview {
    /// What is wanted of it.
    func chosen(by selection: StallSelection) -> Self {
        guard !selection.isEverything else { return self }
        let names = selection.fingerprints.isEmpty ? nil : FaultNames(stalls)
        let traits = FaultTraits(stalls)
        var chosen = self
        chosen.stalls = stalls.filter { selection.includes($0, names: names) }
        chosen.runs = runs.compactMap { $0.chosen(by: selection, names: names, traits: traits) }
        return chosen
    }

    /// Stalls that were only counted, of which nothing tells whether they are wanted.
    func doubts(of selection: StallSelection) -> [Doubt] {
        guard !selection.isEverything else { return [] }
        let names = selection.fingerprints.isEmpty ? nil : FaultNames(stalls)
        let traits = FaultTraits(stalls)
        return runs.filter { selection.includes($0) }.compactMap { run in
            let unknown = (run.repeated ?? []).filter {
                $0.membership(in: selection, names: names, traits: traits) == .unknown
            }
            let count = unknown.map { Int64(clamping: max(0, $0.repeats.count)) }.saturatingSum()
            return count > 0 ? .unplaced(run: run.id, count: count) : nil
        }
    }
}

extension RunRecord {
    /// With those faults only that are wanted. Nil where none can be.
    func chosen(
        by selection: StallSelection,
        names: FaultNames? = nil,
        traits: FaultTraits = .unknown
    ) -> RunRecord? {
        guard selection.includes(self) else { return nil }
        var chosen = self
        chosen.repeated = repeated?.filter { $0.isIncluded(in: selection, names: names, traits: traits) }
        chosen.watched = watched(in: selection)
        // It has watched other things.
        return chosen.watched.isEmpty && !watched.isEmpty ? nil : chosen
    }

    /// The watched things that are wanted, each with its part of the time that is: as if they had been watched evenly over the run.
    func watched(in selection: StallSelection) -> [Watched] {
        let part = part(in: selection)
        return watched.filter { selection.includes(label: $0.label, type: $0.type) }.map { thing in
            guard part < 1 else { return thing }
            var thing = thing
            thing.watchedNs = Int64(saturating: Double(max(0, thing.watchedNs)) * part)
            // Which of its turns were then, nobody has noted.
            (thing.turns, thing.turnDurations) = (nil, nil)
            return thing
        }
    }

    /// How much of its time lies in that asked for, from 0 to 1.
    private func part(in selection: StallSelection) -> Double {
        let end = state == .running ? max(updatedAt, .now()) : updatedAt
        let whole = end.nanoseconds(since: startedAt)
        // A clock was set back, or the run took no time.
        guard whole > 0 else { return 1 }
        let (from, to) = (max(startedAt, selection.since ?? startedAt), min(end, selection.until ?? end))
        return Double(min(whole, max(0, to.nanoseconds(since: from)))) / Double(whole)
    }
}

/// A name, or a pattern with `*` for any characters and `?` for one. Upper and lower case are the same.
struct NamePattern: Hashable {
    private let pattern: [Character]
    /// As it was given, where it is no pattern but a name.
    let exactName: String?

    /// - Parameter isPart: whether a name only has to contain it.
    init(_ text: String, isPart: Bool = false) {
        pattern = Array((isPart ? "*\(text)*" : text).lowercased())
        exactName = isPart || text.contains(where: { "*?".contains($0) }) ? nil : text
    }

    /// In time proportional to both lengths: a star that did not fit is only ever tried again one character further on.
    func matches(_ name: String) -> Bool {
        let name = Array(name.lowercased())
        var (next, position) = (0, 0)
        var star: (next: Int, position: Int)?
        while position < name.count {
            if next < pattern.count, pattern[next] == "*" {
                star = (next, position)
                next += 1
            } else if next < pattern.count, pattern[next] == "?" || pattern[next] == name[position] {
                next += 1
                position += 1
            } else if let last = star {
                star = (last.next, last.position + 1)
                (next, position) = (last.next + 1, last.position + 1)
            } else {
                return false
            }
        }
        return pattern[next...].allSatisfy { $0 == "*" }
    }
}
