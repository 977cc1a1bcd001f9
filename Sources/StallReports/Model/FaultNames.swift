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

extension StallReport {
    /// Which names of own functions are missing, and the command that finds them: one sentence. Nil if none are missing.
    public var missingNames: String? {
        guard isProvisional == true else { return nil }
        let module = culpritFrame?.module.flatMap { modules.indices.contains($0) ? modules[$0] : nil }
        let name = module?.fileName ?? "The program"
        let build = module?.buildID.map { " (build id \($0))" } ?? ""
        return "\(name) has no symbols here, so its functions have no names and the culprit is a guess; "
            + "'stall-monitor symbolicate DIR --symbols FILE' names them, with a FILE of the same build\(build)."
    }

    /// The frame to which the culprit refers.
    private var culpritFrame: Frame? {
        guard let culprit, stacks.indices.contains(culprit.stack) else { return nil }
        let stack = stacks[culprit.stack]
        let frames = culprit.isAwaiting == true ? stack.async?.frames ?? [] : stack.frames
        return frames.indices.contains(culprit.frame) ? frames[culprit.frame] : nil
    }

    /// The culprit for display: the function, or without a name its place: `shop+0x1a2b0 (no symbols)`. Nil without a culprit.
    public var culpritName: String? {
        if let name = culprit?.function ?? culprit?.symbol { return name }
        guard let frame = culpritFrame else { return culprit?.module }
        return frame.placeName(in: frame.module.flatMap { modules.indices.contains($0) ? modules[$0].path : nil })
    }
}

extension StallReport.Frame {
    /// A placeholder for a missing name. It does not depend on where the module is loaded.
    public func placeName(in path: String?) -> String {
        guard let path, let offset else { return "code at \(address)" }
        let start = functionOffset.map { Address(offset.rawValue &- $0.rawValue) } ?? offset
        return "\(fileName(of: path))+\(start) (no symbols)"
    }
}

private func fileName(of path: String) -> String { path.split(separator: "/").last.map(String.init) ?? path }

extension StallReport.Module {
    fileprivate var fileName: String { StallReports.fileName(of: path) }
}
