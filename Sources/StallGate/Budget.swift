public import StallReports

/// What a service may stall, before a gate closes.
public struct Budget: Hashable, Sendable {
    /// Most stalls that are not allowed for. Stalls that were only counted (`suppressed`) count.
    public var maxStalls: Int?
    /// The longest that one of them may last, in nanoseconds.
    public var maxDurationNs: Int64?
    /// Stalls that are known and do not count.
    public var allowed: [FingerprintPrefix]

    /// Unless given there is no limit, and no stall is allowed for.
    public init(maxStalls: Int? = nil, maxDurationNs: Int64? = nil, allowed: [FingerprintPrefix] = []) {
        (self.maxStalls, self.maxDurationNs, self.allowed) = (maxStalls, maxDurationNs, allowed)
    }
}

extension Budget {
    /// Whether the fault is allowed, by any of the fingerprints that it is known by.
    func allows(_ fingerprint: Fingerprint, _ names: FaultNames) -> Bool {
        let all = names.all(of: fingerprint)
        return allowed.contains { all.contains(where: $0.matches) }
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
