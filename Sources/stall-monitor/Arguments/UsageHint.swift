import ArgumentParser
import StallReports

/// What was meant by a word that is no command, or by an option that a command does not have.
enum UsageHint {
    /// The mistake if a word stands where a command is expected. Nil otherwise.
    static func unknownCommand(in words: [String]) -> ValidationError? {
        var (command, path): (any ParsableCommand.Type, [String]) = (StallMonitorCommand.self, [])
        for word in words {
            let children = command.configuration.subcommands
            guard !children.isEmpty, !word.hasPrefix("-") else { return nil }
            if let next = children.first(where: { $0._commandName == word }) {
                (command, path) = (next, path + [word])
                continue
            }
            if path.isEmpty, word == "help" { return nil }
            let near = nearestName(to: word, among: children.map { $0._commandName })
            // 'gate DIR' runs the gate's standard command.
            let isArgument = command.configuration.defaultSubcommand != nil && !isMisspelt(word, near)
            return isArgument ? nil : mistake(word, near, path)
        }
        return nil
    }

    /// Whether an argument is rather a misspelt command: nothing has this name, and a command with all its letters has nearly the same. Not
    /// 'r1', a directory that is missing because nothing was reported.
    private static func isMisspelt(_ word: String, _ near: String?) -> Bool {
        guard !word.contains("/"), !OutputFile.exists(word) else { return false }
        return near.map { Set($0).isSuperset(of: word) } ?? (word == "help")
    }

    private static func mistake(_ word: String, _ near: String?, _ path: [String]) -> ValidationError {
        let parent = path.joined(separator: " ")
        let help = "'stall-monitor \(path.isEmpty ? "" : parent + " ")--help' lists them"
        let hint = near.map { "did you mean '\((path + [$0]).joined(separator: " "))'?" } ?? help
        return ValidationError(
            "there is no command '\(CommandFailure((path + [word]).joined(separator: " ")))'; \(hint)"
        )
    }

    /// The parser's message with what is meant by an unknown option. Nil for other messages.
    ///
    /// The parser names the least different option, however different it is.
    ///
    /// - Parameter words: The command line.
    static func unknownOption(_ message: String, in words: [String], of root: CommandDescription) -> String? {
        let parts = message.split(separator: "'", maxSplits: 2)
        guard parts.count > 1, parts[0] == "Unknown option " else { return nil }
        let name = String(parts[1].drop { $0 == "-" })
        let command = root.command(of: words)
        let hint = near(name, command).map { "; did you mean '\($0)'?" } ?? owner(of: name, in: root)
        return "Unknown option '\(parts[1])'\(hint)"
    }

    private static func near(_ name: String, _ command: CommandDescription) -> String? {
        let all = command.allArguments
        if let number = Int(name), all.contains(where: { $0.isGiven(by: "-n") }) { return "-n \(number)" }
        // One letter is near to any short name.
        guard name.count > 1 else { return nil }
        let options = all.flatMap { $0.names ?? [] }.map(\.dashed).filter { $0.hasPrefix("--") }
        if let near = nearestName(to: "--\(name)", among: options) { return near }
        if let option = all.first(where: { $0.allValues?.contains(name) == true }), let key = option.key {
            return "--\(key) \(name)"
        }
        return all.first { $0.kind == "positional" && $0.valueName == name }.map { "<\($0.valueName)>" }
    }

    /// Which commands have the option that this one has not.
    private static func owner(of name: String, in root: CommandDescription) -> String {
        let owners = root.descendants.filter { $0.value.options[name] != nil }.keys.sorted()
        guard let first = owners.first else { return "" }
        return "; '\(first)'\(owners.count > 1 ? " and others have" : " has") it"
    }
}
