public import StallReports

/// What a service stalled when it was well: recorded once, and compared with later.
public struct Baseline: Codable, Hashable, Sendable {
    /// The schema this version writes.
    public static let currentSchema = "stall-baseline/1"

    /// Where runs can be compared: stalls of other machines and builds are others.
    public struct Environment: Codable, Hashable, Sendable, CustomStringConvertible {
        /// Processors of the machine.
        public var cpus: Int?
        /// The kernel's first two numbers: `6.1`.
        public var kernel: String?
        /// `debug` or `release`, where the executable's path tells it as SwiftPM's do.
        public var build: String?

        /// Of a run record.
        public init(_ run: RunRecord) {
            cpus = run.host.cpus
            kernel = run.host.kernel?.split(separator: ".").prefix(2).joined(separator: ".")
            let target = run.targets?.last ?? run.process
            let path = (target.executable ?? "").split(separator: "/")
            build = path.contains("debug") ? "debug" : path.contains("release") ? "release" : nil
        }

        /// For people.
        public var description: String {
            let processors = cpus.map { GateResult.number($0, "processor") } ?? "unknown processors"
            return
                "\(processors), kernel \(VisibleText.of(kernel ?? "unknown", limit: 40)), \(VisibleText.of(build ?? "unknown", limit: 40)) build"
        }
    }

    /// A fault that there was.
    public struct Fault: Codable, Hashable, Sendable {
        public var fingerprint: Fingerprint
        /// Others that mean the same fault.
        public var aliases: [Fingerprint]
        /// For people: the culprit.
        public var function: String?
        /// Stalls that the machine is not to blame for.
        public var count: Int
        /// Stalls that waited for a processor: verdict `starved`.
        public var starved: Int
        /// For how long it could have been seen, in nanoseconds.
        public var watchedNs: Int64
        /// Of those in `count`, as far as known, without the time they waited for a processor; 1000 at most.
        public var lengthsNs: [Int64]

        private enum CodingKeys: String, CodingKey {
            case fingerprint, aliases, function, count, starved
            case watchedNs = "watched_ns"
            case lengthsNs = "lengths_ns"
        }
    }

    public var schema: String
    /// The moment of recording, or of the last tightening.
    public var recordedAt: Timestamp
    public var environment: Environment
    /// Runs of a monitor that it is made of.
    public var runs: Int
    /// What they watched together, in nanoseconds.
    public var watchedNs: Int64
    /// By their fingerprints.
    public var faults: [Fault]

    private enum CodingKeys: String, CodingKey {
        case schema
        case recordedAt = "recorded_at"
        case environment, runs
        case watchedNs = "watched_ns"
        case faults
    }
}

extension Baseline {
    /// Lengths that are kept of a fault.
    static let mostLengths = 1000

    /// Of what a directory holds. Nil without a run record: then nobody watched.
    public init?(_ overview: ReportReader.Overview, at moment: Timestamp) {
        self.init(overview, at: moment, Occurrence.all(in: overview))
    }

    init?(_ overview: ReportReader.Overview, at moment: Timestamp, _ occurrences: [Occurrence]) {
        guard let last = overview.runs.last else { return nil }
        let watched = overview.runs.map(\.watchedTotalNs).saturatingSum()
        let names = FaultNames(overview.stalls)
        var faults: [Fingerprint: Fault] = [:]
        for occurrence in occurrences {
            let all = names.all(of: occurrence.fingerprint)
            let name = all.min { $0.rawValue < $1.rawValue } ?? occurrence.fingerprint
            var fault =
                faults[name]
                ?? Fault(
                    fingerprint: name,
                    aliases: all.subtracting([name]).sorted { $0.rawValue < $1.rawValue },
                    count: 0,
                    starved: 0,
                    watchedNs: watched,
                    lengthsNs: []
                )
            fault.add(occurrence)
            faults[name] = fault
        }
        (schema, recordedAt, environment) = (Self.currentSchema, moment, Environment(last))
        (runs, watchedNs) = (overview.runs.count, watched)
        self.faults = faults.values.sorted { $0.fingerprint.rawValue < $1.fingerprint.rawValue }
    }

    /// Reads what ``json()`` wrote.
    ///
    /// - Throws: `malformed` for anything else, `unsupportedSchema` for one of a later version.
    public init(json: [UInt8]) throws(ReportError) {
        self = try ReportJSON.decode(Self.self, schema: Self.currentSchema, from: json)
        guard runs >= 0, watchedNs >= 0, faults.allSatisfy(\.isPossible) else {
            throw ReportError(.malformed, detail: "a count or a length is negative")
        }
    }

    /// One line of JSON.
    public func json() throws(ReportError) -> [UInt8] { try ReportJSON.encode(self) }
}

extension Baseline.Fault {
    mutating func add(_ occurrence: Occurrence) {
        function = function ?? occurrence.stall?.culpritName
        if occurrence.verdict == .starved {
            starved = starved.addingSaturated(occurrence.count)
            return
        }
        count = count.addingSaturated(occurrence.count)
        if let stall = occurrence.stall, stall.state == .recovered, lengthsNs.count < Baseline.mostLengths {
            lengthsNs.append(stall.runningNs)
        }
    }

    var isPossible: Bool { count >= 0 && starved >= 0 && watchedNs >= 0 && lengthsNs.allSatisfy { $0 >= 0 } }

    /// - Parameter starved: whether what the machine is to blame for counts.
    func figures(countingStarved: Bool) -> Comparison.Figures {
        let all = countingStarved ? count.addingSaturated(starved) : count
        return .init(count: all, watchedNs: watchedNs, lengthsNs: lengthsNs)
    }
}

extension StallOutline {
    /// Its length without the part that it waited for a processor, as far as that was measured.
    var runningNs: Int64 {
        let share = min(max(runDelayShare ?? 0, 0), 1)
        return Int64(saturating: Double(durationNs) * (1 - share))
    }
}
