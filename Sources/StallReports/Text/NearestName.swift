/// The known name that a misspelt one may stand for: one that begins with it, one of whose parts it is after a dot, or the one that differs
/// in the fewest characters. Nil if none is similar.
package func nearestName(to word: String, among names: some Sequence<String>) -> String? {
    let word = String(word.prefix(64))
    guard !word.isEmpty else { return nil }
    let near = names.map { name in
        (name: name, edits: name.hasPrefix(word) || name.hasSuffix(".\(word)") ? 0 : edits(from: word, to: name))
    }
    return near.min { $0.edits < $1.edits }.flatMap { $0.edits <= max(2, word.count / 5) ? $0.name : nil }
}

/// The number of characters to insert, remove or replace (Levenshtein's distance).
private func edits(from word: String, to name: String) -> Int {
    let letters = Array(name)
    var row = Array(0...letters.count)
    for (index, letter) in word.enumerated() {
        var diagonal = row[0]
        row[0] = index + 1
        for column in letters.indices {
            let replaced = diagonal + (letters[column] == letter ? 0 : 1)
            diagonal = row[column + 1]
            row[column + 1] = min(replaced, diagonal + 1, row[column] + 1)
        }
    }
    return row[letters.count]
}
