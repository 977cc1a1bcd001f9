public import StallReports

/// The fingerprints by which a fault is known, including those that its reports had before its functions had names. Two faults
/// that share such a fingerprint are the same fault.
public struct FaultNames: Hashable, Sendable {
    /// For each fingerprint, the group of fingerprints of the same fault. Fingerprints without others are left out.
    private var groups: [Fingerprint: Set<Fingerprint>] = [:]

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
            for member in group { groups[member] = group }
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

    /// The fingerprint, and all others of the same fault.
    public func all(of fingerprint: Fingerprint) -> Set<Fingerprint> { groups[fingerprint] ?? [fingerprint] }
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
