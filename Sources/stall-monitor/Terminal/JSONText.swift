import StallReports

/// A document's JSON as it can be sent to a terminal: characters that one would obey or hide are written as JSON's own
/// escapes, so a program reads the same values.
enum JSONText {
    /// One line, without a line feed.
    static func of(_ document: some JSONDocument) throws(ReportError) -> String {
        escaped(String(decoding: try document.json().dropLast(), as: UTF8.self))
    }

    /// In valid JSON such characters stand only inside strings, where an escape means the same.
    static func escaped(_ json: String) -> String {
        var text = ""
        for scalar in json.unicodeScalars {
            if scalar.isASCII && scalar != "\u{7F}" || VisibleText.of(String(scalar)) == String(scalar) {
                text.unicodeScalars.append(scalar)
            } else {
                for unit in String(scalar).utf16 {
                    let digits = String(unit, radix: 16)
                    text += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
                }
            }
        }
        return text
    }
}
