import ArgumentParser
import Foundation
import Glibc
import StallReports
import Yams

/// The user's defaults for options, from a YAML file; `config/stall-monitor-command.yaml` is an example. The command line has precedence.
struct CommandDefaults {
    /// The command line with the defaults inserted.
    private(set) var arguments: [String]
    /// What was inserted, and from which file, for messages that explain where an option comes from.
    private(set) var added: [String] = []
    private(set) var file: String?

    static let variable = "STALL_MONITOR_CONFIG"

    /// Keys that are not names of subcommands.
    private static let (reports, all) = ("reports", "all")
    /// The subcommand that runs if none is named.
    private static let standard = ["gate": "gate judge"]

    /// - Parameter arguments: The command line without the program's name.
    /// - Throws: What is wrong with the file.
    init(_ arguments: [String], of command: CommandDescription, file: String) throws(CommandFailure) {
        (self.arguments, self.file) = (arguments, file)
        guard OutputFile.exists(file) else {
            throw CommandFailure("there is no file \(file); check $\(Self.variable)")
        }
        let commands = command.descendants
        let known = [Self.reports, Self.all] + commands.keys.sorted()
        let sections = try YAMLEntry(file: file).keys(known) { key in
            let isOption = commands.values.contains { $0.options[key] != nil }
            return isOption ? "options stand below '\(Self.all)' or a subcommand's name" : nil
        }
        if let reports = try sections[Self.reports]?.text() {
            // The environment has precedence over the file.
            unsafe setenv(ReportDirectory.environmentVariable, Self.expanded(reports), 0)
        }
        let depth = command.depth(of: arguments)
        let name = arguments.prefix(depth).joined(separator: " ")
        let current = Self.standard[name] ?? name
        let defaults = try Self.defaults(of: current, sections, commands)
        guard let options = commands[current]?.options else { return }
        let given = arguments.prefix { $0 != "--" }
        added = defaults.sorted { $0.key < $1.key }.flatMap { key, words in
            guard let option = options[key], !given.contains(where: option.isGiven) else { return [String]() }
            return words
        }
        self.arguments.insert(contentsOf: added, at: depth)
    }

    /// The defaults for one subcommand. All sections are checked, so that a mistake is reported at once and not when its subcommand is
    /// first used.
    private static func defaults(
        of current: String,
        _ sections: [String: YAMLEntry],
        _ commands: [String: CommandDescription]
    ) throws(CommandFailure) -> [String: [String]] {
        var defaults = try shared(sections[all], commands)
        for (name, section) in sections.sorted(by: { $0.key < $1.key }) {
            // The section of 'gate' is that of 'gate judge'.
            let name = standard[name] ?? name
            guard let options = commands[name]?.options else { continue }
            let own = try words(section, options)
            if name == current { defaults.merge(own) { $1 } }
        }
        return defaults
    }

    /// Defaults for every command that has the option.
    private static func shared(
        _ section: YAMLEntry?,
        _ commands: [String: CommandDescription]
    ) throws(CommandFailure) -> [String: [String]] {
        guard let section else { return [:] }
        var options: [String: CommandDescription.Argument] = [:]
        for command in commands.values { options.merge(command.options) { first, _ in first } }
        return try words(section, options)
    }

    /// The options of a section, each as command-line words.
    private static func words(
        _ section: YAMLEntry,
        _ options: [String: CommandDescription.Argument]
    ) throws(CommandFailure) -> [String: [String]] {
        var words: [String: [String]] = [:]
        for (key, value) in try section.keys(options.keys.sorted()) {
            guard let option = options[key] else { continue }
            if option.kind == "flag" {
                let isOn = try value.choice(of: ["true", "false"]) == "true"
                // A flag that is on by default is switched off by its own opposite.
                let word = isOn ? key : "no-\(key)"
                words[key] = isOn || options[word] != nil ? ["--\(word)"] : []
            } else {
                let values = option.isRepeating && value.node.sequence != nil ? try value.list() : [value]
                for value in values { words[key, default: []] += ["--\(key)", try Self.text(value, of: option)] }
            }
        }
        return words
    }

    private static func text(_ value: YAMLEntry, of option: CommandDescription.Argument) throws(CommandFailure)
        -> String
    {
        guard let choices = option.allValues, !choices.isEmpty else { return try value.text() }
        return try value.choice(of: choices)
    }

    private static func expanded(_ path: String) -> String {
        guard path.hasPrefix("~/"), let home = EnvironmentVariable.value("HOME") else { return path }
        return home + path.dropFirst()
    }

    /// The file named by $STALL_MONITOR_CONFIG, or else the user's own if it exists. An empty variable means no file.
    static var path: String? {
        if let named = unsafe getenv(variable) {
            let path = unsafe String(cString: named)
            return path.isEmpty ? nil : path
        }
        let folder =
            EnvironmentVariable.value("XDG_CONFIG_HOME")
            ?? EnvironmentVariable.value("HOME").map { "\($0)/.config" }
        let path = folder.map { "\($0)/stall-monitor/config.yaml" }
        return path.flatMap { OutputFile.exists($0) ? $0 : nil }
    }
}

/// The parser's description of the command: subcommands and their options.
struct CommandDescription: Decodable {
    let commandName: String
    /// Runs if no subcommand is named.
    private let defaultSubcommand: String?
    private let arguments: [Argument]?
    private let subcommands: [CommandDescription]?

    struct Argument: Decodable {
        let kind: String
        let names: [Name]?
        let valueName: String
        let isRepeating: Bool
        let allValues: [String]?

        struct Name: Decodable {
            let kind: String
            let name: String

            /// As written on a command line.
            var dashed: String { (kind == "long" ? "--" : "-") + name }
        }

        /// The long name. Nil for positional arguments, `--help`, `--version`, and `--from`: its directories are read besides those that are
        /// given as arguments.
        var key: String? {
            guard let name = names?.first(where: { $0.kind == "long" })?.name else { return nil }
            return kind == "positional" || ["help", "version", "from"].contains(name) ? nil : name
        }

        /// Whether a command-line word is this option, with or without `=value`.
        func isGiven(by word: String) -> Bool {
            (names ?? []).contains { name in
                word == name.dashed || name.kind == "long" && word.hasPrefix(name.dashed + "=")
            }
        }
    }

    static func read(of command: any ParsableCommand.Type) throws(CommandFailure) -> CommandDescription {
        struct Tool: Decodable { let command: CommandDescription }
        do {
            return try JSONDecoder().decode(Tool.self, from: Data(command._dumpHelp().utf8)).command
        } catch {
            throw CommandFailure("the command's description cannot be read: \(error)")
        }
    }

    /// The options that may have a default in a file, by their long names.
    var options: [String: Argument] {
        Dictionary((arguments ?? []).compactMap { argument in argument.key.map { ($0, argument) } }) { first, _ in first
        }
    }

    /// All subcommands at any depth, by their full names: `list`, `gate run`.
    var descendants: [String: CommandDescription] {
        var found: [String: CommandDescription] = [:]
        for command in subcommands ?? [] where command.commandName != "help" {
            found[command.commandName] = command
            for (name, child) in command.descendants { found["\(command.commandName) \(name)"] = child }
        }
        return found
    }

    /// With those that have no default in a file.
    var allArguments: [Argument] { arguments ?? [] }

    /// The command that a command line runs.
    func command(of words: [String]) -> CommandDescription {
        let name = words.first ?? defaultSubcommand
        guard let next = subcommands?.first(where: { $0.commandName == name }) else {
            return words.isEmpty || defaultSubcommand == nil ? self : command(of: [])
        }
        return next.command(of: Array(words.dropFirst()))
    }

    /// How many leading words of a command line name a subcommand.
    func depth(of words: some Collection<String>) -> Int {
        guard let word = words.first, let command = subcommands?.first(where: { $0.commandName == word }) else {
            return 0
        }
        return 1 + command.depth(of: words.dropFirst())
    }
}
