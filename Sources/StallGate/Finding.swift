import StallReading
public import StallReports

/// One finding of a gate about a run: an exceeded limit, an expired allowance, or a change from the baseline.
public struct Finding: Hashable, Sendable {
    /// What was judged. The raw values are used in JSON and SARIF.
    public enum Rule: String, Hashable, Sendable, CaseIterable {
        case stallCount = "stall_count"
        case stallRate = "stall_rate"
        case stallLength = "stall_length"
        case blockedShare = "blocked_share"
        case turnP99 = "turn_p99"
        case turnLength = "turn_length"
        case expiredAllowance = "expired_allowance"
        case newFault = "new_fault"
        case worseRate = "worse_rate"
        case longerStalls = "longer_stalls"

        /// Whether it is a change from the baseline.
        var isOfBaseline: Bool { self == .newFault || self == .worseRate || self == .longerStalls }
    }

    /// The effect of the finding.
    public enum Severity: String, Hashable, Sendable {
        /// The gate fails.
        case error
        /// The verdict does not change.
        case warning
        /// It may be true, but the data does not decide it: the gate is inconclusive.
        case doubtful
    }

    /// What was judged.
    public var rule: Rule
    /// Its effect on the verdict.
    public var severity: Severity
    /// The budget's name. Nil for the limits of the whole, and for findings without a budget.
    public var budget: String?
    /// One line with the figures.
    public var message: String
    /// The faults concerned, worst first. May be empty.
    public var faults: [Fingerprint]

    /// Creates a finding, by default without budget and faults.
    public init(
        _ rule: Rule,
        _ severity: Severity,
        budget: String? = nil,
        message: String,
        faults: [Fingerprint] = []
    ) {
        (self.rule, self.severity, self.budget) = (rule, severity, budget)
        (self.message, self.faults) = (message, faults)
    }
}

extension Finding {
    /// The message after its budget's name.
    var text: String { (budget.map { VisibleText.of($0, limit: 80) + ": " } ?? "") + message }
}

/// Why a gate cannot judge: data is missing that it needs.
public enum Doubt: Hashable, Sendable {
    /// The directory cannot be read.
    case directory(ReportError)
    /// A file in it cannot be read.
    case file(ReportError)
    /// No monitor has left a run record.
    case noRun
    /// A monitor ran, and watched for less than a second according to its record.
    case watchedNothing(run: ULID)
    /// A monitor is still running, and has not watched for a second yet.
    case justStarted(run: ULID)
    /// A process was killed or crashed, and nothing shows what happened after its last run record: it left no live record.
    case endUnknown(run: ULID, since: Timestamp)
    /// A monitor switched itself off.
    case disarmed(run: ULID)
    /// Reports that a monitor could not write, or that no longer exist.
    case missingReports(run: ULID, count: Int64)
    /// Stalls that were only counted, and that neither a report nor the run record attributes to a fault.
    case unaccounted(run: ULID, count: Int64)
    /// Stalls that were only counted, and that may or may not belong to the selection.
    case unplaced(run: ULID, count: Int64)
    /// A stall that has not ended, and may still become longer than permitted.
    case underWay(ULID)
    /// An allowance's prefix that matches fingerprints of several faults.
    case ambiguous(FingerprintPrefix)
    /// Nothing to which a budget applies was watched.
    case unwatchedBudget(String)
    /// A budget limits turns, and no loop to which it applies records its turn durations. Nil: the limits of the whole.
    case noTurnDurations(String?)

    /// Stable, for programs.
    public var code: String {
        switch self {
        case .directory(let error), .file(let error): error.code.name
        case .noRun: "no_run"
        case .watchedNothing: "watched_nothing"
        case .justStarted: "just_started"
        case .endUnknown: "end_unknown"
        case .disarmed: "disarmed"
        case .missingReports: "missing_reports"
        case .unaccounted: "unaccounted_stalls"
        case .unplaced: "unplaced_stalls"
        case .underWay: "under_way"
        case .ambiguous: "ambiguous_prefix"
        case .unwatchedBudget: "unwatched_budget"
        case .noTurnDurations: "no_turn_durations"
        }
    }
}

extension Doubt: CustomStringConvertible {
    /// One sentence for display, with control characters made visible. Times are in UTC.
    public var description: String { text { "\($0)" } }

    /// - Parameter time: How a time is written.
    func text(time: (Timestamp) -> String) -> String {
        switch self {
        case .directory(let error), .file(let error):
            "\(VisibleText.of(error.path ?? "")): \(error)"
        case .noRun:
            "no run record: nothing says that a monitor ran; start one in the process under test"
        case .watchedNothing(let run):
            "run \(run): the monitor watched for less than a second; let the process run longer and end in order, watch its loop (from outside only event loops and task pools can be watched), or look for a full disk"
        case .justStarted(let run):
            "run \(run): it has watched for less than a second, and goes on; judge later, or let it watch its loop"
        case .endUnknown(let run, let since):
            "run \(run): its process ended without closing it, and nothing is known after \(time(since)); keep its live-*.bin file with the reports, or end the process in order"
        case .disarmed(let run):
            "run \(run): the monitor switched itself off; its run record says why"
        case .missingReports(let run, let count):
            "run \(run): \(count) of its reports \(count == 1 ? "is" : "are") missing; look for a full disk or files that cannot be read, or raise the directory's limits"
        case .unaccounted(let run, let count):
            "run \(run): \(quantity(count, "stall")) \(count == 1 ? "was" : "were") only counted, and nothing says of which faults, or how long they lasted; report more of them (repeats in the configuration), or mend the faults that are known"
        case .unplaced(let run, let count):
            "run \(run): \(quantity(count, "stall")) \(count == 1 ? "was" : "were") only counted, and nothing tells whether they are among those asked for; ask for fewer conditions or a longer time, report more of them (repeats in the configuration), or update a monitor that does not note their label, type and kind"
        case .underWay(let stall):
            "stall \(stall): still under way, and not yet as long as is permitted; judge when it is over, or end the process"
        case .ambiguous(let prefix):
            "\(prefix), which is allowed (by --allow, or as the fingerprint of an allowance in the budget's file), fits more than one fault; give more of it"
        case .unwatchedBudget(let name):
            "budget \(VisibleText.of(name, limit: 80)): nothing that it is for was watched; look for a misspelt service, label or type, or give it severity warning or off"
        case .noTurnDurations(let name):
            (name.map { "budget \(VisibleText.of($0, limit: 80)): " } ?? "")
                + "a limit on turns (\(name == nil ? "--max-turn-p99, --max-turn" : "maxTurnP99, maxTurn")), and no loop that it is for tells how long its turns take in the time asked for; leave the limit out, or judge whole runs of a run loop"
        }
    }
}

/// One line of a gate's result with its source location: the basis of annotations, SARIF and summaries.
struct GateRemark {
    enum Level: String {
        case error, warning, note
    }

    /// A line of a source file, with the path recorded by the compiler.
    struct Place {
        let file: String
        let line: Int
    }

    let level: Level
    /// A ``Finding/Rule``, or `cannot_judge`, `inconclusive`, `allowed`.
    let rule: String
    let message: String
    var fingerprint: Fingerprint?
    var place: Place?
    /// Why it does not count. Nil: it counts.
    var excuse: String?

    /// The message, with the reason why it does not count.
    var text: String { message + (excuse.map { "; \($0)" } ?? "") }
}

extension GateResult {
    /// The remarks, worst first. A finding about several faults becomes one remark for each.
    var remarks: [GateRemark] {
        let stalls = FaultTable((counted + allowed).map { ($0.fingerprint, $0) }, names) { first, second in
            first.durationNs >= second.durationNs ? first : second
        }
        let examples = FaultTable(
            examples.sorted { $0.key.rawValue < $1.key.rawValue }.map { ($0.key, $0.value) },
            names
        )
        let known = { (fault: Fingerprint) in stalls[fault] ?? examples[fault] }
        let all =
            doubts.map { GateRemark(level: .error, rule: "cannot_judge", message: $0.description) }
            + findings.flatMap { Self.remarks($0, known) }
            + inconclusive.map { GateRemark(level: .warning, rule: "inconclusive", message: $0) }
        return all.filter { $0.level == .error } + all.filter { $0.level != .error } + excused(known)
    }

    private static func remarks(_ finding: Finding, _ known: (Fingerprint) -> StallOutline?) -> [GateRemark] {
        let level: GateRemark.Level = finding.severity == .error ? .error : .warning
        guard !finding.faults.isEmpty else {
            return [GateRemark(level: level, rule: finding.rule.rawValue, message: finding.text)]
        }
        // The figures are those of all faults together.
        let others = finding.faults.count > 1 ? ", among others" : ""
        return finding.faults.map { fault in
            let stall = known(fault)
            // The message of a comparison begins with the function.
            let message =
                finding.rule.isOfBaseline
                ? finding.text : "\(GateResult.culprit(stall)) stalled\(others): \(finding.text) (\(fault))"
            return GateRemark(
                level: level,
                rule: finding.rule.rawValue,
                message: message,
                fingerprint: fault,
                place: stall?.place
            )
        }
    }

    /// Allowed faults, each once, whatever names it is known by: by a report, or by its counts if no allowed stall of it has one.
    private func excused(_ known: (Fingerprint) -> StallOutline?) -> [GateRemark] {
        let names = names
        var seen: Set<Fingerprint> = []
        let reported = allowed.filter { seen.insert(names.first(of: $0.fingerprint)).inserted }
        let reportedFaults = seen
        let silent = allowedCountedOnly.filter { !reportedFaults.contains(names.first(of: $0.fingerprint)) }
        // Each run counts on its own, and may know the fault by a former name.
        let counted = Dictionary(silent.map { (names.first(of: $0.fingerprint), $0) }) { sum, more in
            var sum = sum
            sum.repeats = sum.repeats.joined(by: more.repeats)
            return sum
        }
        return reported.map { excused($0.fingerprint, Self.line($0), $0.place) }
            + silent.map { names.first(of: $0.fingerprint) }.once.compactMap { counted[$0] }.map {
                excused($0.fingerprint, line($0), known($0.fingerprint)?.place)
            }
    }

    private func excused(_ fault: Fingerprint, _ message: String, _ place: GateRemark.Place?) -> GateRemark {
        let allowance = budget.allowances.first { names.hasName(fault, like: $0.fault) }
        let excuse = allowance.map {
            "\(VisibleText.of($0.reason, limit: 200)) (\(VisibleText.of($0.owner, limit: 80)), until \($0.expires))"
        }
        return GateRemark(
            level: .note,
            rule: "allowed",
            message: message,
            fingerprint: fault,
            place: place,
            excuse: excuse ?? "allowed by the command line, or switched off by the budget"
        )
    }
}

extension FaultNames {
    /// The faults by their sums, the greatest first, each by the first of those of its names that have one.
    ///
    /// - Parameter join: Joins the sums of a fault that has several names.
    func greatestFirst(_ sums: [Fingerprint: Int64], joining join: (Int64, Int64) -> Int64) -> [Fingerprint] {
        var faults: [Fingerprint: (name: Fingerprint, sum: Int64)] = [:]
        for (name, sum) in sums.sorted(by: { $0.key.rawValue < $1.key.rawValue }) {
            let known = faults[first(of: name)]
            faults[first(of: name)] = (known?.name ?? name, known.map { join($0.sum, sum) } ?? sum)
        }
        return faults.values.sorted { ($1.sum, $0.name.rawValue) < ($0.sum, $1.name.rawValue) }.map(\.name)
    }
}

extension StallOutline {
    var place: GateRemark.Place? {
        guard let file = culprit?.file, let line = culprit?.line, line > 0 else { return nil }
        return .init(file: VisibleText.of(file, limit: 1000), line: line)
    }
}

extension GateRemark.Place {
    /// The path relative to a folder, if the file is in it; otherwise unchanged.
    func file(in root: String) -> String {
        let folder = root.hasSuffix("/") ? root : root + "/"
        return file.hasPrefix(folder) ? String(file.dropFirst(folder.count)) : file
    }
}
