import StallGate
import StallReports

/// What is meant by `show`'s argument: the latest stall, one so many before it, or the stall or fault whose name begins so.
struct StallChoice: Hashable {
    /// As given.
    private let text: String
    /// How many stalls before the latest one. Nil where it is not chosen so.
    private let before: Int?
    /// The beginning of an id, in upper case. Nil for what can be none.
    private let idPrefix: String?
    private let fingerprint: FingerprintPrefix?

    /// Nil for what can be the beginning of no id and no fingerprint.
    init?(_ text: String) {
        self.text = text
        before = Self.stepsBeforeLatest(text)
        let filled = text + String(repeating: "0", count: max(0, 26 - text.count))
        idPrefix = !text.isEmpty && ULID(filled) != nil ? text.uppercased() : nil
        fingerprint = FingerprintPrefix(text)
        if before == nil, idPrefix == nil, fingerprint == nil { return nil }
    }

    /// `latest`, `latest~1` for the one before it, `latest~` for the same.
    private static func stepsBeforeLatest(_ text: String) -> Int? {
        let text = text.lowercased()
        if text == "latest" { return 0 }
        guard text.hasPrefix("latest~") else { return nil }
        let number = text.dropFirst("latest~".count)
        if number.isEmpty { return 1 }
        return number.allSatisfy(\.isWholeNumber) ? Int(number) : nil
    }

    enum Found: Hashable {
        /// So many before the latest one.
        case latest(before: Int)
        case stall(ULID)
        case fault(FingerprintPrefix)
    }

    /// Reads outlines only where the text may be a fingerprint.
    func pick(from catalog: Catalogs) throws(CommandFailure) -> Found {
        if let before { return .latest(before: before) }
        let ids = idPrefix.map { prefix in catalog.stalls.filter { $0.description.hasPrefix(prefix) } } ?? []
        let faults = faults(in: catalog)
        switch (ids.count, faults.count) {
        case (1, 0): return .stall(ids[0])
        case (0, 1): return .fault(FingerprintPrefix(faults[0].fingerprint.rawValue) ?? fingerprint!)
        case (0, 0): throw CommandFailure(nothing)
        default: throw CommandFailure(ambiguous(ids, faults, catalog))
        }
    }

    private var nothing: String {
        if fingerprint == nil {
            return "no stall's id begins with \(idPrefix ?? text); 'stall-monitor list' shows them"
        }
        return
            "no stall's id and no fault's fingerprint begins with \(text); 'stall-monitor list' and 'stall-monitor faults' show them"
    }

    /// One stall of each fault that is known by such a name.
    private func faults(in catalog: Catalogs) -> [StallOutline] {
        guard let fingerprint else { return [] }
        var (found, pairs): ([Fingerprint: StallOutline], [Fingerprint: [Fingerprint]]) = ([:], [:])
        for part in catalog.all {
            _ = try? part.forEachOutline { stall in
                let known = [stall.fingerprint] + (stall.aliases ?? [])
                guard known.contains(where: fingerprint.matches) else { return }
                (found[stall.fingerprint], pairs[stall.fingerprint]) = (stall, stall.aliases ?? [])
            }
        }
        // Names of the same fault are no ambiguity.
        let names = FaultNames(pairs: pairs.map { ($0.key, $0.value) })
        var told: Set<Set<Fingerprint>> = []
        return found.values.sorted { $0.id < $1.id }.filter { told.insert(names.all(of: $0.fingerprint)).inserted }
    }

    /// With what tells the candidates apart: when, how long, where.
    private func ambiguous(_ ids: [ULID], _ faults: [StallOutline], _ catalog: Catalogs) -> String {
        var candidates = faults.prefix(5).map { "fault \($0.fingerprint) (\($0.culpritText))" }
        candidates += ids.suffix(5).reversed().map { id in
            guard let stall = try? catalog.outline(id) else { return "\(id)" }
            return "\(id) (\(stall.startedAt.toSeconds), \(stall.durationText), \(stall.culpritText))"
        }
        let count = ids.count + faults.count
        let left = count - candidates.count
        let what =
            faults.isEmpty
            ? "\(ids.count) stalls' ids begin with \(idPrefix ?? text)"
            : "\(count) stalls and faults begin with \(text)"
        return "\(what): give more of one of \(candidates.joined(separator: ", "))"
            + (left > 0 ? ", and \(left) others" : "")
    }
}
