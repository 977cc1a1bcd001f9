// Swift gives texts that are canonically equivalent the same hash. For that it sorts the marks after a letter, in a time that grows with the
// square of their number: a name of a megabyte would take a minute. A text from a file may be such a name.

extension Unicode.Scalar {
    /// Whether it combines with the character before it, as an accent does.
    var isMark: Bool {
        switch properties.generalCategory {
        case .nonspacingMark, .enclosingMark, .spacingMark: true
        default: false
        }
    }
}

extension String {
    /// How many marks in a row a text from outside keeps. A file's name, of at most 255 bytes, has fewer.
    private static let mostMarks = 128

    /// In bytes: a text of this length has few marks.
    static let longestAsItIs = 2 * mostMarks

    /// Whether its marks are so few that hashing it takes a time that its length explains.
    package var hasFewMarks: Bool {
        // A mark has two bytes or more, and the first of all begins with 0xcc.
        guard utf8.count > Self.longestAsItIs, utf8.contains(where: { $0 >= 0xcc }) else { return true }
        var marks = 0
        return unicodeScalars.allSatisfy { scalar in
            marks = scalar.isMark ? marks + 1 : 0
            return marks <= Self.mostMarks
        }
    }

    /// The text without the marks that are too many.
    var withFewMarks: String {
        if hasFewMarks { return self }
        var (marks, kept) = (0, UnicodeScalarView())
        for scalar in unicodeScalars {
            marks = scalar.isMark ? marks + 1 : 0
            if marks <= Self.mostMarks { kept.append(scalar) }
        }
        return String(kept)
    }
}
