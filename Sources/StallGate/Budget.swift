import StallReading
public import StallReports

/// The stalls that a service may have before the gate fails.
public struct Budget: Hashable, Sendable {
    /// Limits for all stalls together, independent of the rules.
    public var limits: BudgetLimits
    /// Known faults that do not count, given without a reason.
    public var allowed: [FingerprintPrefix]
    /// Budgets for some of the stalls. Each stall is judged by the first rule that matches it.
    public var rules: [BudgetRule] = []
    /// Known faults that do not count until a given day.
    public var allowances: [Allowance] = []
    /// The date, in UTC, by which allowances expire. Nil: none has expired.
    public var today: CalendarDay?

    /// Creates a budget. By default there is no limit, and no fault is allowed.
    public init(maxStalls: Int? = nil, maxDurationNs: Int64? = nil, allowed: [FingerprintPrefix] = []) {
        limits = BudgetLimits(maxStalls: maxStalls, maxDurationNs: maxDurationNs)
        self.allowed = allowed
    }

    /// The limit on the number of all stalls.
    public var maxStalls: Int? { limits.maxStalls }
    /// The limit on each stall's duration, in nanoseconds.
    public var maxDurationNs: Int64? { limits.maxDurationNs }
}

extension Budget {
    /// Allowances whose last day has passed.
    var expired: [Allowance] { allowances.filter { allowance in today.map { allowance.expires < $0 } ?? false } }

    /// The faults allowed today.
    var allAllowed: [FingerprintPrefix] {
        let ended = Set(expired)
        return allowed + allowances.filter { !ended.contains($0) }.map(\.fault)
    }
}

/// The stalls that a budget does not count: allowed faults, and stalls of rules that are switched off.
struct Exemptions {
    private let allowed: [FingerprintPrefix]
    private let rules: [BudgetRule]
    private let names: FaultNames

    init(_ budget: Budget, _ names: FaultNames) {
        allowed = budget.allAllowed
        rules = budget.rules.contains { $0.severity == .off } ? budget.rules : []
        self.names = names
    }

    /// Whether everything counts.
    var areNone: Bool { allowed.isEmpty && rules.isEmpty }

    /// A fault is allowed by any of its fingerprints.
    func cover(_ occurrence: Occurrence) -> Bool {
        if !allowed.isEmpty {
            let all = names.all(of: occurrence.fingerprint)
            if allowed.contains(where: { all.contains(where: $0.matches) }) { return true }
        }
        return rules.first { $0.scope.fits(occurrence, names) }?.severity == .off
    }
}

/// The prefix of a fingerprint, like a commit's in git: `v1:3fa0…` or just `3fa0…`.
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

    /// The text as passed in, with or without the version; ``init(_:)`` parses it.
    public var description: String { (version.map { $0 + ":" } ?? "") + digits }

    /// Whether the fingerprint has this prefix.
    public func matches(_ fingerprint: Fingerprint) -> Bool {
        let parts = fingerprint.rawValue.split(separator: ":")
        return parts[1].hasPrefix(digits) && (version.map { $0 == parts[0] } ?? true)
    }
}

/// A known fault that does not count until a given day.
public struct Allowance: Hashable, Sendable {
    /// The fault.
    public var fault: FingerprintPrefix
    /// Why it is tolerated.
    public var reason: String
    /// Who will fix it.
    public var owner: String
    /// The last day on which it is allowed.
    public var expires: CalendarDay

    /// Creates an allowance. It needs a last day: an allowance without an end would be forgotten.
    public init(fault: FingerprintPrefix, reason: String, owner: String, expires: CalendarDay) {
        (self.fault, self.reason, self.owner, self.expires) = (fault, reason, owner, expires)
    }
}

/// A day of the Gregorian calendar, in UTC: `2027-01-31`.
public struct CalendarDay: Hashable, Sendable, Comparable, CustomStringConvertible {
    /// Days sort like their texts.
    private let text: String

    /// Nil unless it is four, two and two digits that form a valid day.
    public init?(_ text: String) {
        guard text.utf8.count == 10, Timestamp(rfc3339: "\(text)T00:00:00Z") != nil else { return nil }
        self.text = text
    }

    /// The text as passed in; ``init(_:)`` parses it.
    public var description: String { text }

    /// Orders by time.
    public static func < (left: Self, right: Self) -> Bool { left.text < right.text }
}
