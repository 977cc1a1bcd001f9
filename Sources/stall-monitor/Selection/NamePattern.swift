/// A name, or a pattern with `*` for any characters and `?` for one. Upper and lower case are the same.
struct NamePattern: Hashable {
    private let pattern: [Character]
    /// As it was given, where it is no pattern but a name.
    let exactName: String?

    /// - Parameter isPart: whether a name only has to contain it.
    init(_ text: String, isPart: Bool = false) {
        pattern = Array((isPart ? "*\(text)*" : text).lowercased())
        exactName = isPart || text.contains(where: { "*?".contains($0) }) ? nil : text
    }

    /// In time proportional to both lengths: a star that did not fit is only ever tried again one character further on.
    func matches(_ name: String) -> Bool {
        let name = Array(name.lowercased())
        var (next, position) = (0, 0)
        var star: (next: Int, position: Int)?
        while position < name.count {
            if next < pattern.count, pattern[next] == "*" {
                star = (next, position)
                next += 1
            } else if next < pattern.count, pattern[next] == "?" || pattern[next] == name[position] {
                next += 1
                position += 1
            } else if let last = star {
                star = (last.next, last.position + 1)
                (next, position) = (last.next + 1, last.position + 1)
            } else {
                return false
            }
        }
        return pattern[next...].allSatisfy { $0 == "*" }
    }
}
