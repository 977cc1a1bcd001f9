import StallGate
import StallReports
import Yams

/// One value of a YAML file (a budget, or the command's defaults), with its position for error messages.
struct YAMLEntry {
    let file: String
    /// The key before the value. Empty at the root.
    let key: String
    let node: Node

    /// A whole file of at most 1 MiB.
    init(file path: String) throws(CommandFailure) {
        let text = String(decoding: try OutputFile.read(path, limit: 1 << 20), as: UTF8.self)
        let root: Node?
        do {
            root = try Yams.compose(yaml: text)
        } catch {
            throw CommandFailure("\(path): not YAML: \(Self.reason("\(error)"))")
        }
        self.init(file: path, key: "", node: root ?? Node([(Node, Node)]()))
    }

    init(file: String, key: String, node: Node) { (self.file, self.key, self.node) = (file, key, node) }

    /// An error with position, key and remedy.
    func mistake(_ text: String) -> CommandFailure {
        let place = node.mark.map { "\(file):\($0.line)" } ?? file
        return CommandFailure("\(place): \(key.isEmpty ? "" : "\(key): ")\(text)")
    }

    /// What the parser says, without its excerpt of the file. If its first line says only what it was reading ("3:4: error: parser: while
    /// parsing a block collection in line 2, column 3"), the next one says what is wrong there, and ends with a colon as the first one does
    /// otherwise.
    private static func reason(_ description: String) -> String {
        let lines = description.split(whereSeparator: \.isNewline)
        let isSplit = lines.count > 1 && lines[0].contains(": error: ") && !lines[0].hasSuffix(":")
        let reason = lines.prefix(isSplit ? 2 : 1).joined(separator: ": ")
        return String(reason.hasSuffix(":") ? reason.dropLast() : reason[...])
    }

    /// The values of a mapping by their keys. Unknown keys are errors.
    ///
    /// - Parameter place: Where an unknown key belongs, if that is known.
    func keys(
        _ known: [String],
        place: (_ key: String) -> String? = { _ in nil }
    ) throws(CommandFailure) -> [String: YAMLEntry] {
        guard let mapping = node.mapping else {
            throw mistake("expected keys and values: \(known.joined(separator: ", "))")
        }
        var entries: [String: YAMLEntry] = [:]
        for (name, value) in mapping {
            let key = name.string ?? ""
            guard known.contains(key) else {
                let keys = known.isEmpty ? "there are none here" : "the keys here are \(known.joined(separator: ", "))"
                let hint = place(key) ?? nearestName(to: key, among: known).map { "did you mean '\($0)'?" }
                throw YAMLEntry(file: file, key: key, node: name).mistake(
                    "unknown key; \(keys)\(hint.map { "; \($0)" } ?? "")"
                )
            }
            entries[key] = YAMLEntry(file: file, key: key, node: value)
        }
        return entries
    }

    func list() throws(CommandFailure) -> [YAMLEntry] {
        guard let sequence = node.sequence else { throw mistake("expected a list, each entry after a '-'") }
        return sequence.map { YAMLEntry(file: file, key: key, node: $0) }
    }

    func text() throws(CommandFailure) -> String {
        guard let text = node.scalar?.string, !text.isEmpty else { throw mistake("expected a text") }
        return text
    }

    func whole() throws(CommandFailure) -> Int {
        let text = try text()
        guard let number = Int(text), number >= 0 else {
            throw mistake("'\(text)' is not a number of stalls; write 0 or more")
        }
        return number
    }

    func number() throws(CommandFailure) -> Double {
        let text = try text()
        guard let number = Double(text), number.isFinite, number >= 0 else {
            throw mistake("'\(text)' is not a number; write 0 or more, like 0.5")
        }
        return number
    }

    func percent() throws(CommandFailure) -> Double {
        let number = try number()
        guard number <= 100 else {
            let text = try text()
            throw mistake("'\(text)' is not a percentage; write 0 to 100")
        }
        return number
    }

    /// In nanoseconds.
    func length() throws(CommandFailure) -> Int64 {
        let text = try text()
        guard let length = DurationText(text) else {
            throw mistake("'\(text)' is not a length of time; write one like 500ms or 1.5s")
        }
        return length.nanoseconds
    }

    func fingerprint() throws(CommandFailure) -> FingerprintPrefix {
        let text = try text()
        guard let fingerprint = FingerprintPrefix(text) else {
            throw mistake(
                "'\(text)' is not a fingerprint; write it as in the report, or at least its first four digits, in quotes"
            )
        }
        return fingerprint
    }

    func day() throws(CommandFailure) -> CalendarDay {
        let text = try text()
        guard let day = CalendarDay(text) else { throw mistake("'\(text)' is not a day; write one like 2027-01-31") }
        return day
    }

    func choice(of choices: [String]) throws(CommandFailure) -> String {
        let text = try text()
        guard choices.contains(text) else {
            throw mistake("'\(text)' is not one of \(choices.joined(separator: ", "))")
        }
        return text
    }
}
