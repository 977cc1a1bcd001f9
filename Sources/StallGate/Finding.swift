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
        /// The gate closes.
        case error
        /// The gate stays open.
        case warning
        /// It may be true and cannot be decided: the gate is inconclusive.
        case doubtful
    }

    public var rule: Rule
    public var severity: Severity
    /// The budget's name. Nil for the limits of the whole, and for findings without a budget.
    public var budget: String?
    /// One line with the figures.
    public var message: String
    /// The faults concerned, the worst first. May be empty.
    public var faults: [Fingerprint]

    /// Without a budget and faults by default.
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
