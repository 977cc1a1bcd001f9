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
            // A command follows. If there is none of that name, the parser would print the general help.
            if path.isEmpty, word == "help" { continue }
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
        return mistake(String(parts[1]), name, root.command(of: words), root)
    }

    /// The unknown option of a command line for which the parser has another message. Nil without one.
    ///
    /// The parser asks for what is missing first, and takes an unknown option's value for an argument: of 'export --frmat csv' it says that
    /// '--format' is missing, and of 'watch --report DIR' that DIR is not a process. A word that stands before the option and is quoted in the
    /// message is the first mistake: in 'watch node --inspect' the missing '--'.
    static func unknownOption(behind message: String, in words: [String], of root: CommandDescription) -> String? {
        let command = root.command(of: words)
        let own = words.prefix { $0 != "--" }.dropFirst(root.depth(of: words))
        guard let index = firstUnknown(own, command) else { return nil }
        guard !own[..<index].contains(where: { message.contains("'\($0)'") }) else { return nil }
        let word = own[index].prefix { $0 != "=" }
        return mistake(String(word), String(word.drop { $0 == "-" }), command, root)
    }

    private static func firstUnknown(_ words: ArraySlice<String>, _ command: CommandDescription) -> Int? {
        var index = words.startIndex
        while index < words.endIndex {
            let word = words[index]
            if let option = command.allArguments.first(where: { $0.isGiven(by: word) }) {
                // The next word is its value, whatever it begins with.
                if option.kind == "option", !word.contains("=") { index += 1 }
            } else if word.hasPrefix("--") || word.count == 2 && word.hasPrefix("-") {
                return index
            }
            index += 1
        }
        return nil
    }

    private static func mistake(
        _ word: String,
        _ name: String,
        _ command: CommandDescription,
        _ root: CommandDescription
    ) -> String {
        let hint = near(name, command).map { "; did you mean '\($0)'?" } ?? owner(of: name, in: root)
        return "Unknown option '\(CommandFailure(word))'\(hint)"
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
