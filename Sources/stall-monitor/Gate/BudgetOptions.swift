import ArgumentParser
import Glibc
import StallGate
import StallReports

/// What a gate judges by: a file, and limits on top of it.
struct BudgetOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "A file with budgets and allowances. Without it, ./\(BudgetFile.defaultPath) if it is there.",
            valueName: "file"
        ),
        completion: .file(extensions: ["yaml", "yml"])
    )
    var budget: String?

    @Option(parsing: .unconditional, help: "Most stalls permitted, those counted but not reported included.")
    var maxStalls: Int?

    @Option(help: "The longest stall permitted: 500ms, 1.5s.")
    var maxDuration: DurationText?

    @Option(parsing: .unconditional, help: "Most stalls permitted in an hour watched, over all loops.")
    var maxPerHour: Double?

    @Option(parsing: .unconditional, help: "The share of the watched time that may be stalled, in percent.")
    var maxBlockedPercent: Double?

    @Option(name: .customLong("max-turn-p99"), help: "The longest that 99 of 100 turns of a loop may take.")
    var maxTurnP99: DurationText?

    @Option(help: "The longest that any turn of a loop may take.")
    var maxTurn: DurationText?

    @Option(
        help: ArgumentHelp(
            "A stall that does not count: its fingerprint, or at least four digits of it.",
            valueName: "fingerprint"
        )
    )
    var allow: [FingerprintPrefix] = []

    func validate() throws {
        if let maxStalls, maxStalls < 0 { throw ValidationError("--max-stalls is a number from 0") }
        for (name, value) in [("--max-per-hour", maxPerHour), ("--max-blocked-percent", maxBlockedPercent)] {
            if let value, !(value >= 0 && value.isFinite) { throw ValidationError("\(name) is a number from 0") }
        }
    }

    /// - Parameter isBaselined: whether something else is there to judge by.
    func read(isBaselined: Bool = false) throws(CommandFailure) -> Budget {
        var result = Budget(maxStalls: maxStalls, maxDurationNs: maxDuration?.nanoseconds, allowed: allow)
        result.limits.maxPerHour = maxPerHour
        result.limits.maxBlockedPercent = maxBlockedPercent
        result.limits.maxTurnP99Ns = maxTurnP99?.nanoseconds
        result.limits.maxTurnNs = maxTurn?.nanoseconds
        result.today = CalendarDay(String(Timestamp.now().description.prefix(10)))
        if let path = budget ?? Self.defaultFile {
            let file = try BudgetFile(path: path)
            (result.rules, result.allowances) = (file.rules, file.allowances)
        }
        if result.limits.isEmpty, result.rules.isEmpty, !isBaselined { result.limits.maxStalls = 0 }
        return result
    }

    private static var defaultFile: String? {
        unsafe access(BudgetFile.defaultPath, F_OK) == 0 ? BudgetFile.defaultPath : nil
    }
}
