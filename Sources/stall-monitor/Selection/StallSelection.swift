import StallGate
import StallReading
import StallReports

/// A choice of stalls. All given conditions must hold. A condition with several values holds if one of them matches.
struct StallSelection: Hashable {
    /// Stalls that ended at this moment or later, or that are ongoing.
    var since: Timestamp?
    /// Stalls that began at this moment or earlier.
    var until: Timestamp?
    /// Stalls that began at this moment or later: each stall belongs to one day.
    var beginning: Timestamp?
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
    /// Parts of the culprit's name.
    var functions: [NamePattern] = []
    var fingerprints: [FingerprintPrefix] = []
    var minDurationNs: Int64?

    static let everything = StallSelection()

    /// Whether it selects all stalls.
    var isEverything: Bool { self == .everything }

    /// The same without a time.
    var atAnyTime: StallSelection {
        var selection = self
        (selection.since, selection.until, selection.beginning) = (nil, nil, nil)
        return selection
    }

    /// - Parameter names: Aliases of faults. Without them only the stall's own aliases are used.
    func includes(_ stall: StallOutline, names: FaultNames? = nil) -> Bool {
        includesFigures(stall) && includes(service: stall.service, release: stall.release, host: stall.host)
            && includesTraits(stall, names)
    }

    func includes(_ report: StallReport, names: FaultNames? = nil) -> Bool {
        isEverything || includes(StallOutline(report), names: names)
    }

    /// Whether a run may contain matching stalls, as far as its process and time show.
    func includes(_ run: RunRecord) -> Bool {
        if let since, run.state != .running, run.updatedAt < since { return false }
        if let until, run.startedAt > until { return false }
        return includes(processesOf: run)
    }

    /// Whether stalls of what a run watches can match, at any time.
    func includes(processesOf run: RunRecord) -> Bool {
        guard run.targets != nil else {
            return includes(service: run.service?.name, release: run.service?.version, host: run.host.name)
        }
        // What 'watch' found has the name of its process; of what it may yet find, and in older records, that is not known.
        let isWatched = run.watched.isEmpty || run.watched.contains { includes(serviceOf: $0, in: run) }
        return isWatched && includes(release: nil, host: run.host.name)
    }

    /// Whether stalls of a process can match, at any time.
    func includes(service: String?, release: String?, host: String) -> Bool {
        services.allow(service) && includes(release: release, host: host)
    }

    private func includes(release: String?, host: String) -> Bool { releases.allow(release) && hosts.allow(host) }

    /// Whether counted stalls are of a chosen service. If that was not recorded, they may be.
    func includes(serviceOf fault: RunRecord.Repeated, in run: RunRecord) -> Bool {
        run.service(of: fault).map { services.allow($0) } ?? true
    }

    fileprivate func includes(serviceOf loop: RunRecord.Watched, in run: RunRecord) -> Bool {
        guard run.targets != nil else { return true }
        if let service = loop.service { return services.allow(service) }
        // In an older record no loop has a service. In others, such an entry is for loops of too many services.
        return services.isEmpty || run.watched.allSatisfy { $0.service == nil }
    }

    /// Whether stalls of a watched loop match.
    func includes(label: String, type: WatchedType) -> Bool {
        labels.allow(label) && (types.isEmpty || types.contains(type))
    }

    /// The part of ``includes(_:names:)`` that is the same for all stalls with the same traits.
    fileprivate func includesTraits(_ stall: StallOutline, _ names: FaultNames?) -> Bool {
        includes(label: stall.label, type: stall.type) && matchesCause(stall) && isOfFault(stall, names)
    }

    fileprivate func includesFigures(_ stall: StallOutline) -> Bool {
        isInTime(stall) && (minDurationNs.map { stall.durationNs >= $0 } ?? true)
    }

    private func isInTime(_ stall: StallOutline) -> Bool {
        if let until, stall.startedAt > until { return false }
        if let beginning, stall.startedAt < beginning { return false }
        guard let since else { return true }
        return stall.state == .ongoing || stall.lastKnownMoment >= since
    }

    private func matchesCause(_ stall: StallOutline) -> Bool {
        (kinds.isEmpty || kinds.contains(stall.kind)) && (states.isEmpty || states.contains(stall.state))
            && (verdicts.isEmpty || verdicts.contains(stall.verdict.canonical))
            && (severity.map { stall.severity.rank >= $0.rank } ?? true)
    }

    private func isOfFault(_ stall: StallOutline, _ names: FaultNames?) -> Bool {
        functions.allow(stall.culpritName) && includes(stall.fingerprint, aliases: stall.aliases ?? [], names)
    }

    /// Whether stalls of a fault match.
    func includes(_ fault: Fingerprint, aliases: [Fingerprint] = [], _ names: FaultNames? = nil) -> Bool {
        guard !fingerprints.isEmpty else { return true }
        return fingerprints.contains { prefix in
            prefix.matches(fault) || aliases.contains(where: prefix.matches)
                || names?.hasName(fault, like: prefix) == true
        }
    }
}

/// A selection that is applied to many stalls: properties that they share are compared once.
struct StallFilter {
    private let selection: StallSelection
    private let names: FaultNames?
    private let isOpen: Bool
    /// Whether the origin of a stall matters.
    private let choosesOrigins: Bool
    private var traits: [Shared<OutlineTraits>.Identity: Bool] = [:]
    private var origins: [Shared<OutlineOrigin>.Identity: Bool] = [:]

    /// - Parameter names: Other names of the faults.
    init(_ selection: StallSelection, names: FaultNames? = nil) {
        (self.selection, self.names, isOpen) = (selection, names, selection.isEverything)
        choosesOrigins = !(selection.services + selection.hosts + selection.releases).isEmpty
    }

    mutating func includes(_ stall: StallOutline) -> Bool {
        if isOpen { return true }
        return selection.includesFigures(stall) && includesOrigin(of: stall) && includesTraits(of: stall)
    }

    private mutating func includesOrigin(of stall: StallOutline) -> Bool {
        guard choosesOrigins else { return true }
        let key = Shared.Identity(stall.origin)
        if let known = origins[key] { return known }
        let answer = selection.includes(service: stall.service, release: stall.release, host: stall.host)
        origins[key] = answer
        return answer
    }

    private mutating func includesTraits(of stall: StallOutline) -> Bool {
        let key = Shared.Identity(stall.traits)
        if let known = traits[key] { return known }
        let answer = selection.includesTraits(stall, names)
        traits[key] = answer
        return answer
    }
}

extension [NamePattern] {
    /// An empty list matches everything, including a missing name.
    fileprivate func allow(_ name: String?) -> Bool {
        isEmpty || name.map { name in contains { $0.matches(name) } } ?? false
    }
}

extension ReportReader.Overview {
    /// The matching part.
    ///
    /// - Parameter counted: How many of the stalls that were only counted, some of them in the chosen time.
    func chosen(by selection: StallSelection, counting counted: CountedPart = .even) -> Self {
        guard !selection.isEverything else { return self }
        let names = selection.fingerprints.isEmpty ? nil : FaultNames(stalls)
        let traits = FaultTraits(stalls, for: selection)
        var chosen = self
        var filter = StallFilter(selection, names: names)
        chosen.stalls = stalls.filter { filter.includes($0) }
        if counted == .even, selection.since != nil {
            for index in chosen.stalls.indices { chosen.stalls[index] = selection.part(of: chosen.stalls[index]) }
        }
        chosen.runs = runsWithCounted(by: selection).compactMap {
            $0.chosen(by: selection, names: names, traits: traits, counting: counted)
        }
        return chosen
    }

    /// Doubts about counted stalls that may or may not match.
    func doubts(of selection: StallSelection) -> [Doubt] {
        guard !selection.isEverything else { return [] }
        let names = selection.fingerprints.isEmpty ? nil : FaultNames(stalls)
        let traits = FaultTraits(stalls, for: selection)
        return runsWithCounted(by: selection).filter { selection.includes($0) }.compactMap { run in
            let unknown = (run.repeated ?? []).filter {
                selection.includes(serviceOf: $0, in: run)
                    && $0.membership(in: selection, names: names, traits: traits) == .unknown
            }
            let count = unknown.map { Int64(clamping: max(0, $0.repeats.count)) }.saturatingSum()
            return count > 0 ? .unplaced(run: run.id, count: count) : nil
        }
    }
}

extension RunRecord {
    /// The run with its matching faults only. Nil if nothing in it can match.
    func chosen(
        by selection: StallSelection,
        names: FaultNames? = nil,
        traits: FaultTraits = .unknown,
        counting counted: CountedPart = .even
    ) -> RunRecord? {
        guard selection.includes(self) else { return nil }
        var chosen = self
        let matching = repeated?.filter {
            selection.includes(serviceOf: $0, in: self)
                && $0.isIncluded(in: selection, names: names, traits: traits)
        }
        chosen.repeated = counted == .even ? matching?.map(selection.part) : matching
        chosen.watched = watched(in: selection)
        // The run watched other loops only.
        return chosen.watched.isEmpty && !watched.isEmpty ? nil : chosen
    }

    /// The matching watched loops, each with its share of the chosen time. Assumes that they were watched evenly over the run.
    func watched(in selection: StallSelection) -> [Watched] {
        let part = part(in: selection)
        let matching = watched.filter {
            selection.includes(label: $0.label, type: $0.type) && selection.includes(serviceOf: $0, in: self)
        }
        return matching.map { thing in
            guard part < 1 else { return thing }
            var thing = thing
            thing.watchedNs = Int64(saturating: Double(max(0, thing.watchedNs)) * part)
            // The run record does not say which turns fell into the chosen time.
            (thing.turns, thing.turnDurations) = (nil, nil)
            return thing
        }
    }

    /// The fraction of the run inside the chosen time, from 0 to 1. A run that is known to go on was updated just now, by its live record. Of
    /// another that says so (its process is on another host, say), nothing is known since its update.
    private func part(in selection: StallSelection) -> Double {
        let whole = updatedAt.nanoseconds(since: startedAt)
        // A clock was set back, or the run took no time.
        guard whole > 0 else { return 1 }
        let from = max(startedAt, selection.since ?? startedAt)
        let to = min(updatedAt, selection.until ?? updatedAt)
        return Double(min(whole, max(0, to.nanoseconds(since: from)))) / Double(whole)
    }
}

/// A name, or a pattern with `*` for any characters and `?` for one. Ignores case.
struct NamePattern: Hashable {
    private let pattern: [Character]
    /// The name as given, if it is not a pattern.
    let exactName: String?

    /// - Parameter isPart: Whether it matches every name that contains it.
    init(_ text: String, isPart: Bool = false) {
        pattern = Array((isPart ? "*\(text)*" : text).lowercased())
        exactName = isPart || text.contains(where: { "*?".contains($0) }) ? nil : text
    }

    func matches(_ name: String) -> Bool { matchesPattern(Array(name.lowercased()), pattern, star: "*", any: "?") }
}
