import ArgumentParser
import StallGate
import StallReports

struct GateCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "gate",
        abstract: "Judges the stalls of a test run by a budget, for CI.",
        discussion: """
            EXAMPLES
              stall-monitor gate ./stall-reports --max-stalls 0
              stall-monitor gate --max-stalls 2 --max-duration 500ms --allow 3fa0c1
              stall-monitor gate ./stall-reports --budget stall-budget.yaml
              stall-monitor gate ./stall-reports --format junit > stalls.xml

            Exit code 0: within budget. 2: over budget. 1: cannot judge, because the directory is missing, a report cannot be \
            read or is missing, no monitor watched, or a stall is still under way that may yet last too long. 64: wrong usage. Without any \
            budget, no stall is permitted.

            A process that was killed or crashed is judged by what it left, up to its last moment, with the same exit codes, and a line says \
            so. If its live record (live-*.bin) is not in the directory, nobody knows of its end: exit code 1.
            """
    )

    enum Format: String, ExpressibleByArgument, CaseIterable {
        case text, json, junit
    }

    @OptionGroup var reports: ReportsArgument

    @OptionGroup var budget: BudgetOptions

    @Option(help: "For people, for programs, or for CI servers.")
    var format: Format = .text

    func run() throws {
        let result = Gate.judge(
            Result { () throws(ReportError) in try ReportReader(path: reports.path).overview() },
            by: try budget.read()
        )
        switch format {
        case .text: try Output.write(result.text)
        case .json: try Output.write(JSONText.escaped(String(decoding: result.json(), as: UTF8.self)))
        case .junit: try Output.write(result.junit())
        }
        switch result.verdict {
        case .within: return
        case .over: throw ExitCode(2)
        case .cannotJudge: throw ExitCode(1)
        }
    }
}
