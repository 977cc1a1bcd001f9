import StallReports

/// A line for a person, with or without colours.
///
/// The only way for a string into it is through ``VisibleText``, so nothing a report says can command the terminal.
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

    /// With escape sequences, each ended on the spot.
    var coloured: String {
        runs.map { run in run.style.map { "\u{1B}[\($0.rawValue)m\(run.text)\u{1B}[0m" } ?? run.text }.joined()
    }

    static func + (left: StyledText, right: StyledText) -> StyledText {
        var sum = left
        sum.runs += right.runs
        return sum
    }

    /// Blanks added up to `width` columns.
    func padded(to width: Int) -> StyledText {
        self + StyledText(String(repeating: " ", count: max(0, width - self.width)))
    }

    /// Cut to `width` columns, the last then being "…".
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
