import StallReading
public import StallReports

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
            && (verdict.map { wanted in occurrence.verdict.map { $0.isSame(as: wanted) } ?? false } ?? true)
            && (fingerprint.map { names.all(of: occurrence.fingerprint).contains(where: $0.matches) } ?? true)
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

extension StallReports.Verdict {
    /// The first reports used `blocked` for what is now `waiting`.
    func isSame(as other: Self) -> Bool { word == other.word }

    private var word: String { rawValue == "waiting" ? "blocked" : rawValue }
}
