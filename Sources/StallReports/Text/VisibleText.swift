/// `1 stall`, `2 stalls`, `3 processes`.
package func quantity(_ number: some BinaryInteger, _ noun: String) -> String {
    "\(number) \(noun)\(number == 1 ? "" : noun.hasSuffix("s") ? "es" : "s")"
}

/// A string from a report in a form that is safe to show: it moves no cursor, reverses no text, hides nothing.
///
/// Names and metadata come from the stalled process, and from anyone who could write into the report directory. What a terminal
/// would interpret or not show (control, format and bidirectional characters, line breaks, unusual blanks, private and
/// unassigned code points, long series of accents) is shown as `\u{1B}`.
public enum VisibleText {
    /// The text made visible, and cut to `limit` Unicode scalars, of which the last is then "…". Applied to its own result, it changes nothing.
    public static func of(_ text: String, limit: Int = 500) -> String {
        // The fast path. Nearly all texts are like this, and there are many.
        if text.utf8.count <= limit, text.utf8.allSatisfy({ (0x20...0x7e).contains($0) }) { return text }
        var visible = ""
        var count = 0
        var marks = 0
        for scalar in text.unicodeScalars {
            marks = scalar.isMark ? marks + 1 : 0
            if marks <= 2 && isPlain(scalar) {
                visible.unicodeScalars.append(scalar)
                count += 1
            } else {
                let code = "\\u{\(String(scalar.value, radix: 16, uppercase: true))}"
                visible += code
                count += code.utf8.count
            }
            if count > limit { return String(visible.unicodeScalars.prefix(max(0, limit - 1))) + "…" }
        }
        return visible
    }

    private static func isPlain(_ scalar: Unicode.Scalar) -> Bool {
        if scalar.isASCII { return (0x20...0x7e).contains(scalar.value) }
        if scalar.properties.isDefaultIgnorableCodePoint { return false }
        switch scalar.properties.generalCategory {
        case .control, .format, .surrogate, .privateUse, .unassigned: return false
        case .lineSeparator, .paragraphSeparator, .spaceSeparator: return false
        default: return true
        }
    }
}
