import ArgumentParser
import Foundation

/// What the command says of itself, as the parser tells it: its subcommands, and the options of each.
struct CommandDescription: Decodable {
    let commandName: String
    private let arguments: [Argument]?
    private let subcommands: [CommandDescription]?

    struct Argument: Decodable {
        let kind: String
        let names: [Name]?
        let isRepeating: Bool
        let allValues: [String]?

        struct Name: Decodable {
            let kind: String
            let name: String

            /// As it stands on a command line.
            var dashed: String { (kind == "long" ? "--" : "-") + name }
        }

        /// The long name. Nil for what has none, or asks for something else than the command's work.
        var key: String? {
            let name = names?.first { $0.kind == "long" }?.name
            return kind == "positional" || name == "help" || name == "version" ? nil : name
        }

        /// Whether a word of a command line is the option, with its value behind `=` or without.
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

    /// Subcommands and theirs, by the words that lead to them: `list`, `gate run`.
    var descendants: [String: CommandDescription] {
        var found: [String: CommandDescription] = [:]
        for command in subcommands ?? [] where command.commandName != "help" {
            found[command.commandName] = command
            for (name, child) in command.descendants { found["\(command.commandName) \(name)"] = child }
        }
        return found
    }

    /// How many words of a command line name a subcommand.
    func depth(of words: some Collection<String>) -> Int {
        guard let word = words.first, let command = subcommands?.first(where: { $0.commandName == word }) else {
            return 0
        }
        return 1 + command.depth(of: words.dropFirst())
    }
}
