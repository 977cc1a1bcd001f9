import ArgumentParser
import Glibc
import StallMonitor
import StallReading
import StallReports
import Symbolication

struct SymbolicateCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "symbolicate",
        abstract: "Adds missing functions, lines and inlined calls to reports.",
        discussion: """
            EXAMPLES
              stall-monitor symbolicate
              stall-monitor symbolicate /var/lib/shop/stalls --symbols ./release-symbols
              stall-monitor symbolicate --print | jq .culprit.function

            Searches the --symbols directories, the executables and libraries named in the report, /usr/lib/debug, and the \
            servers in $DEBUGINFOD_URLS. A file is used only if its build id is the one in the report.

            If a report had no names of own functions, its culprit, cause and fingerprint are determined again; the old \
            fingerprint remains as an alias, which 'gate --allow' accepts too.

            Reports are rewritten completely or not at all; no frame is removed, and a second run changes nothing. Ongoing \
            stalls are left to their process. 'stall-monitor show' does the same for what it shows, without writing.

            Exit code 0: done, even if no name was found. 1: a report could not be read or written. 64: wrong usage.
            """
    )

    @Argument(
        help: ArgumentHelp("The report directory, or one report in it.", valueName: "dir|report"),
        completion: .directory
    )
    var path: String?

    @OptionGroup var symbolFiles: SymbolFilesOption

    @Flag(
        name: .customLong("print"),
        help: "Print the reports as JSON instead of rewriting their files."
    )
    var prints = false

    func validate() throws {
        try path.map(ReportsArgument.check)
        try ReportsArgument.refuseAddresses(path.map { [$0] } ?? [])
    }

    func run() throws {
        let place = ReportPlace(path ?? ReportDirectory.defaultPath)
        let search = try symbolFiles.search(server: DebugInfoServer())
        let naming = ReportNaming(symbolicator: Symbolicator(search: search))
        var work = SymbolicationWork(
            directory: ReportDirectory(path: place.directory),
            naming: naming,
            isOfOne: place.only != nil
        )
        let ids = try place.ids()
        if ids.isEmpty { Output.note(place.emptiness) }
        for id in ids { try prints ? work.write(id) : work.amend(id) }
        work.noteProblems()
        if work.hasFailed { throw ExitCode.failure }
    }
}

/// A report directory, or one report of it.
struct ReportPlace: Hashable {
    let directory: String
    let only: ULID?

    init(_ path: String) {
        let name = fileName(ofPath: path)
        if let file = ReportFileName(name), file.content == .stall {
            let folder = String(path.dropLast(name.count))
            (directory, only) = (folder.isEmpty ? "." : folder, file.id)
        } else {
            (directory, only) = (path, nil)
        }
    }

    /// Says that there are no stalls. Other commands also read the directories below, so a list of the same directory may show some.
    var emptiness: String {
        let below = ReportTree(directory).directories.first { $0 != directory }
        guard let below else { return "no stalls" }
        return "no stalls in \(directory) itself; give a report directory below it, such as \(below)"
    }

    func ids() throws(ReportError) -> [ULID] {
        if let only { return [only] }
        return try ReportReader(path: directory).names().filter { $0.content == .stall }.map(\.id)
    }
}

/// Symbolicates reports one by one, and collects problems for the end.
struct SymbolicationWork {
    let directory: ReportDirectory
    let naming: ReportNaming
    /// Whether the user gave one report, which must exist.
    let isOfOne: Bool
    private(set) var hasFailed = false
    private var problems: [SymbolProblem] = []
    private var told: Set<ReportError> = []

    init(directory: ReportDirectory, naming: ReportNaming, isOfOne: Bool) {
        (self.directory, self.naming, self.isOfOne) = (directory, naming, isOfOne)
    }

    mutating func amend(_ id: ULID) throws {
        var found: [SymbolProblem] = []
        var gain = ""
        let outcome: ReportDirectory.AmendmentOutcome
        do throws(ReportError) {
            outcome = try directory.amend(id) { report in
                let findings = naming.findings(for: report)
                found = findings.problems
                gain = NamingGain(from: report, to: findings.amendment.applied(to: report)).description
                return findings.amendment
            }
        } catch {
            return note(error)
        }
        problems += found
        try Output.writeLine("\(ReportFileName(.stall, id)): \(outcome == .written ? gain : outcome.text)")
    }

    mutating func write(_ id: ULID) throws {
        let json: String
        do throws(ReportError) {
            let report = try ReportReader(path: directory.path).report(id)
            let findings = naming.findings(for: report)
            problems += findings.problems
            json = try JSONText.of(findings.amendment.applied(to: report))
        } catch {
            return note(error)
        }
        try Output.write(json + "\n")
    }

    private mutating func note(_ error: ReportError) {
        // The report was deleted meanwhile to make room for a newer one.
        if error.code == .missingFile, !isOfOne { return }
        hasFailed = true
        let error = Self.ofDirectory(error, directory.path)
        if told.insert(error).inserted { Output.note(error) }
    }

    /// A report is written as a draft beside it. What refuses a draft is the directory's: it refuses every other one, too.
    static func ofDirectory(_ error: ReportError, _ path: String) -> ReportError {
        guard let file = error.path, fileName(ofPath: file).hasPrefix(".draft-") else { return error }
        return error.at(path)
    }

    /// Each problem once, however many reports have it.
    func noteProblems() {
        var seen: Set<SymbolProblem> = []
        for problem in problems + naming.unusedFiles where seen.insert(problem).inserted {
            Output.note(problem.description)
        }
    }
}

extension ReportDirectory.AmendmentOutcome {
    fileprivate var text: String {
        switch self {
        case .written: "written"
        case .unchanged: "nothing to add"
        case .ongoing: "the stall is ongoing; left to its process"
        case .overtaken: "changed meanwhile; not rewritten"
        }
    }
}

/// The names that a report gained.
struct NamingGain: CustomStringConvertible {
    let functions: Int
    let lines: Int
    let inlined: Int

    init(from old: StallReport, to new: StallReport) {
        let count = { (report: StallReport, isCounted: (StallReport.Frame) -> Bool) in
            report.stacks.reduce(0) { count, stack in
                count + (stack.frames + (stack.async?.frames ?? [])).count(where: isCounted)
            }
        }
        let gain = { (isCounted: (StallReport.Frame) -> Bool) in count(new, isCounted) - count(old, isCounted) }
        functions = gain { $0.kind != .inlined && $0.function != nil }
        lines = gain { $0.kind != .inlined && $0.line != nil }
        inlined = gain { $0.kind == .inlined }
    }

    var description: String { "added: functions \(functions), lines \(lines), inlined calls \(inlined)" }
}
