public import ArgumentParser
import Glibc
public import StallGate
import StallIndex
import StallReading
public import StallReports
import StallShipping
import Symbolication

/// Where readers find reports: directories, or for most commands a collector.
struct ReportsArgument: ParsableArguments {
    @Argument(
        help: ArgumentHelp(
            "Report directories, or directories that contain some at any depth. list, faults, runs, show, export and gate also take a collector's address.",
            valueName: "dir"
        ),
        completion: .directory
    )
    var directories: [String] = []

    @Option(help: ArgumentHelp("The same as <dir>.", valueName: "dir"), completion: .directory)
    var from: [String] = []

    @OptionGroup var index: IndexOption

    func validate() throws {
        index.use()
        try given.forEach(Self.check)
    }

    /// In both forms.
    var given: [String] { directories + from }

    /// The collector's address, if that is the only argument.
    var onlyAddress: String? {
        given.count == 1 && CollectorCopy.isAddress(given[0]) ? given[0] : nil
    }

    /// Refuses collectors, for commands that follow or change files.
    func refuseAddresses() throws { try Self.refuseAddresses(given) }

    static func refuseAddresses(_ paths: [String]) throws {
        if let address = paths.first(where: CollectorCopy.isAddress) {
            throw ValidationError("'\(address)' is a collector's address: this command takes directories only")
        }
    }

    /// Refuses an empty name, which usually comes from an unset shell variable, and what is meant as an address but is none.
    static func check(_ path: String) throws {
        if path.isEmpty { throw ValidationError("the report directory's name is empty") }
        let isMeant = path.contains("://") || isHostAndPort(path)
        guard CollectorCopy.isAddress(path) || isMeant && !OutputFile.exists(path) else { return }
        do throws(ShippingError) {
            try HTTPAddress.check(path, of: .collector)
        } catch { throw ValidationError("\(CommandFailure(error.description))") }
    }

    /// `localhost:4319`
    private static func isHostAndPort(_ path: String) -> Bool {
        let parts = path.split(separator: ":", omittingEmptySubsequences: false)
        return parts.count == 2 && !path.contains("/") && UInt16(parts[1]) != nil
    }

    /// The given directories, or the default one.
    var paths: [String] { given.isEmpty ? [ReportDirectory.defaultPath] : given }

    /// The report directories found at these paths now.
    var sources: ReportSources { ReportSources(paths) }

    /// The same, with the chosen stalls fetched from collectors.
    func sources(covering selections: StallSelection...) throws -> ReportSources {
        try ReportSources(paths, covering: selections)
    }
}

/// Whether large directories are read through an index.
struct IndexOption: ParsableArguments {
    @Flag(
        inversion: .prefixedNo,
        help:
            "Read each report once, and keep what lists need of it in $XDG_CACHE_HOME. (default: from 2000 reports on)"
    )
    var index: Bool?

    /// Call it before anything is read.
    func use() {
        if let index { ReportIndexes.use(index ? .always : .never) }
    }
}

/// Where a command writes a document in another tool's format.
struct OutputOption: ParsableArguments {
    @Option(
        name: .shortAndLong,
        help: ArgumentHelp(
            "Write to this file, which is replaced at the end. (default: standard output, as with '-')",
            valueName: "file"
        ),
        completion: .file()
    )
    var output: String?

    /// Nil for standard output.
    var file: String? { output == "-" ? nil : output }

    func validate() throws {
        if output?.isEmpty == true { throw ValidationError("the output's name is empty") }
    }

    /// For binary formats.
    func refuseTerminal(for format: String) throws {
        guard file == nil, isatty(STDOUT_FILENO) == 1 else { return }
        throw ValidationError("\(format) is binary: give --output FILE, or pipe it to a program")
    }
}

extension ColourChoice: ExpressibleByArgument {}

/// How text is shown.
struct ColourOption: ParsableArguments {
    @Option(
        name: .customLong("color"),
        help: ArgumentHelp("When to use colours. auto: on a terminal, unless $NO_COLOR is set.", valueName: "when")
    )
    var choice: ColourChoice = .auto

    func terminal() -> Terminal { .current(colours: choice) }
}

/// How pages and lists are shown.
struct ScreenOptions: ParsableArguments {
    @OptionGroup var colour: ColourOption

    @Flag(help: "Do not show long output in $PAGER.")
    var noPager = false

    func terminal() -> Terminal { colour.terminal() }

    /// Uses a pager if the text is longer than the screen.
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

    func validate() throws {
        if symbols.contains("") { throw ValidationError("the name of the symbols' directory is empty") }
    }

    /// - Throws: if a path does not exist. Otherwise a mistyped path would look like missing symbols.
    func search(server: DebugInfoServer?) throws(CommandFailure) -> SymbolSearch {
        for place in symbols where unsafe access(place, R_OK) != 0 {
            throw CommandFailure("--symbols \(place): \(errorText(errno))")
        }
        return SymbolSearch(directories: symbols, server: server)
    }
}

/// How a process that is watched from outside is judged.
struct MainLoopOption: ParsableArguments {
    @Flag(
        help: "The main thread's poll or select is an event loop's, whatever it waits for: for GLib, Qt and others."
    )
    var mainLoop = false
}

/// For scripts and loops that need the result only.
struct QuietOption: ParsableArguments {
    @Flag(
        name: [.customShort("q"), .customLong("quiet")],
        help: "Print results and problems only: no notes, no progress, no costs."
    )
    var isQuiet = false
}

/// For people or for programs.
enum OutputFormat: String, ExpressibleByArgument, CaseIterable {
    case text, json
}

// Report values that options accept.

extension DurationText: ExpressibleByArgument {}

extension FaultOrder: ExpressibleByArgument {}

extension FingerprintPrefix: ExpressibleByArgument {
    /// Accepts what `init(_:)` accepts; nil becomes a usage error.
    public init?(argument: String) { self.init(argument) }
}
