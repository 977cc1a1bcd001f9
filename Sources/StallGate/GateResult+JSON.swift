import StallReading
public import StallReports

extension GateResult {
    /// One line of JSON for programs: verdict, budget, counts, and every stall and doubt.
    public func json() throws(ReportError) -> [UInt8] {
        try ReportJSON.encode(Document(self))
    }

    private struct Document: Encodable {
        let schema = "stall-gate/1"
        let verdict: Verdict
        let budget: BudgetPart
        let stallCount: Int
        let allowedCount: Int
        let watchedNs: Int64
        let runs: [ULID]
        let running: [ULID]
        let cutShort: [ULID]
        let stalls: [Stall]
        let countedOnly: [Fault]
        let findings: [FindingPart]
        let inconclusive: [String]
        let notes: [String]
        let repeats: Int
        let unjudged: Unjudged?
        let unusedAllowances: [String]
        let doubts: [DoubtPart]

        init(_ result: GateResult) {
            verdict = result.verdict
            budget = BudgetPart(result.budget)
            (stallCount, allowedCount) = (result.stallCount, result.allowedCount)
            watchedNs = result.watchedNs
            runs = result.runs.map(\.id)
            running = result.runs.filter { $0.state == .running }.map(\.id)
            cutShort = result.cutShort.map(\.id)
            let tooLong = Set(result.tooLong.map(\.id))
            stalls =
                result.counted.map { Stall($0, tooLong.contains($0.id) ? "too_long" : "counted") }
                + result.allowed.map { Stall($0, "allowed") }
            let tooLongFaults = Set(result.tooLongCountedOnly)
            countedOnly =
                result.countedOnly.map { Fault($0, tooLongFaults.contains($0) ? "too_long" : "counted") }
                + result.allowedCountedOnly.map { Fault($0, "allowed") }
            findings = result.findings.map { FindingPart($0) }
            (inconclusive, notes, repeats) = (result.inconclusive, result.notes, result.repeats)
            unjudged = result.unlimited.map { Unjudged(stallCount: $0.count, fingerprints: $0.faults) }
            unusedAllowances = result.unusedAllowances.map(\.description)
            doubts = result.doubts.map { DoubtPart(code: $0.code, message: $0.description) }
        }

        private enum CodingKeys: String, CodingKey {
            case schema, verdict, budget
            case stallCount = "stall_count"
            case allowedCount = "allowed_count"
            case watchedNs = "watched_ns"
            case runs, running
            case cutShort = "cut_short"
            case stalls
            case countedOnly = "counted_only"
            case findings, inconclusive, notes, repeats, unjudged
            case unusedAllowances = "unused_allowances"
            case doubts
        }
    }

    private struct BudgetPart: Encodable {
        let limits: BudgetLimits
        let allowed: [String]

        init(_ budget: Budget) { (limits, allowed) = (budget.limits, budget.allowed.map(\.description)) }

        func encode(to encoder: any Encoder) throws {
            var keys = encoder.container(keyedBy: CodingKeys.self)
            try keys.encodeIfPresent(limits.maxStalls, forKey: .maxStalls)
            try keys.encodeIfPresent(limits.maxPerHour, forKey: .maxPerHour)
            try keys.encodeIfPresent(limits.maxDurationNs, forKey: .maxDurationNs)
            try keys.encodeIfPresent(limits.maxBlockedPercent, forKey: .maxBlockedPercent)
            try keys.encodeIfPresent(limits.maxTurnP99Ns, forKey: .maxTurnP99Ns)
            try keys.encodeIfPresent(limits.maxTurnNs, forKey: .maxTurnNs)
            try keys.encode(allowed, forKey: .allowed)
        }

        private enum CodingKeys: String, CodingKey {
            case maxStalls = "max_stalls"
            case maxPerHour = "max_per_hour"
            case maxDurationNs = "max_duration_ns"
            case maxBlockedPercent = "max_blocked_percent"
            case maxTurnP99Ns = "max_turn_p99_ns"
            case maxTurnNs = "max_turn_ns"
            case allowed
        }
    }

    private struct Stall: Encodable {
        let id: ULID
        let result: String
        let durationNs: Int64
        let suppressed: Int
        let fingerprint: Fingerprint
        let verdict: StallReports.Verdict
        let function: String?
        let label: String

        init(_ report: StallOutline, _ result: String) {
            (id, self.result) = (report.id, result)
            (durationNs, suppressed) = (report.durationNs, report.suppressed)
            (fingerprint, verdict) = (report.fingerprint, report.verdict.canonical)
            (function, label) = (report.culpritName, report.label)
        }

        private enum CodingKeys: String, CodingKey {
            case id, result
            case durationNs = "duration_ns"
            case suppressed, fingerprint, verdict, function, label
        }
    }

    /// Stalls without a report.
    private struct Fault: Encodable {
        let fingerprint: Fingerprint
        let result: String
        let count: Int
        let longestNs: Int64
        let report: ULID?
        let label: String?
        let type: WatchedType?
        let kind: StallKind?

        init(_ fault: RunRecord.Repeated, _ result: String) {
            (fingerprint, self.result) = (fault.fingerprint, result)
            (count, longestNs, report) = (fault.repeats.count, fault.repeats.longestNs, fault.repeats.report)
            (label, type, kind) = (fault.label, fault.type, fault.kind)
        }

        private enum CodingKeys: String, CodingKey {
            case fingerprint, result, count
            case longestNs = "longest_ns"
            case report, label, type, kind
        }
    }

    private struct FindingPart: Encodable {
        let rule: String
        let severity: String
        let budget: String?
        let message: String
        let fingerprints: [Fingerprint]

        init(_ finding: Finding) {
            (rule, severity) = (finding.rule.rawValue, finding.severity.rawValue)
            (budget, message, fingerprints) = (finding.budget, finding.message, finding.faults)
        }
    }

    private struct Unjudged: Encodable {
        let stallCount: Int
        let fingerprints: [Fingerprint]

        private enum CodingKeys: String, CodingKey {
            case stallCount = "stall_count"
            case fingerprints
        }
    }

    private struct DoubtPart: Encodable {
        let code: String
        let message: String
    }
}
