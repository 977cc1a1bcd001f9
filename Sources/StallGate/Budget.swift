public import StallReports

/// What a service may stall, before a gate closes.
public struct Budget: Hashable, Sendable {
    /// Limits for all stalls together, whatever the rules say of some of them.
    public var limits: BudgetLimits
    /// Stalls that are known and do not count, without a reason.
    public var allowed: [FingerprintPrefix]
    /// Budgets for some of the stalls. Each stall is judged by the first that fits it.
    public var rules: [BudgetRule] = []
    /// Stalls that are known and do not count until a day.
    public var allowances: [Allowance] = []
    /// What allowances end by, in UTC. Nil: none has ended.
    public var today: CalendarDay?

    /// Unless given there is no limit, and no stall is allowed for.
    public init(maxStalls: Int? = nil, maxDurationNs: Int64? = nil, allowed: [FingerprintPrefix] = []) {
        limits = BudgetLimits(maxStalls: maxStalls, maxDurationNs: maxDurationNs)
        self.allowed = allowed
    }

    /// The limit on all stalls together.
    public var maxStalls: Int? { limits.maxStalls }
    /// The limit on each stall's length, in nanoseconds.
    public var maxDurationNs: Int64? { limits.maxDurationNs }
}

extension Budget {
    /// Allowances whose last day is over.
    var expired: [Allowance] { allowances.filter { allowance in today.map { allowance.expires < $0 } ?? false } }

    /// What is allowed today.
    var allAllowed: [FingerprintPrefix] {
        let ended = Set(expired)
        return allowed + allowances.filter { !ended.contains($0) }.map(\.fault)
    }
}

/// What a budget does not count: what is allowed, and what a rule has switched off.
struct Exemptions {
    private let allowed: [FingerprintPrefix]
    private let rules: [BudgetRule]
    private let names: FaultNames

    init(_ budget: Budget, _ names: FaultNames) {
        allowed = budget.allAllowed
        rules = budget.rules.contains { $0.severity == .off } ? budget.rules : []
        self.names = names
    }

    /// A fault is allowed by any of the fingerprints that it is known by.
    func cover(_ occurrence: Occurrence) -> Bool {
        if !allowed.isEmpty {
            let all = names.all(of: occurrence.fingerprint)
            if allowed.contains(where: { all.contains(where: $0.matches) }) { return true }
        }
        return rules.first { $0.scope.fits(occurrence, names) }?.severity == .off
    }
}

/// The beginning of a fingerprint, as git takes beginnings of commits: `v1:3fa0…` or just `3fa0…`.
public struct FingerprintPrefix: Hashable, Sendable, CustomStringConvertible {
    /// Without the version.
    private let digits: String
    private let version: String?

    /// At least four hexadecimal digits, in either case; nil for anything else.
    public init?(_ text: String) {
        let parts = text.lowercased().split(separator: ":", omittingEmptySubsequences: false).map(String.init)
        guard let digits = parts.last, parts.count <= 2, (4...16).contains(digits.utf8.count),
            Fingerprint(rawValue: "v1:" + digits + String(repeating: "0", count: 16 - digits.utf8.count)) != nil
        else { return nil }
        self.digits = digits
        version = parts.count == 2 ? parts[0] : nil
        if let version, Fingerprint(rawValue: version + ":0000000000000000") == nil { return nil }
    }

    /// As it was given, with or without the version; ``init(_:)`` reads it back.
    public var description: String { (version.map { $0 + ":" } ?? "") + digits }

    /// Whether the fingerprint begins so.
    public func matches(_ fingerprint: Fingerprint) -> Bool {
        let parts = fingerprint.rawValue.split(separator: ":")
        return parts[1].hasPrefix(digits) && (version.map { $0 == parts[0] } ?? true)
    }
}
