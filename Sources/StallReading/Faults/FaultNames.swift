public import StallReports
import Synchronization

/// The fingerprints by which a fault is known, including those that its reports had before its functions had names. Two faults
/// that share such a fingerprint are the same fault.
public struct FaultNames: Hashable, Sendable {
    /// For each fingerprint, the group of fingerprints of the same fault. Fingerprints without others are left out.
    private var groups: [Fingerprint: Set<Fingerprint>] = [:]
    /// The first in alphabetical order of each group, by all its fingerprints.
    private var firsts: [Fingerprint: Fingerprint] = [:]
    private let matches = Matches()

    /// - Parameter reports: All reports that may have been symbolicated.
    public init(_ reports: some Sequence<StallReport>) {
        self.init(pairs: reports.lazy.map { ($0.fingerprint, $0.aliases ?? []) })
    }

    /// - Parameter pairs: Fingerprints, each with others of the same fault.
    package init(pairs: some Sequence<(Fingerprint, [Fingerprint])>) {
        var others: [Fingerprint: Set<Fingerprint>] = [:]
        for (fingerprint, aliases) in pairs {
            for alias in aliases where alias != fingerprint {
                others[alias, default: []].insert(fingerprint)
                others[fingerprint, default: []].insert(alias)
            }
        }
        for start in others.keys where groups[start] == nil {
            let group = Self.reach(from: start, over: others)
            let first = group.min { $0.rawValue < $1.rawValue }
            for member in group { (groups[member], firsts[member]) = (group, first) }
        }
    }

    /// All fingerprints that are reachable from one. Each is visited once.
    private static func reach(
        from start: Fingerprint,
        over others: [Fingerprint: Set<Fingerprint>]
    ) -> Set<Fingerprint> {
        var (reached, open): (Set<Fingerprint>, [Fingerprint]) = ([start], [start])
        while let next = open.popLast() {
            for other in others[next] ?? [] where reached.insert(other).inserted { open.append(other) }
        }
        return reached
    }

    /// The fingerprint, and all others of the same fault. There may be as many as reports, so this is not for use with each
    /// report.
    public func all(of fingerprint: Fingerprint) -> Set<Fingerprint> { groups[fingerprint] ?? [fingerprint] }

    /// One of the fingerprints of a fault, the same one whichever of them is given: to sum by.
    package func first(of fingerprint: Fingerprint) -> Fingerprint { firsts[fingerprint] ?? fingerprint }

    /// Whether any fingerprint of a fault matches. All faults are compared once for each pattern, at its first use.
    ///
    /// - Parameters:
    ///   - pattern: What is looked for, as text.
    ///   - matches: Whether a fingerprint matches the pattern.
    package func hasName(_ fault: Fingerprint, like pattern: String, _ matches: (Fingerprint) -> Bool) -> Bool {
        if matches(fault) { return true }
        guard let first = firsts[fault] else { return false }
        return self.matches.faults(of: pattern) { Set(firsts.filter { matches($0.key) }.values) }.contains(first)
    }

    /// The faults that match each pattern, by their first names. It follows from the groups, and is no part of the value.
    private final class Matches: Hashable, Sendable {
        private let known = Mutex<[String: Set<Fingerprint>]>([:])

        func faults(of pattern: String, _ find: () -> Set<Fingerprint>) -> Set<Fingerprint> {
            if let found = known.withLock({ $0[pattern] }) { return found }
            let found = find()
            known.withLock { $0[pattern] = found }
            return found
        }

        static func == (_: Matches, _: Matches) -> Bool { true }
        func hash(into _: inout Hasher) {}
    }
}

extension FaultNames {
    /// - Parameter stalls: All stalls that may have been symbolicated.
    public init(_ stalls: some Sequence<StallOutline>) {
        self.init(pairs: stalls.lazy.compactMap { stall in stall.aliases.map { (stall.fingerprint, $0) } })
    }

    /// The same for an array, which may hold a million stalls: it is read several times as fast as a sequence.
    package init(_ stalls: [StallOutline]) {
        var pairs: [(Fingerprint, [Fingerprint])] = []
        for index in stalls.indices {
            if let aliases = stalls[index].aliases { pairs.append((stalls[index].fingerprint, aliases)) }
        }
        self.init(pairs: pairs)
    }
}

/// What is known of faults: found by the fingerprint with which it was put in, or else by any other one of the same fault.
package struct FaultTable<Value> {
    private let names: FaultNames
    private let exact: [Fingerprint: Value]
    private let others: [Fingerprint: Value]

    /// - Parameter join: Joins two values of one fingerprint or fault. By default the earlier one stays.
    package init(
        _ values: [(Fingerprint, Value)],
        _ names: FaultNames,
        joining join: (Value, Value) -> Value = { first, _ in first }
    ) {
        self.names = names
        exact = Dictionary(values, uniquingKeysWith: join)
        others = Dictionary(values.map { (names.first(of: $0.0), $0.1) }, uniquingKeysWith: join)
    }

    package subscript(fault: Fingerprint) -> Value? { exact[fault] ?? others[names.first(of: fault)] }
}
