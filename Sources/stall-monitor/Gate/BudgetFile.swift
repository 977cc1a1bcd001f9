import StallGate
import StallReports

/// A budget file. `config/stall-budget.schema.json` is its schema, `config/stall-budget.yaml` an example.
struct BudgetFile {
    let rules: [BudgetRule]
    let allowances: [Allowance]

    static let defaultPath = "stall-budget.yaml"

    /// - Throws: The first mistake, with its line and key, and what to write instead.
    init(path: String) throws(CommandFailure) {
        guard OutputFile.exists(path) else { throw CommandFailure("there is no budget \(path); check --budget") }
        try self.init(YAMLEntry(file: path))
    }

    private init(_ root: YAMLEntry) throws(CommandFailure) {
        let keys = try root.keys(["version", "budgets", "allowances"])
        if let version = keys["version"], try version.text() != "1" {
            throw version.mistake("this version of stall-monitor reads version 1")
        }
        rules = try (keys["budgets"]?.list() ?? []).enumerated().map { index, entry throws(CommandFailure) in
            try BudgetRule(entry, index)
        }
        try Self.refuseEqualNames(rules, keys["budgets"])
        allowances = try (keys["allowances"]?.list() ?? []).map { entry throws(CommandFailure) in try Allowance(entry) }
    }

    /// Findings of several runs are merged by the budget's name, so names must be unique.
    private static func refuseEqualNames(_ rules: [BudgetRule], _ list: YAMLEntry?) throws(CommandFailure) {
        guard let entries = try list?.list() else { return }
        var known: Set<String> = []
        for (rule, entry) in zip(rules, entries) where !known.insert(rule.name).inserted {
            throw entry.mistake("'\(rule.name)' is the name of a budget before it; give each a name of its own")
        }
    }
}

extension BudgetRule {
    fileprivate init(_ entry: YAMLEntry, _ index: Int) throws(CommandFailure) {
        let limits = [
            "maxStalls", "maxPerHour", "maxDuration", "maxBlockedPercent", "maxTurnP99", "maxTurn",
        ]
        let keys = try entry.keys(["name", "match", "severity"] + limits)
        let scope = try keys["match"].map { entry throws(CommandFailure) in try Scope(entry) } ?? Scope()
        self.init(
            name: try keys["name"]?.text() ?? "budget \(index + 1)",
            scope: scope,
            limits: try BudgetLimits(keys),
            severity: (try keys["severity"]?.choice(of: Severity.allCases.map(\.rawValue)))
                .flatMap { Severity(rawValue: $0) } ?? .error
        )
        if severity != .off, self.limits.isEmpty {
            throw entry.mistake("no limit; give one of \(limits.joined(separator: ", ")), or severity: off")
        }
        let turns = keys["maxTurnP99"] ?? keys["maxTurn"]
        if let turns, !scope.isOfLoops {
            throw turns.mistake("turns are of a loop, not of a verdict or fault; match service, label or type alone")
        }
    }
}

extension BudgetLimits {
    fileprivate init(_ keys: [String: YAMLEntry]) throws(CommandFailure) {
        self.init(maxStalls: try keys["maxStalls"]?.whole(), maxDurationNs: try keys["maxDuration"]?.length())
        maxPerHour = try keys["maxPerHour"]?.number()
        maxBlockedPercent = try keys["maxBlockedPercent"]?.percent()
        maxTurnP99Ns = try keys["maxTurnP99"]?.length()
        maxTurnNs = try keys["maxTurn"]?.length()
    }
}

extension BudgetRule.Scope {
    fileprivate init(_ entry: YAMLEntry) throws(CommandFailure) {
        let keys = try entry.keys(["service", "label", "type", "verdict", "fingerprint"])
        self.init()
        service = try keys["service"]?.text()
        label = try keys["label"]?.text()
        type = (try keys["type"]?.choice(of: WatchedType.known.map(\.rawValue))).map { WatchedType(rawValue: $0) }
        let verdicts = Verdict.known + [.blocked]
        verdict = (try keys["verdict"]?.choice(of: verdicts.map(\.rawValue))).map { Verdict(rawValue: $0) }
        fingerprint = try keys["fingerprint"]?.fingerprint()
    }
}

extension Allowance {
    fileprivate init(_ entry: YAMLEntry) throws(CommandFailure) {
        let keys = try entry.keys(["fingerprint", "reason", "owner", "expires"])
        let need = { (key: String) throws(CommandFailure) in
            guard let value = keys[key] else {
                throw entry.mistake("\(key) is missing: an allowance says who mends it until when, and why")
            }
            return value
        }
        self.init(
            fault: try need("fingerprint").fingerprint(),
            reason: try need("reason").text(),
            owner: try need("owner").text(),
            expires: try need("expires").day()
        )
    }
}
