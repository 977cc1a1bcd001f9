import ArgumentParser
import StallReports

struct DoctorCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "doctor",
        abstract: "Looks for what keeps a monitor here from seeing or telling everything, with a fix for each.",
        discussion: """
            EXAMPLES
              stall-monitor doctor
              stall-monitor doctor /var/lib/shop/stalls
              stall-monitor doctor --format json | jq '.findings[].fix'

            It looks at the permissions to read other processes, the clock, what the kernel counts, the report directory's mode, \
            disk and files, dead processes' records, the monitor's signal, and whether reports lack stacks, names or source lines. \
            It changes nothing.

            Exit code 0: no problem; notes are none. 1: a problem, or the directory cannot be read. 64: wrong usage.
            """
    )

    @OptionGroup var reports: ReportsArgument
    @OptionGroup var screen: ScreenOptions

    @Option(help: "For people or for programs.")
    var format: OutputFormat = .text

    private struct Document: Encodable {
        let schema = "stall-doctor/1"
        let findings: [Entry]

        struct Entry: Encodable {
            /// Nil for the machine's.
            let directory: String?
            let level: DoctorFinding.Level
            let check: String
            let found: String
            let fix: String?
        }
    }

    func validate() throws { try reports.refuseAddresses() }

    func run() throws {
        let sources = reports.sources
        let paths = sources.paths
        let all = DoctorFacts.current(paths, version: StallMonitorCommand.configuration.version)
        var groups: [(directory: String?, findings: [DoctorFinding])] = all.prefix(1).map {
            (nil, Doctor(facts: $0).machine)
        }
        for (path, facts) in zip(paths, all) { groups.append((path, Doctor(facts: facts).reports)) }
        switch format {
        case .text:
            let terminal = screen.terminal()
            let lines = groups.flatMap { Self.lines($0.directory, $0.findings) }
            try screen.write(lines.flatMap { $0.wrapped(to: terminal.width, hanging: 11) }, on: terminal)
        case .json:
            let entries = groups.flatMap { group in
                group.findings.map {
                    Document.Entry(
                        directory: group.directory,
                        level: $0.level,
                        check: $0.check,
                        found: $0.found,
                        fix: $0.fix
                    )
                }
            }
            let text = String(decoding: try ReportJSON.encode(Document(findings: entries)).dropLast(), as: UTF8.self)
            try Output.write(JSONText.escaped(text) + "\n")
        }
        try ReportSources.report(sources.hidden)
        if groups.contains(where: { $0.findings.contains { $0.level == .problem } }) { throw ExitCode.failure }
    }

    static func lines(_ directory: String?, _ findings: [DoctorFinding]) -> [StyledText] {
        let head: StyledText =
            directory.map { "\(StyledText("Reports in \($0)", .bold))" } ?? "\("This machine", .bold)"
        return [head]
            + findings.flatMap { finding -> [StyledText] in
                let mark: StyledText =
                    switch finding.level {
                    case .ok: StyledText("ok", .green)
                    case .note: StyledText("note", .yellow)
                    case .problem: StyledText("problem", .red)
                    }
                let line: StyledText = "  \(mark.padded(to: 9))\(finding.found)"
                return [line] + (finding.fix.map { ["           \("→", .dim) \($0)"] } ?? [])
            } + [""]
    }
}
