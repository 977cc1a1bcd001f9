import ArgumentParser
import Glibc
import StallGate
import StallReading
import StallReports

/// The options that all gate commands share: budget, baseline, output.
struct JudgeOptions: ParsableArguments {
    enum Format: String, ExpressibleByArgument, CaseIterable {
        case text, json, junit
    }

    @OptionGroup var budget: BudgetOptions

    @Option(
        help: ArgumentHelp(
            "Compare with this: a file from 'gate baseline record', a folder of such files, or the report directory of a healthy run.",
            valueName: "path"
        )
    )
    var baseline: String?

    @Flag(help: "If the run is proven better than the baseline, update the baseline's file.")
    var tighten = false

    @Option(help: "Text for people, JSON for programs, or JUnit XML for CI servers.")
    var format: Format = .text

    @OptionGroup var outputs: GateOutputs

    func validate() throws {
        if baseline?.isEmpty == true { throw ValidationError("the baseline's name is empty") }
        if tighten, baseline == nil { throw ValidationError("--tighten needs --baseline") }
    }

    /// Judges the runs.
    ///
    /// - Parameters:
    ///   - overviews: One for each run of a command, or one for a report directory.
    ///   - whole: The stalls from which a single overview was chosen.
    ///   - most: That overview with all counted stalls that may have come in the chosen time. If with them it is over budget, it cannot be judged.
    ///   - choosing: Doubts about the choice.
    ///   - other: A baseline that does not come from a file.
    func judge(
        _ overviews: [ReportReader.Overview],
        outOf whole: ReportReader.Overview? = nil,
        atMost most: ReportReader.Overview? = nil,
        choosing: [Doubt] = [],
        against other: Baseline? = nil
    ) throws -> GateResult {
        let environment = Baseline.Environment(of: overviews.flatMap(\.runs))
        let file = try baselineFile(for: environment)
        let budget = try budget.read(isBaselined: file != nil || other != nil)
        var baseline = file?.baseline ?? other
        if file == nil { baseline?.isOfAnyEnvironment = true }
        guard let whole, overviews.count == 1 else {
            return Gate.judge(repeats: overviews, by: budget, against: baseline)
        }
        return Self.judge(overviews[0], whole, most, budget, baseline, choosing)
    }

    private static func judge(
        _ chosen: ReportReader.Overview,
        _ whole: ReportReader.Overview,
        _ most: ReportReader.Overview?,
        _ budget: Budget,
        _ baseline: Baseline?,
        _ choosing: [Doubt]
    ) -> GateResult {
        let judged = { (doubts: [Doubt]) in
            Gate.judge(.success(chosen), by: budget, against: baseline, outOf: whole, choosing: doubts)
        }
        let result = judged(choosing)
        guard let most, most.countedOnly != chosen.countedOnly, [.within, .inconclusive].contains(result.verdict) else {
            return result
        }
        let worst = Gate.judge(.success(most), by: budget, against: nil, outOf: whole)
        return worst.findings.contains { $0.severity == .error }
            ? judged(choosing + chosen.doubts(beside: most)) : result
    }

    /// - Parameter environment: The judged run's.
    /// - Returns: Nil without `--baseline`.
    /// - Throws: If it cannot be read, or cannot be tightened although that is wanted.
    func baselineFile(for environment: Baseline.Environment?) throws -> BaselineFile? {
        let file = try baseline.map { try BaselineFile($0, for: environment) }
        if tighten, file?.path == nil {
            throw CommandFailure(
                "--tighten needs a baseline in a file; make one with 'stall-monitor gate baseline record'"
            )
        }
        return file
    }

    private func tighten(by overviews: [ReportReader.Overview]) throws {
        let environment = Baseline.Environment(of: overviews.flatMap(\.runs))
        guard let file = try baselineFile(for: environment), let path = file.path,
            let better = file.baseline.tightened(by: overviews, at: .now())
        else { return }
        Output.note("tightened \(try BaselineFile.write(better, to: path))")
    }

    /// Tightens the baseline if the user wants that, and writes the requested files. The caller shows the verdict before it reports a failure.
    ///
    /// - Parameter overviews: What was judged. Nil if it must not become the reference, because the command failed: half of the work has half
    ///   of the stalls.
    func writeFiles(
        _ result: GateResult,
        tighteningBy overviews: [ReportReader.Overview]?
    ) -> Result<Void, any Error> {
        let tightened = Result {
            if tighten, let overviews, result.verdict == .within { try tighten(by: overviews) }
        }
        let written = Result { try outputs.write(result) }
        return tightened.flatMap { written }
    }

    /// What to print.
    ///
    /// - Parameter width: The width of the terminal that shows the text, in columns.
    func text(of result: GateResult, width: Int?) throws -> String {
        switch format {
        case .text: Self.lines(of: result, width: width).map { $0.plain + "\n" }.joined()
        case .json: try JSONText.escaped(String(decoding: result.json(), as: UTF8.self))
        case .junit: result.junit()
        }
    }
}

extension JudgeOptions {
    /// The gate's text for people.
    static func lines(of result: GateResult, width: Int?) -> [StyledText] {
        result.text(time: \.toSeconds).split(separator: "\n").flatMap {
            StyledText(String($0), limit: .max).wrapped(to: width, hanging: 6)
        }
    }
}

extension GateResult {
    /// The gate's exit codes. They are defined only here.
    var exitCode: ExitCode {
        switch verdict {
        case .within: ExitCode(0)
        case .cannotJudge: ExitCode(1)
        case .over: ExitCode(2)
        case .inconclusive: ExitCode(3)
        }
    }
}

/// The budget: a file, and limits on top of it.
struct BudgetOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "A file with budgets and allowances. Without it, ./\(BudgetFile.defaultPath) if it is there.",
            valueName: "file"
        ),
        completion: .file(extensions: ["yaml", "yml"])
    )
    var budget: String?

    @Option(
        parsing: .unconditional,
        help: ArgumentHelp(
            "Fail if there are more stalls than this, including those that were only counted.",
            valueName: "number"
        )
    )
    var maxStalls: Int?

    @Option(
        parsing: .unconditional,
        help: ArgumentHelp("Fail if a stall is longer: 500ms, 1.5s.", valueName: "length")
    )
    var maxDuration: DurationText?

    @Option(
        parsing: .unconditional,
        help: ArgumentHelp("Fail if there are more stalls per watched hour, over all loops.", valueName: "number")
    )
    var maxPerHour: Double?

    @Option(
        parsing: .unconditional,
        help: ArgumentHelp(
            "Fail if a larger share of the watched time is stalled, in percent: 0.1.",
            valueName: "percent"
        )
    )
    var maxBlockedPercent: Double?

    @Option(
        name: .customLong("max-turn-p99"),
        parsing: .unconditional,
        help: ArgumentHelp("Fail if the 99th percentile of a loop's turns is longer.", valueName: "length")
    )
    var maxTurnP99: DurationText?

    @Option(parsing: .unconditional, help: ArgumentHelp("Fail if any turn of a loop is longer.", valueName: "length"))
    var maxTurn: DurationText?

    @Option(
        help: ArgumentHelp(
            "Ignore stalls of this fault: its fingerprint, or at least its first four digits.",
            valueName: "fingerprint"
        )
    )
    var allow: [FingerprintPrefix] = []

    func validate() throws {
        if budget?.isEmpty == true { throw ValidationError("the budget's name is empty") }
        if let maxStalls, maxStalls < 0 { throw ValidationError("--max-stalls is a number from 0") }
        for (name, value) in [("--max-per-hour", maxPerHour), ("--max-blocked-percent", maxBlockedPercent)] {
            if let value, !(value >= 0 && value.isFinite) { throw ValidationError("\(name) is a number from 0") }
        }
        if let maxBlockedPercent, maxBlockedPercent > 100 {
            throw ValidationError("--max-blocked-percent is a number from 0 to 100")
        }
    }

    /// - Parameter isBaselined: whether there is a baseline to judge by.
    func read(isBaselined: Bool = false) throws(CommandFailure) -> Budget {
        var result = Budget(maxStalls: maxStalls, maxDurationNs: maxDuration?.nanoseconds, allowed: allow)
        result.limits.maxPerHour = maxPerHour
        result.limits.maxBlockedPercent = maxBlockedPercent
        result.limits.maxTurnP99Ns = maxTurnP99?.nanoseconds
        result.limits.maxTurnNs = maxTurn?.nanoseconds
        result.today = CalendarDay(Timestamp.now().dayInUTC)
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
