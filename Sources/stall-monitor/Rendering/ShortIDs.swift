import StallReports

/// Beginnings of identifiers that are enough to tell them apart, all of one length. Reports of one minute share the first six
/// characters or more, those of one millisecond up to 25.
struct ShortIDs {
    /// At least 8, at most 26.
    let length: Int

    init(_ ids: some Sequence<ULID>) {
        let sorted = ids.map(\.rawValue).sorted()
        let shared = zip(sorted, sorted.dropFirst()).map { $0 == $1 ? 0 : Self.sharedCharacters($0, $1) }
        length = max(8, (shared.max() ?? 0) + 1)
    }

    /// The first character stands for three bits, each of the other 25 for five.
    private static func sharedCharacters(_ left: UInt128, _ right: UInt128) -> Int {
        ((left ^ right).leadingZeroBitCount + 2) / 5
    }

    func short(_ id: ULID) -> String { String(id.description.prefix(length)) }
}

/// Beginnings of fingerprints that are enough to tell them apart, without their version, as git shortens commits.
struct ShortFingerprints {
    /// From 8 to 16.
    let length: Int

    init(_ fingerprints: some Sequence<Fingerprint>) {
        let sorted = Set(Set(fingerprints).map(Self.digits)).sorted()
        let shared = zip(sorted, sorted.dropFirst()).map { left, right in
            zip(left.utf8, right.utf8).prefix { $0 == $1 }.count
        }
        length = min(16, max(8, (shared.max() ?? 0) + 1))
    }

    /// For one that stands alone: enough among some thousand.
    static func prefix(of fingerprint: Fingerprint) -> String { String(digits(fingerprint).prefix(8)) }

    func short(_ fingerprint: Fingerprint) -> String { String(Self.digits(fingerprint).prefix(length)) }

    private static func digits(_ fingerprint: Fingerprint) -> Substring {
        let text = fingerprint.rawValue
        return text[(text.utf8.lastIndex(of: UInt8(ascii: ":")).map(text.utf8.index(after:)) ?? text.startIndex)...]
    }
}
