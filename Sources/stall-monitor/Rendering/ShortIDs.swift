import StallReports

/// Beginnings of identifiers that are enough to tell them apart, all of one length. Reports of one minute share the first six
/// characters or more, those of one millisecond up to 25.
struct ShortIDs {
    /// At least 8, at most 26.
    let length: Int

    init(_ ids: some Sequence<ULID>) {
        let sorted = Set(ids).sorted().map { Array($0.description.utf8) }
        let shared = zip(sorted, sorted.dropFirst()).map { left, right in zip(left, right).prefix { $0 == $1 }.count
        }
        length = max(8, (shared.max() ?? 0) + 1)
    }

    func short(_ id: ULID) -> String { String(id.description.prefix(length)) }
}
