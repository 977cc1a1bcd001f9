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

/// Limits on the stalls of a loop. Nil: no limit.
public struct BudgetLimits: Hashable, Sendable {
    /// The greatest number of stalls, including those that were only counted (`suppressed`).
    public var maxStalls: Int?
    /// The greatest number of stalls per watched hour; two loops watched for an hour are two hours.
    public var maxPerHour: Double?
    /// The longest permitted stall, in nanoseconds.
    public var maxDurationNs: Int64?
    /// The largest permitted share of stalls in the watched time, in percent.
    public var maxBlockedPercent: Double?
    /// The greatest permitted 99th percentile of a loop's turns, in nanoseconds. Judged from the run record.
    public var maxTurnP99Ns: Int64?
    /// The longest permitted turn, in nanoseconds. Judged from the run record.
    public var maxTurnNs: Int64?

    /// Creates limits. By default nothing is limited.
    public init(maxStalls: Int? = nil, maxDurationNs: Int64? = nil) {
        (self.maxStalls, self.maxDurationNs) = (maxStalls, maxDurationNs)
    }

    /// Whether there is no limit at all.
    public var isEmpty: Bool { self == BudgetLimits() }

    var limitsTurns: Bool { maxTurnP99Ns != nil || maxTurnNs != nil }

    var limitsStalls: Bool {
        maxStalls != nil || maxPerHour != nil || maxDurationNs != nil || maxBlockedPercent != nil
    }
}

/// A budget for some of the stalls: of a service, a loop, a verdict or a fault. A stall is judged by the first rule that
/// matches it.
public struct BudgetRule: Hashable, Sendable {
    /// The effect of exceeding a limit.
    public enum Severity: String, Hashable, Sendable, CaseIterable {
        /// The gate fails.
        case error
        /// It is reported, and the verdict does not change.
        case warning
        /// Matching stalls are not judged by any rule.
        case off
    }

    /// What a rule applies to. Nil: any. Texts may contain `*` for any text.
    public struct Scope: Hashable, Sendable {
        /// The name of the service.
        public var service: String?
        /// The label of the watched loop.
        public var label: String?
        /// The type of the watched loop.
        public var type: WatchedType?
        /// The verdict. `waiting` and its older name `blocked` are the same.
        public var verdict: Verdict?
        /// The fault, by the beginning of its fingerprint.
        public var fingerprint: FingerprintPrefix?

        /// Creates a scope that includes everything.
        public init() {}

        /// Whether it restricts loops only, and not the kind of stall.
        public var isOfLoops: Bool { verdict == nil && fingerprint == nil }
    }

    /// For display.
    public var name: String
    /// The stalls that it applies to.
    public var scope: Scope
    /// What is permitted.
    public var limits: BudgetLimits
    /// What happens when a limit is exceeded.
    public var severity: Severity

    /// Creates a rule. By default it applies to everything, and exceeding it is an error.
    public init(name: String, scope: Scope = Scope(), limits: BudgetLimits, severity: Severity = .error) {
        (self.name, self.scope, self.limits, self.severity) = (name, scope, limits, severity)
    }
}

extension BudgetRule.Scope {
    func fits(_ occurrence: Occurrence, _ names: FaultNames) -> Bool {
        fits(service: occurrence.service, label: occurrence.label, type: occurrence.type)
            && (verdict.map { occurrence.verdict?.canonical == $0.canonical } ?? true)
            && (fingerprint.map { names.hasName(occurrence.fingerprint, like: $0) } ?? true)
    }

    /// An unknown value matches only a rule that does not restrict it.
    func fits(service: String?, label: String?, type: WatchedType?) -> Bool {
        Self.fits(service, self.service) && Self.fits(label, self.label)
            && (self.type.map { $0 == type } ?? true)
    }

    private static func fits(_ text: String?, _ pattern: String?) -> Bool {
        guard let pattern else { return true }
        return text.map { matchesPattern(Array($0.utf8), Array(pattern.utf8), star: UInt8(ascii: "*")) } ?? false
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
        // The version, a colon, and sixteen digits. Not split: this may be asked for each of a million stalls.
        let text = fingerprint.rawValue.utf8
        let isOfVersion = version.map { text.dropLast(17).elementsEqual($0.utf8) } ?? true
        return isOfVersion && text.suffix(16).starts(with: digits.utf8)
    }
}

extension FaultNames {
    /// Whether any fingerprint of a fault has this prefix.
    package func hasName(_ fault: Fingerprint, like prefix: FingerprintPrefix) -> Bool {
        hasName(fault, like: prefix.description, prefix.matches)
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

/// Whether a text matches a pattern. The time is bounded by the product of the lengths, and no pattern causes exponential
/// backtracking: after a mismatch only the last star is tried again, one element further.
///
/// - Parameters:
///   - star: In a pattern, any text.
///   - any: In a pattern, any one element.
package func matchesPattern<Element: Equatable>(
    _ text: [Element],
    _ pattern: [Element],
    star: Element,
    any: Element? = nil
) -> Bool {
    var (at, wanted) = (0, 0)
    var restart: (text: Int, pattern: Int)?
    while at < text.count {
        if wanted < pattern.count, pattern[wanted] == star {
            restart = (at, wanted + 1)
            wanted += 1
        } else if wanted < pattern.count, pattern[wanted] == any || pattern[wanted] == text[at] {
            (at, wanted) = (at + 1, wanted + 1)
        } else if let (from, after) = restart {
            restart = (from + 1, after)
            (at, wanted) = (from + 1, after)
        } else {
            return false
        }
    }
    return pattern[wanted...].allSatisfy { $0 == star }
}
