import ArgumentParser
import Glibc
import StallGate
import StallReports

/// What a gate judges by, and what it tells whom.
struct JudgeOptions: ParsableArguments {
    enum Format: String, ExpressibleByArgument, CaseIterable {
        case text, json, junit
    }

    @OptionGroup var budget: BudgetOptions

    @Option(
        help: ArgumentHelp(
            "What there was when all was well: a file of 'gate baseline record', a folder of them, or a report directory.",
            valueName: "path"
        )
    )
    var baseline: String?

    @Flag(help: "Where something is proven to be better than the baseline, put that into the baseline's file.")
    var tighten = false

    @Option(help: "For people, for programs, or for CI servers.")
    var format: Format = .text

    @OptionGroup var outputs: GateOutputs

    func validate() throws {
        if baseline?.isEmpty == true { throw ValidationError("the baseline's name is empty") }
        if tighten, baseline == nil { throw ValidationError("--tighten goes with --baseline") }
    }

    /// Judges, and does what is to be done with the outcome.
    ///
    /// - Parameters:
    ///   - overviews: of each run of a command; of a report directory, the one.
    ///   - whole: what the one was chosen from.
    ///   - choosing: what is in doubt of the choice.
    ///   - other: in place of a baseline's file.
    func judge(
        _ overviews: [ReportReader.Overview],
        outOf whole: ReportReader.Overview? = nil,
        choosing: [Doubt] = [],
        against other: Baseline? = nil
    ) throws(CommandFailure) -> GateResult {
        let environment = overviews.lazy.flatMap(\.runs).last.map { Baseline.Environment($0) }
        let file = try baseline.map { path throws(CommandFailure) in try BaselineFile(path, for: environment) }
        let budget = try budget.read(isBaselined: file != nil || other != nil)
        var baseline = file?.baseline ?? other
        // Runs that somebody chose to compare, and maybe of many machines: no one's environment is theirs.
        if file == nil, let environment { baseline?.environment = environment }
        let result =
            if let whole, overviews.count == 1 {
                Gate.judge(.success(overviews[0]), by: budget, against: baseline, outOf: whole, choosing: choosing)
            } else {
                Gate.judge(repeats: overviews, by: budget, against: baseline)
            }
        if tighten, let file, result.verdict == .within { try tighten(file, by: overviews) }
        return result
    }

    private func tighten(_ file: BaselineFile, by overviews: [ReportReader.Overview]) throws(CommandFailure) {
        guard let path = file.path else {
            throw CommandFailure("--tighten needs a baseline in a file; 'stall-monitor gate baseline record' makes one")
        }
        var all = ReportReader.Overview()
        for overview in overviews {
            all.stalls += overview.stalls
            all.runs += overview.runs
        }
        guard let better = file.baseline.tightened(by: all, at: .now()) else { return }
        Output.note("tightened \(try BaselineFile.write(better, to: path))")
    }

    /// Writes the files that were asked for, and gives what is to be printed.
    ///
    /// - Parameter width: of the terminal that text goes to.
    func text(of result: GateResult, width: Int?) throws -> String {
        try outputs.write(result)
        return switch format {
        case .text: Self.lines(of: result, width: width).map { $0.plain + "\n" }.joined()
        case .json: try JSONText.escaped(String(decoding: result.json(), as: UTF8.self))
        case .junit: result.junit()
        }
    }
}

extension JudgeOptions {
    /// What a gate tells a person.
    static func lines(of result: GateResult, width: Int?) -> [StyledText] {
        result.text.split(separator: "\n").flatMap {
            StyledText(String($0), limit: .max).wrapped(to: width, hanging: 6)
        }
    }
}

extension GateResult {
    /// The one place for the gate's exit codes.
    var exitCode: ExitCode {
        switch verdict {
        case .within: ExitCode(0)
        case .cannotJudge: ExitCode(1)
        case .over: ExitCode(2)
        case .inconclusive: ExitCode(3)
        }
    }
}

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
