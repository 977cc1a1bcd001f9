import StallReports

/// A line for a user, with or without colours.
///
/// Every string passes through ``VisibleText``, so that no text in a report can control the terminal.
struct StyledText: Hashable {
    enum Style: String {
        case bold = "1"
        case dim = "2"
        case red = "31"
        case green = "32"
        case yellow = "33"
        case magenta = "35"
        case cyan = "36"
        case boldRed = "1;31"
        /// Backgrounds, each with a readable foreground.
        case ownBox = "30;43"
        case lightOwnBox = "30;103"
        case libraryBox = "30;47"
        case lightLibraryBox = "37;100"
    }

    private struct Run: Hashable {
        let text: String
        let style: Style?
    }

    private var runs: [Run] = []

    init() {}

    init(_ text: String, _ style: Style? = nil, limit: Int = 500) {
        runs = [Run(text: VisibleText.of(text, limit: limit), style: style)]
    }

    /// Without colours.
    var plain: String { runs.map(\.text).joined() }

    /// Columns on a terminal.
    var width: Int { runs.reduce(0) { $0 + $1.text.terminalWidth } }

    /// With escape sequences, each reset at the end of its run.
    var coloured: String {
        runs.map { run in run.style.map { "\u{1B}[\($0.rawValue)m\(run.text)\u{1B}[0m" } ?? run.text }.joined()
    }

    static func + (left: StyledText, right: StyledText) -> StyledText {
        var sum = left
        sum.runs += right.runs
        return sum
    }

    /// Padded with blanks to `width` columns.
    func padded(to width: Int) -> StyledText {
        self + StyledText(String(repeating: " ", count: max(0, width - self.width)))
    }

    /// Cut to `width` columns, with "…" as the last one.
    func truncated(to width: Int) -> StyledText {
        guard self.width > width else { return self }
        var room = max(0, width - 1)
        var cut = StyledText()
        for run in runs {
            let text = run.text.prefix { character in
                room -= character.terminalWidth
                return room >= 0
            }
            cut = cut + StyledText(String(text), run.style, limit: .max)
            if room < 0 { break }
        }
        return width > 0 ? cut + "…" : cut
    }
}

extension StyledText {
    /// Wrapped at blanks into lines of `width` columns; longer words are broken. Lines after the first are indented by `hanging` columns.
    ///
    /// - Parameter width: nil does not wrap.
    func wrapped(to width: Int?, hanging: Int) -> [StyledText] {
        guard let width, width > 0, self.width > width else { return [self] }
        let indent = StyledText(String(repeating: " ", count: min(hanging, width / 2)))
        var lines: [StyledText] = []
        var line = StyledText()
        var isEmpty = true
        for word in words {
            let isBlank = word.plain == " "
            // All blanks at a break are left out.
            if isBlank, isEmpty, !lines.isEmpty { continue }
            if line.width + word.width > width, !isEmpty {
                lines.append(line)
                (line, isEmpty) = (indent, true)
                if isBlank { continue }
            }
            var rest = word
            while line.width + rest.width > width {
                // A fresh line takes at least one character, even if that is wider than the line.
                let isFresh = line.width <= indent.width
                let (head, tail) = rest.split(at: width - line.width, atLeastOne: isFresh)
                lines.append(line + head)
                (line, rest) = (indent, tail)
            }
            line = line + rest
            // Leading blanks are an indentation, so the line is not broken there.
            if !isBlank { isEmpty = false }
        }
        return lines + [line]
    }

    /// The words, and each blank between them as an element of its own.
    private var words: [StyledText] {
        var words: [StyledText] = []
        var word = StyledText()
        for run in runs {
            for piece in run.text.split(separator: " ", omittingEmptySubsequences: false).enumerated() {
                if piece.offset > 0 {
                    if !word.runs.isEmpty { words.append(word) }
                    words.append(StyledText(" ", run.style))
                    word = StyledText()
                }
                if !piece.element.isEmpty { word.runs.append(Run(text: String(piece.element), style: run.style)) }
            }
        }
        return word.runs.isEmpty ? words : words + [word]
    }

    /// What fits into the first `width` columns, and the rest.
    private func split(at width: Int, atLeastOne: Bool) -> (StyledText, StyledText) {
        var (head, tail) = (StyledText(), StyledText())
        var (room, isForced) = (width, atLeastOne)
        for run in runs {
            let text = run.text.prefix { character in
                let isTaken = character.terminalWidth <= room || isForced
                room = isTaken ? room - character.terminalWidth : 0
                isForced = false
                return isTaken
            }
            if !text.isEmpty { head.runs.append(Run(text: String(text), style: run.style)) }
            if text.count < run.text.count {
                room = 0
                tail.runs.append(Run(text: String(run.text.dropFirst(text.count)), style: run.style))
            }
        }
        return (head, tail)
    }
}

extension StyledText: ExpressibleByStringInterpolation {
    init(stringLiteral value: String) { self.init(value) }

    init(stringInterpolation: Interpolation) { self = stringInterpolation.text }

    struct Interpolation: StringInterpolationProtocol {
        fileprivate var text = StyledText()

        init(literalCapacity: Int, interpolationCount: Int) {}

        mutating func appendLiteral(_ literal: String) { text = text + StyledText(literal) }

        mutating func appendInterpolation(_ part: StyledText) { text = text + part }

        mutating func appendInterpolation(_ value: some CustomStringConvertible, _ style: Style? = nil) {
            text = text + StyledText(value.description, style)
        }
    }
}

extension Character {
    /// Columns the character takes: 2 for East Asian wide ones and emoji (Unicode Standard Annex 11, by its blocks).
    var terminalWidth: Int {
        guard let first = unicodeScalars.first, !first.isASCII else { return 1 }
        switch first.value {
        case 0x1100...0x115F, 0x2E80...0xA4CF, 0xAC00...0xD7A3, 0xF900...0xFAFF, 0xFE30...0xFE6F, 0xFF00...0xFF60,
            0xFFE0...0xFFE6, 0x1F300...0x1FAFF, 0x20000...0x3FFFD:
            return 2
        // Emoji are in other blocks, too: ⚡, ✅.
        default: return first.properties.isEmojiPresentation ? 2 : 1
        }
    }
}

extension [StyledText] {
    /// Each line as ``StyledText/wrapped(to:hanging:)``.
    func wrapped(to width: Int?, hanging: Int) -> [StyledText] { flatMap { $0.wrapped(to: width, hanging: hanging) } }
}

extension String {
    /// Columns of all characters. Every ASCII character here is printable and takes one column.
    var terminalWidth: Int {
        utf8.allSatisfy { $0 < 0x80 } ? utf8.count : reduce(0) { $0 + $1.terminalWidth }
    }
}
