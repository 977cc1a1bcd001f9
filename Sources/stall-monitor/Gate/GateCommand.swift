import ArgumentParser
import Glibc
import StallGate
import StallReports

struct GateCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "gate",
        abstract: "Judges the stalls of a run by a budget and by what was before, for CI.",
        discussion: """
            Without a subcommand it judges a report directory: see 'stall-monitor gate judge --help'.

            EXAMPLES
              stall-monitor gate ./stall-reports --max-stalls 0
              stall-monitor gate run --repeat 5 -- ./load-test.sh
              stall-monitor gate baseline record ./stall-reports

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

            Exit code 0: within budget, and no worse than the baseline. 1: cannot judge, because the directory is missing, a report cannot be \
            read or is missing, no monitor watched, the budget or the baseline cannot be read, or a stall is still under way that may yet \
            last too long. 2: over budget, or worse than the baseline. 3: inconclusive: too little was watched, a limit is passed in few \
            runs only, or the machine gave the run no processor. 64: wrong usage. Without any budget and baseline, no stall is permitted.

            A process that was killed or crashed is judged by what it left, up to its last moment, with the same exit codes, and a line says \
            so. If its live record (live-*.bin) is not in the directory, nobody knows of its end: exit code 1.
            """
    )

    @OptionGroup var reports: ReportsArgument
    @OptionGroup var options: JudgeOptions
    @OptionGroup(title: "Choosing") var selection: Selection

    @Option(
        help: ArgumentHelp(
            "In place of a baseline: other stalls of the same directories, chosen by \(StallSet.keys), as in release=1.4.",
            valueName: "choice"
        )
    )
    var against: String?

    func validate() throws {
        if let against {
            if options.baseline != nil { throw ValidationError("give '--baseline' or '--against', one at a time") }
            do throws(CommandFailure) {
                guard case .choice = try StallSet(against) else {
                    throw CommandFailure("'\(against)' is no choice of stalls; a directory is given by --baseline")
                }
            } catch { throw ValidationError(error.description) }
        }
        if options.tighten, !selection.stalls.isEverything {
            throw ValidationError("--tighten takes a whole run: what a choice leaves out would count as gone")
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
        let result =
            switch overview {
            case .success(let whole):
                // What cannot be read is a doubt of the run itself, and told there.
                try options.judge(
                    [whole.chosen(by: selection.stalls)],
                    outOf: whole,
                    choosing: whole.doubts(of: selection.stalls) + (other.map { whole.doubts(of: $0.selection) } ?? []),
                    against: other?.baseline(of: whole, named: against ?? "")
                )
            // A verdict, and told as one.
            case .failure: Gate.judge(overview, by: try options.budget.read())
            }
        try Output.write(options.text(of: result, width: Terminal.current().width))
        if result.exitCode != .success { throw result.exitCode }
    }
}

/// Files for other readers, any number of them at once.
struct GateOutputs: ParsableArguments {
    @Option(help: ArgumentHelp("Also JUnit's XML, into a file.", valueName: "file"), completion: .file())
    var junit: String?

    @Option(help: ArgumentHelp("Also SARIF 2.1.0, for code scanning.", valueName: "file"), completion: .file())
    var sarif: String?

    @Option(help: ArgumentHelp("Also a summary in Markdown.", valueName: "file"), completion: .file())
    var markdown: String?

    @Option(help: ArgumentHelp("Also a page in one file.", valueName: "file"), completion: .file())
    var html: String?

    @Flag(help: "Also GitHub's annotations, on standard error, and its job summary, into $GITHUB_STEP_SUMMARY.")
    var github = false

    @Option(
        help: ArgumentHelp(
            "The folder that source files are told relative to. Without it $GITHUB_WORKSPACE, $CI_PROJECT_DIR, or the working directory.",
            valueName: "dir"
        ),
        completion: .directory
    )
    var sourceRoot: String?

    func validate() throws {
        if [junit, sarif, markdown, html, sourceRoot].contains("") { throw ValidationError("a file's name is empty") }
    }

    func write(_ result: GateResult) throws(CommandFailure) {
        let root = root
        if let junit { try OutputFile.write(result.junit(), to: junit) }
        if let sarif {
            let bytes = try CommandFailure.wrapping { () throws(ReportError) in
                try result.sarif(sourceRoot: root, version: StallMonitorCommand.configuration.version)
            }
            try OutputFile.write(String(decoding: bytes, as: UTF8.self), to: sarif)
        }
        if let markdown { try OutputFile.write(result.markdown(sourceRoot: root), to: markdown) }
        if let html { try OutputFile.write(result.html(sourceRoot: root), to: html) }
        guard github else { return }
        Output.error(result.gitHubAnnotations(sourceRoot: root))
        if let summary = EnvironmentVariable.value("GITHUB_STEP_SUMMARY") {
            try OutputFile.append(result.markdown(sourceRoot: root), to: summary)
        }
    }

    private var root: String {
        let given =
            sourceRoot ?? EnvironmentVariable.value("GITHUB_WORKSPACE") ?? EnvironmentVariable.value("CI_PROJECT_DIR")
            ?? "."
        guard let path = unsafe realpath(given, nil) else { return given }
        defer { unsafe free(path) }
        return unsafe String(cString: path)
    }
}
