public import ArgumentParser
import Glibc
public import StallGate
public import StallReports
import Symbolication

/// Where all readers find reports: directories, and for most of them collectors.
struct ReportsArgument: ParsableArguments {
    @Argument(
        help: ArgumentHelp(
            "Report directories, or directories that hold some, however deep. Or a collector's address, but for commands that follow.",
            valueName: "dir"
        ),
        completion: .directory
    )
    var directories: [String] = []

    func validate() throws { try directories.forEach(Self.refuseEmpty) }

    /// Where reports are asked for of a collector, and nothing else.
    var onlyAddress: String? {
        directories.count == 1 && CollectorCopy.isAddress(directories[0]) ? directories[0] : nil
    }

    /// For commands that follow files.
    func refuseAddresses() throws {
        if let address = directories.first(where: CollectorCopy.isAddress) {
            throw ValidationError("'\(address)' is a collector's address: this command takes directories only")
        }
    }

    /// A name without a letter is a variable that was not set: nothing can ever be there.
    static func refuseEmpty(_ path: String?) throws {
        if path?.isEmpty == true { throw ValidationError("the report directory's name is empty") }
    }

    /// The one rule for where reports are.
    var paths: [String] { directories.isEmpty ? [ReportDirectory.defaultPath] : directories }

    /// The report directories there, looked for now.
    var sources: ReportSources { ReportSources(paths) }

    /// The same, with what collectors have of the stalls asked for.
    func sources(covering selections: StallSelection...) throws -> ReportSources {
        try ReportSources(paths, covering: selections)
    }
}

extension ColourChoice: ExpressibleByArgument {}

/// How text is shown.
struct ColourOption: ParsableArguments {
    @Option(
        name: .customLong("color"),
        help: "Colours: on a terminal only, and not with $NO_COLOR; or always; or never."
    )
    var choice: ColourChoice = .auto

    func terminal() -> Terminal { .current(colours: choice) }
}

/// How pages and lists are shown.
struct ScreenOptions: ParsableArguments {
    @OptionGroup var colour: ColourOption

    @Flag(help: "Write straight to the terminal, without $PAGER.")
    var noPager = false

    func terminal() -> Terminal { colour.terminal() }

    /// Through a pager where the text is longer than the screen.
    func write(_ lines: some Sequence<StyledText>, on terminal: Terminal) throws(CommandFailure) {
        guard !noPager, let height = terminal.height, terminal.movesCursor, let pager = Pager.fromEnvironment(),
            lines.dropFirst(height - 1).contains(where: { _ in true }),
            try pager.show(lines, on: terminal)
        else { return try Output.write(lines, on: terminal) }
    }
}

struct SymbolFilesOption: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "A directory with symbol files or unstripped programs, under any names, or one such file.",
            valueName: "dir"
        ),
        completion: .directory
    )
    var symbols: [String] = []

    /// - Throws: for a place that is not there. Symbols that are silently not found look like a report that has none.
    func search(server: DebugInfoServer?) throws(CommandFailure) -> SymbolSearch {
        for place in symbols where unsafe access(place, R_OK) != 0 {
            throw unsafe CommandFailure("--symbols \(place): \(String(cString: strerror(errno)))")
        }
        return SymbolSearch(directories: symbols, server: server)
    }
}

/// For people or for programs.
enum OutputFormat: String, ExpressibleByArgument, CaseIterable {
    case text, json
}

// Values of the reports' that options take.

extension DurationText: ExpressibleByArgument {}

extension FaultOrder: ExpressibleByArgument {}

extension FingerprintPrefix: ExpressibleByArgument {
    /// Takes what `init(_:)` takes; at nil the command ends with a usage error.
    public init?(argument: String) { self.init(argument) }
}
