import ArgumentParser
import Glibc
import StallReports

/// The root command. Its subcommands do the work.
@main
struct StallMonitorCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "stall-monitor",
        abstract: "Shows and judges what a stall monitor reported.",
        discussion: """
            A monitored process writes its reports into a directory. Subcommands that read them use the directories given, or \
            else $STALL_MONITOR_DIRECTORY, or else ./stall-reports. Most also read a collector, given by its address, with the \
            token in $STALL_MONITOR_TOKEN or in the file that $STALL_MONITOR_TOKEN_FILE names. 'sample' needs no reports; 'watch' \
            writes reports about processes that have no monitor. Old reports need no cleaning up: a monitor removes the oldest \
            files in its directory above 1,000 reports, 100 runs or 256 MiB, or above the 'limits' in its configuration.

            Data goes to standard output, everything else to standard error. Colours are used on terminals only, and not if \
            $NO_COLOR is set. Times are local ($TZ), or UTC with --utc; in JSON always UTC.

            Defaults for options are read from ~/.config/stall-monitor/config.yaml, or from the file named by \
            $STALL_MONITOR_CONFIG; the command line has precedence.

            'stall-monitor --generate-completion-script bash' (or zsh, fish) prints a completion for the shell.

            EXIT CODES
              0   done; gate: within budget, and no worse than the baseline
              1   could not do it, or not all of it; gate: cannot judge; doctor: a problem
              2   gate: over budget, or worse than the baseline
              3   gate: inconclusive
              64  wrong usage
              129 its terminal has gone (SIGHUP)
              130 ended by Ctrl-C
              131 ended by Ctrl-\\
              141 the reader of its output has gone, as in '| head'
              143 ended by SIGTERM, after which watch and ship exit with 0
              watch -- COMMAND exits with the command's status, and so does gate run
              if the command fails (with 1 instead of 3)
            """,
        version: "0.1.0",
        subcommands: [
            TailCommand.self, ListCommand.self, FaultsCommand.self, RunsCommand.self, DiffCommand.self, TopCommand.self,
            ShowCommand.self, DoctorCommand.self, SymbolicateCommand.self, GateCommand.self, ExportCommand.self,
            SampleCommand.self, WatchCommand.self, ShipCommand.self,
        ]
    )
    static func main() async {
        Output.reserveStandardStreams()
        SignalSources.endOnQuit()
        let given = Array(CommandLine.arguments.dropFirst())
        if CompletedCommand.isAsked(by: given) { return CompletedCommand.main(given) }
        do {
            try RawArguments.check()
            let defaults = try defaults(of: given)
            var command = try parse(given, defaults)
            if var command = command as? any AsyncParsableCommand {
                try await command.run()
            } else {
                try command.run()
            }
        } catch let error as ReportError {
            exit(withError: CommandFailure(error))
        } catch {
            exit(withError: error)
        }
    }

    /// Nil without a file, and if help is asked for: whoever has to mend the file needs it.
    private static func defaults(of arguments: [String]) throws -> CommandDefaults? {
        guard !asksForHelp(arguments), let file = CommandDefaults.path else { return nil }
        do throws(CommandFailure) {
            return try CommandDefaults(arguments, of: CommandDescription.read(of: Self.self), file: file)
        } catch {
            throw ValidationError(error.description)
        }
    }

    private static func asksForHelp(_ words: [String]) -> Bool {
        let own = words.prefix { $0 != "--" }
        return own.first == "help" || own.contains { ["-h", "--help", "--help-hidden", "--version"].contains($0) }
    }

    private static func parse(_ given: [String], _ defaults: CommandDefaults?) throws -> any ParsableCommand {
        if let mistake = UsageHint.unknownCommand(in: given) { throw mistake }
        do {
            return try parseAsRoot(defaults?.arguments ?? given)
        } catch {
            guard exitCode(for: error) == .validationFailure else { throw error }
            if let defaults, let file = defaults.file, !defaults.added.isEmpty {
                Output.note("\(file) adds to the command line: \(defaults.added.joined(separator: " "))")
            }
            let message = message(for: error)
            let description = try CommandDescription.read(of: Self.self)
            let hint =
                UsageHint.unknownOption(message, in: given, of: description)
                ?? UsageHint.unknownOption(behind: message, in: given, of: description)
            // The parser repeats arguments as they are, and a script may pass on whatever it was given.
            let better = (hint ?? message).split(separator: "\n", omittingEmptySubsequences: false)
                .map { VisibleText.of(String($0), limit: 2000) }.joined(separator: "\n")
            guard better != message else { throw error }
            let full = fullMessage(for: error)
            if hint == nil {
                Output.error(full.replacing(message, with: better, maxReplacements: 1) + "\n")
            } else {
                // Between the message and this the parser describes what it missed.
                let usage = full.firstRange(of: "\nUsage:").map { full[$0.lowerBound...] } ?? ""
                Output.error("Error: \(better)\(usage)\n")
            }
            throw ExitCode.validationFailure
        }
    }
}

/// The commands as shells complete them. `gate` has the options of its default subcommand, too, because the parser's scripts offer these only
/// after its name. It does not have the directories: a command with any number of them is offered no subcommands.
struct CompletedCommand: ParsableCommand {
    static let configuration = {
        var configuration = StallMonitorCommand.configuration
        configuration.subcommands = configuration.subcommands.map { $0 == GateCommand.self ? Gate.self : $0 }
        return configuration
    }()

    /// Whether a shell asks for its script, or for names.
    static func isAsked(by arguments: [String]) -> Bool {
        ["---completion", "--generate-completion-script"].contains { arguments.first?.hasPrefix($0) == true }
    }

    private struct Gate: ParsableCommand {
        static let configuration = {
            var configuration = GateCommand.configuration
            configuration.defaultSubcommand = nil
            return configuration
        }()

        @Option(completion: .directory) var from: [String] = []
        @OptionGroup var index: IndexOption
        @OptionGroup var options: JudgeOptions
        @OptionGroup var selection: Selection
        @Option var against: String?
    }
}

/// The bytes of this process's arguments. Names of files need not be UTF-8, and Swift's strings would change them.
enum RawArguments {
    /// The last arguments: a command that the user gave after '--'.
    static func last(_ count: Int) -> [[UInt8]] { Array(all.suffix(count)) }

    private static var all: [[UInt8]] {
        (0..<Int(CommandLine.argc)).map { index in
            guard let argument = unsafe CommandLine.unsafeArgv[index] else { return [] }
            return unsafe [UInt8](UnsafeRawBufferPointer(start: argument, count: strlen(argument)))
        }
    }

    /// Refuses arguments of this command that are not UTF-8: it would read or write another file than the one that was meant.
    static func check() throws(ValidationError) {
        let own = all.prefix { $0 != Array("--".utf8) }
        var texts = own.map { (name: "the argument", bytes: $0) }
        if let value = unsafe getenv(ReportDirectory.environmentVariable) {
            let bytes = unsafe [UInt8](UnsafeRawBufferPointer(start: value, count: strlen(value)))
            texts.append(("the value of $\(ReportDirectory.environmentVariable)", bytes))
        }
        for text in texts where String(validating: text.bytes, as: UTF8.self) == nil {
            let shown = CommandFailure(String(decoding: text.bytes, as: UTF8.self))
            throw ValidationError("\(text.name) '\(shown)' is not UTF-8; give a link to that file or directory (ln -s)")
        }
    }
}
