import StallReports

/// One line of a gate's result with its source location: the basis of annotations, SARIF and summaries.
struct GateRemark {
    enum Level: String {
        case error, warning, note
    }

    /// A line of a source file, with the path recorded by the compiler.
    struct Place {
        let file: String
        let line: Int
    }

    let level: Level
    /// A ``Finding/Rule``, or `cannot_judge`, `inconclusive`, `allowed`.
    let rule: String
    let message: String
    var fingerprint: Fingerprint?
    var place: Place?
    /// Why it does not count. Nil: it counts.
    var excuse: String?
}

extension GateResult {
    /// The worst first. A finding about several faults becomes one remark for each.
    var remarks: [GateRemark] {
        let stalls = Dictionary((counted + allowed).map { ($0.fingerprint, $0) }) { first, second in
            first.durationNs >= second.durationNs ? first : second
        }
        let known = { (name: Fingerprint) in stalls[name] ?? names.all(of: name).lazy.compactMap { stalls[$0] }.first }
        let all =
            doubts.map { GateRemark(level: .error, rule: "cannot_judge", message: $0.description) }
            + findings.flatMap { Self.remarks($0, known) }
            + inconclusive.map { GateRemark(level: .warning, rule: "inconclusive", message: $0) }
        return all.filter { $0.level == .error } + all.filter { $0.level != .error } + excused
    }

    private static func remarks(_ finding: Finding, _ known: (Fingerprint) -> StallOutline?) -> [GateRemark] {
        let level: GateRemark.Level = finding.severity == .error ? .error : .warning
        guard !finding.faults.isEmpty else {
            return [GateRemark(level: level, rule: finding.rule.rawValue, message: finding.text)]
        }
        return finding.faults.map { fault in
            let stall = known(fault)
            let name = VisibleText.of(stall?.culpritName ?? "unknown code", limit: 160)
            // The message of a comparison begins with the function.
            let message = finding.rule.isOfBaseline ? finding.text : "\(name) stalled: \(finding.text) (\(fault))"
            return GateRemark(
                level: level,
                rule: finding.rule.rawValue,
                message: message,
                fingerprint: fault,
                place: stall?.place
            )
        }
    }

    private var excused: [GateRemark] {
        var seen: Set<Fingerprint> = []
        return allowed.filter { seen.insert($0.fingerprint).inserted }.map { stall in
            let all = names.all(of: stall.fingerprint)
            let allowance = budget.allowances.first { all.contains(where: $0.fault.matches) }
            let excuse = allowance.map {
                "\(VisibleText.of($0.reason, limit: 200)) (\(VisibleText.of($0.owner, limit: 80)), until \($0.expires))"
            }
            return GateRemark(
                level: .note,
                rule: "allowed",
                message: Self.line(stall),
                fingerprint: stall.fingerprint,
                place: stall.place,
                excuse: excuse ?? "allowed by the command line, or switched off by the budget"
            )
        }
    }
}

extension StallOutline {
    var place: GateRemark.Place? {
        guard let file = culprit?.file, let line = culprit?.line, line > 0 else { return nil }
        return .init(file: VisibleText.of(file, limit: 1000), line: line)
    }
}

extension GateRemark.Place {
    /// The path relative to a folder, if the file is in it; otherwise unchanged.
    func file(in root: String) -> String {
        let folder = root.hasSuffix("/") ? root : root + "/"
        return file.hasPrefix(folder) ? String(file.dropFirst(folder.count)) : file
    }
}
