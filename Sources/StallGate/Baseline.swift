public import StallReading
public import StallReports

/// The stalls of a service in a good state: recorded once, and compared with later runs.
public struct Baseline: Codable, Hashable, Sendable {
    /// The schema that this version writes.
    public static let currentSchema = "stall-baseline/1"

    /// The conditions under which runs can be compared: other machines and builds have other stalls.
    public struct Environment: Codable, Hashable, Sendable, CustomStringConvertible {
        /// The number of the machine's processors.
        public var cpus: Int?
        /// The kernel's first two numbers: `6.1`.
        public var kernel: String?
        /// `debug` or `release`, if the executable's path contains it as SwiftPM's paths do.
        public var build: String?

        /// The environment of a run record.
        public init(_ run: RunRecord) {
            cpus = run.host.cpus
            kernel = run.host.kernel?.split(separator: ".").prefix(2).joined(separator: ".")
            let target = run.targets?.last ?? run.process
            let path = (target.executable ?? "").split(separator: "/")
            build = path.contains("debug") ? "debug" : path.contains("release") ? "release" : nil
        }

        /// The environment of the latest run, with what is only known of others: a script's path does not show how a server beside it
        /// was built.
        package init?(of runs: [RunRecord]) {
            let all = Self.each(of: runs)
            guard let latest = all.last else { return nil }
            self = latest
            build = all.last { $0.build != nil }?.build
        }

        /// The environments of runs that differ in what is known of them. Empty if all can be compared with each other.
        package static func different(in runs: [RunRecord]) -> [Self] {
            let all = each(of: runs)
            let isMixed = [
                Set(all.compactMap(\.cpus)).count, Set(all.compactMap(\.kernel)).count,
                Set(all.compactMap(\.build)).count,
            ].contains { $0 > 1 }
            return isMixed ? all.once.sorted { $0.description < $1.description } : []
        }

        /// Of the runs that watched anything: the record of a watcher that found nothing is of the watcher itself, and says nothing of the
        /// code.
        private static func each(of runs: [RunRecord]) -> [Self] {
            let watching = runs.filter { $0.watchedTotalNs > 0 }
            return (watching.isEmpty ? runs.suffix(1) : watching).map { Self($0) }
        }

        /// For display.
        public var description: String {
            let processors = cpus.map { quantity($0, "processor") } ?? "unknown processors"
            return
                "\(processors), kernel \(VisibleText.of(kernel ?? "unknown", limit: 40)), \(VisibleText.of(build ?? "unknown", limit: 40)) build"
        }
    }

    /// A fault that occurred, if only before the baseline was tightened.
    public struct Fault: Codable, Hashable, Sendable {
        /// The fault.
        public var fingerprint: Fingerprint
        /// Other fingerprints of the same fault.
        public var aliases: [Fingerprint]
        /// The culprit, for display.
        public var function: String?
        /// The number of stalls that were not caused by the machine.
        public var count: Int
        /// The number of stalls that waited for a processor: verdict `starved`.
        public var starved: Int
        /// The watched time in which it could have been seen, in nanoseconds.
        public var watchedNs: Int64
        /// The known durations of the stalls in `count`, without the time in which they waited for a processor; 1000 at most.
        public var lengthsNs: [Int64]
        /// How much the number varies between runs. Nil if it was recorded from one, or by an earlier version.
        package var dispersion: Dispersion?
        /// Where it occurred. Nil in files of earlier versions.
        package var loops: [WatchedPlace]?

        private enum CodingKeys: String, CodingKey {
            case fingerprint, aliases, function, count, starved
            case watchedNs = "watched_ns"
            case lengthsNs = "lengths_ns"
            case dispersion, loops
        }
    }

    /// A file with another schema is rejected.
    public var schema: String
    /// The time of recording, or of the last tightening.
    public var recordedAt: Timestamp
    /// The machine and the build on which it was recorded.
    public var environment: Environment
    /// The number of monitor runs from which it was made.
    public var runs: Int
    /// The total time that they watched, in nanoseconds.
    public var watchedNs: Int64
    /// Sorted by fingerprint.
    public var faults: [Fault]
    /// Whether the user chose both sides, possibly of many machines, so that their environments are not compared. Not in the file.
    package var isOfAnyEnvironment = false
    /// The loops that were watched. Nil in files of earlier versions, and if there were too many.
    package var loops: [WatchedPlace.Time]?

    private enum CodingKeys: String, CodingKey {
        case schema
        case recordedAt = "recorded_at"
        case environment, runs
        case watchedNs = "watched_ns"
        case faults, loops
    }
}

/// What stalls of one fault in one loop have in common.
private struct Alike: Hashable {
    let traits: Shared<OutlineTraits>.Identity
    let origin: Shared<OutlineOrigin>.Identity

    init(_ stall: StallOutline) { (traits, origin) = (.init(stall.traits), .init(stall.origin)) }
}

extension Baseline {
    /// The number of durations kept per fault.
    static let mostLengths = 1000

    /// From the contents of a directory. Nil without a run record: then nothing was watched.
    public init?(_ overview: ReportReader.Overview, at moment: Timestamp) {
        self.init(overview, at: moment, outOf: nil)
    }

    /// - Parameter whole: What the overview was selected from.
    package init?(_ overview: ReportReader.Overview, at moment: Timestamp, outOf whole: ReportReader.Overview?) {
        let names = FaultNames((whole ?? overview).stalls)
        self.init(overview, at: moment, Occurrence.All(in: overview, outOf: whole), names)
    }

    init?(
        _ overview: ReportReader.Overview,
        at moment: Timestamp,
        _ occurrences: some Sequence<Occurrence>,
        _ names: FaultNames
    ) {
        guard let environment = Environment(of: overview.runs) else { return nil }
        let watched = overview.runs.map(\.watchedTotalNs).saturatingSum()
        var faults: [Fingerprint: Fault] = [:]
        // There may be a million stalls; those of one loop share these.
        var seen: Set<Alike> = []
        for occurrence in occurrences {
            let name = names.first(of: occurrence.fingerprint)
            var fault =
                faults[name]
                ?? Fault(
                    fingerprint: name,
                    aliases: names.all(of: name).subtracting([name]).sorted { $0.rawValue < $1.rawValue },
                    count: 0,
                    starved: 0,
                    watchedNs: watched,
                    lengthsNs: []
                )
            fault.add(occurrence)
            if occurrence.stall.map({ seen.insert(Alike($0)).inserted }) ?? true {
                fault.note(WatchedPlace(occurrence))
            }
            faults[name] = fault
        }
        (schema, recordedAt, self.environment) = (Self.currentSchema, moment, environment)
        (runs, watchedNs) = (overview.runs.count, watched)
        loops = WatchedPlace.times(in: overview.runs)
        self.faults = faults.values.sorted { $0.fingerprint.rawValue < $1.fingerprint.rawValue }
    }

    /// Decodes what ``json()`` wrote.
    ///
    /// - Throws: `malformed` for anything else, `unsupportedSchema` for a later version's.
    public init(json: [UInt8]) throws(ReportError) {
        self = try ReportJSON.decode(Self.self, schema: Self.currentSchema, from: json)
        guard runs >= 0, watchedNs >= 0, faults.allSatisfy(\.isPossible),
            loops?.allSatisfy({ $0.watchedNs >= 0 }) ?? true
        else {
            throw ReportError(.malformed, detail: "a count or a length is negative")
        }
    }

    /// One line of JSON.
    public func json() throws(ReportError) -> [UInt8] { try ReportJSON.encode(self) }

    /// The part of some loops, which is not compared with the time and the stalls of all. Of a fault that occurred in others, too, it has as many
    /// stalls as if they had come evenly. Faults of other loops keep theirs.
    func part(ofLoops chosen: Set<WatchedPlace>) -> Baseline {
        let all = loops ?? []
        let some = all.filter { loop in chosen.contains { $0.fits(loop.place) } }
        let share = Self.share(of: some, among: all)
        guard share > 0, share < 1 else { return self }
        var part = self
        part.watchedNs = Int64(saturating: Double(watchedNs) * share)
        for (index, fault) in faults.enumerated() {
            let isPlace = { (loop: WatchedPlace.Time) in fault.loops?.contains { $0.fits(loop.place) } ?? true }
            let stalls = Self.share(of: some.filter(isPlace), among: all.filter(isPlace))
            part.faults[index].shrink(time: share, stalls: stalls)
        }
        return part
    }

    private static func share(of some: [WatchedPlace.Time], among all: [WatchedPlace.Time]) -> Double {
        let (part, whole) = (some.map(\.watchedNs).saturatingSum(), all.map(\.watchedNs).saturatingSum())
        return whole > 0 ? Double(part) / Double(whole) : 0
    }
}

extension Baseline {
    /// The ratchet: proven improvements become the new reference. Nil if there are none.
    ///
    /// Improvements are proven with a hundred times the certainty that the rule requires: one by chance would be the reference of all
    /// later runs, which would then seem worse.
    public func tightened(
        by overview: ReportReader.Overview,
        at moment: Timestamp,
        _ rule: Comparison.Rule = .init()
    ) -> Baseline? {
        tightened(by: [overview], at: moment, rule)
    }

    /// The same by several runs of one command, which show whether stalls come in bursts.
    package func tightened(
        by repeats: [ReportReader.Overview],
        at moment: Timestamp,
        _ rule: Comparison.Rule = .init()
    ) -> Baseline? {
        guard let current = Baseline(repeats: repeats, at: moment), current.environment == environment else {
            return nil
        }
        let pairs = pairs(with: current).filter { $0.before != nil }
        var tightened = self
        tightened.faults = pairs.compactMap(\.before)
        // In the opposite direction: what was worse before.
        let figures = pairs.figures(self, current, countingStarved: true)
        var strict = rule
        strict.alarm /= 100
        let better = Comparison(figures.map { ($0.fault, before: $0.after, after: $0.before) }, by: strict).proven
        guard !better.isEmpty else { return nil }
        let indices = Dictionary(zip(pairs.map(\.fingerprint), pairs.indices)) { first, _ in first }
        for item in better {
            guard let index = indices[item.fault] else { continue }
            tightened.faults[index].improve(item.change, to: pairs[index].now, watchedNs: current.watchedNs)
        }
        tightened.faults.sort { $0.fingerprint.rawValue < $1.fingerprint.rawValue }
        tightened.recordedAt = moment
        return tightened
    }
}
