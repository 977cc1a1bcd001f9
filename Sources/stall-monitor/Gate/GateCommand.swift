import ArgumentParser
import StallGate
import StallReading
import StallReports

struct GateCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "gate",
        abstract: "Judges the stalls of a run by a budget and a baseline, for CI.",
        discussion: """
            Without a subcommand it judges a report directory: see 'stall-monitor gate judge --help'.

            EXAMPLES
              stall-monitor gate ./stall-reports --max-stalls 0
              stall-monitor gate run --repeat 5 -- ./load-test.sh
              stall-monitor gate baseline record ./stall-reports

            BUDGET FILE
              budgets:
                - name: the shop's main loop
                  match: {service: shop, label: main}
                  maxStalls: 0
                - name: everything else
                  maxDuration: 500ms

            A budget file is ./stall-budget.yaml, or given by --budget. Each stall is judged by the first budget that matches it. A match may \
            also name a type, verdict and fingerprint. Limits are maxStalls, maxPerHour, maxDuration, maxBlockedPercent, \
            maxTurnP99 and maxTurn; with 'severity: warning' they do not change the exit code, with 'severity: off' nothing is \
            judged. 'allowances' is a list of known faults, each with fingerprint, reason, owner and expires (a day).

            Exit code 0: within budget, and no worse than the baseline. 1: cannot judge. 2: over budget, or worse than the baseline. \
            3: inconclusive. 64: wrong usage.
            """,
        subcommands: [GateJudgeCommand.self, GateRunCommand.self, GateBaselineCommand.self],
        defaultSubcommand: GateJudgeCommand.self
    )
}

/// What `gate DIR` does.
struct GateJudgeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "judge",
        abstract: "Judges a report directory.",
        discussion: """
            EXAMPLES
              stall-monitor gate ./stall-reports --max-stalls 0
              stall-monitor gate --max-stalls 2 --max-duration 500ms --allow 3fa0c1
              stall-monitor gate ./stall-reports --budget stall-budget.yaml
              stall-monitor gate ./stall-reports --baseline stall-baseline.json
              stall-monitor gate --service shop --since 1h --junit stalls.xml
              stall-monitor gate http://stalls:4319 --release 1.5 --against release=1.4

            Exit code 0: within budget, and no worse than the baseline. 1: cannot judge: the directory or a report is missing or \
            unreadable, no monitor watched, the budget or the baseline cannot be read, or an ongoing stall may still become too \
            long. 2: over budget, or worse than the baseline. 3: inconclusive: too little was watched, a limit was exceeded in a \
            minority of the runs only, or the machine starved the run of CPU. 64: wrong usage. Without a budget and a baseline, \
            no stall is permitted.

            A process that was killed or crashed is judged by what it left up to its last moment, with the same exit codes, and \
            a line says so. Without its live record (live-*.bin) its end is unknown: exit code 1.
            """
    )

    @OptionGroup var reports: ReportsArgument
    @OptionGroup var options: JudgeOptions
    @OptionGroup(title: "Choosing") var selection: Selection

    @Option(
        help: ArgumentHelp(
            "Instead of a baseline, compare with other stalls of the same directories, chosen by \(StallSet.keys), as in release=1.4.",
            valueName: "choice"
        )
    )
    var against: String?

    func validate() throws {
        if let against {
            if options.baseline != nil { throw ValidationError("give either '--baseline' or '--against'") }
            do throws(CommandFailure) {
                guard case .choice = try StallSet(against) else {
                    let release = against.contains("/") ? "" : "for the release give release=\(against), "
                    throw CommandFailure(
                        "'\(against)' is not a choice of stalls: \(release)for a directory --baseline \(against)"
                    )
                }
            } catch { throw ValidationError(error.description) }
        }
        if options.tighten, !selection.stalls.isEverything {
            throw ValidationError("--tighten needs a whole run: stalls that a choice leaves out would count as gone")
        }
    }

    func run() throws {
        let other = try against.map { try StallSet($0) }
        let sources = try ReportSources(
            reports.paths,
            covering: [selection.stalls] + (other.map { [$0.selection] } ?? [])
        )
        let overview = Result { () throws(ReportError) in
            try sources.overview()
        }
        let whole = try? overview.get()
        let chosen = whole?.chosen(by: selection.stalls)
        let most = whole?.chosenAtMost(by: selection.stalls)
        let result =
            if let whole, let chosen {
                // The result itself reports unreadable files.
                try options.judge(
                    [chosen],
                    outOf: whole,
                    atMost: most,
                    choosing: whole.doubts(of: selection.stalls) + (other.map { whole.doubts(of: $0.selection) } ?? []),
                    against: other?.baseline(of: whole, named: against ?? "")
                )
            } else {
                // An unreadable directory is a verdict too: cannot judge.
                Gate.judge(overview, by: try options.budget.read())
            }
        let files = options.writeFiles(result, tighteningBy: chosen.map { [$0] })
        try Output.write(options.text(of: result, width: Terminal.current().width))
        if let whole, let chosen { noteChoice(of: whole, chosen, atMost: most, hasRun: !result.runs.isEmpty) }
        try files.get()
        if result.exitCode != .success { throw result.exitCode }
    }

    /// What the verdict alone does not say of the stalls and runs that were chosen.
    private func noteChoice(
        of whole: ReportReader.Overview,
        _ chosen: ReportReader.Overview,
        atMost most: ReportReader.Overview?,
        hasRun: Bool
    ) {
        let (part, all) = (chosen.countedOnly, most?.countedOnly)
        if let all, part != all {
            Output.note(
                "of \(quantity(all, "stall")) that \(all == 1 ? "was" : "were") only counted, \(part) \(part == 1 ? "is" : "are") taken as within the "
                    + "time asked for, as if all had come evenly"
            )
        }
        // Otherwise a mistake in the digits would look like a fault that is gone.
        selection.stalls.unknownFaults(in: whole).forEach(Output.note)
        // The verdict says only that there is no run record.
        guard !hasRun, !whole.runs.isEmpty else { return }
        let unknown = selection.stalls.unknownName(in: whole.runs)
        Output.note(unknown ?? "the choice leaves out every run record; 'stall-monitor runs' lists them")
    }
}

/// Output files in other formats, any number at once.
struct GateOutputs: ParsableArguments {
    @Option(help: ArgumentHelp("Also write JUnit XML.", valueName: "file"), completion: .file())
    var junit: String?

    @Option(help: ArgumentHelp("Also write SARIF 2.1.0, for code scanning.", valueName: "file"), completion: .file())
    var sarif: String?

    @Option(help: ArgumentHelp("Also write a summary in Markdown.", valueName: "file"), completion: .file())
    var markdown: String?

    @Option(help: ArgumentHelp("Also write an HTML page, in one file.", valueName: "file"), completion: .file())
    var html: String?

    @Flag(help: "Also print GitHub annotations on standard error, and append a job summary to $GITHUB_STEP_SUMMARY.")
    var github = false

    @Option(
        help: ArgumentHelp(
            "Name source files relative to this folder. (default: $GITHUB_WORKSPACE, $CI_PROJECT_DIR, or the working directory)",
            valueName: "dir"
        ),
        completion: .directory
    )
    var sourceRoot: String?

    func validate() throws {
        if [junit, sarif, markdown, html, sourceRoot].contains("") { throw ValidationError("a file's name is empty") }
    }

    /// Writes all of them, also if one cannot be written.
    ///
    /// - Throws: The first failure. The others are noted.
    func write(_ result: GateResult) throws {
        let root = root
        let version = StallMonitorCommand.configuration.version
        if github { Output.error(result.gitHubAnnotations(sourceRoot: root)) }
        let written: [Result<Void, any Error>] = [
            Result { if let junit { try OutputFile.write(result.junit(), to: junit) } },
            Result {
                guard let sarif else { return }
                let bytes = try result.sarif(sourceRoot: root, version: version)
                try OutputFile.write(String(decoding: bytes, as: UTF8.self), to: sarif)
            },
            Result { if let markdown { try OutputFile.write(result.markdown(sourceRoot: root), to: markdown) } },
            Result { if let html { try OutputFile.write(result.html(sourceRoot: root), to: html) } },
            Result {
                guard github, let summary = EnvironmentVariable.value("GITHUB_STEP_SUMMARY") else { return }
                try OutputFile.append(result.markdown(sourceRoot: root), to: summary)
            },
        ]
        let failures = written.compactMap { part in if case .failure(let error) = part { error } else { nil } }
        for failure in failures.dropFirst() { Output.note("\(failure)") }
        if let first = failures.first { throw first }
    }

    private var root: String {
        let given =
            sourceRoot ?? EnvironmentVariable.value("GITHUB_WORKSPACE") ?? EnvironmentVariable.value("CI_PROJECT_DIR")
            ?? "."
        return ReportTree.resolved(given)
    }
}
