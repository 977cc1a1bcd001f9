import StallReading
import StallReports

// Words that lists and pages show, and that options and budget files accept.

extension [(String, StyledText?)] {
    /// The rows of a page that have a value.
    var known: [(String, StyledText)] { compactMap { name, value in value.map { (name, $0) } } }
}

extension StallOutline {
    var styledState: StyledText {
        let style: StyledText.Style? =
            switch state {
            case .ongoing: .yellow
            case .recovered: .green
            case .terminated: .red
            case .abandoned: .yellow
            default: nil
            }
        return StyledText(state.rawValue, style, limit: 40)
    }

    /// `612ms`. A plus is appended while the stall is ongoing, or if its end was not seen.
    var durationText: String {
        DurationText(nanoseconds: durationNs).short + (state == .recovered ? "" : "+")
    }
}

extension StallReport {
    var styledState: StyledText { StallOutline(self).styledState }
    var durationText: String { StallOutline(self).durationText }
    var culpritText: String { StallOutline(self).culpritText }
    var lastKnownMoment: Timestamp { StallOutline(self).lastKnownMoment }
}

extension StallReport.Thread {
    /// `4711 main`
    var numberAndName: String { ["\(id)", plainName].compactMap { $0 }.joined(separator: " ") }
}

extension Verdict {
    var style: StyledText.Style? {
        switch canonical {
        case .deadlock: .red
        case .starved: .magenta
        case .waiting, .diskWait: .cyan
        case .onCPU: .yellow
        default: nil
        }
    }

    /// The verdict as shown to users.
    var styled: StyledText { StyledText(canonical.rawValue, style, limit: 40) }
}

extension Severity {
    var style: StyledText.Style? {
        switch self {
        case .warning: .yellow
        case .error: .red
        case .critical: .boldRed
        default: nil
        }
    }

    var styled: StyledText { StyledText(rawValue, style, limit: 40) }
}

extension StallKind {
    var styled: StyledText { StyledText(rawValue, self == .blocked ? nil : .yellow, limit: 40) }
}

extension StallReport {
    /// Clients that waited for the loop. Nil if there were none, or if that is unknown.
    var victimText: String? {
        guard let victims, victims.clients > 0 else { return nil }
        var parts: [String] = []
        if victims.unread > 0 {
            let bytes = quantity(victims.unreadBytes, "byte")
            parts.append("\(quantity(victims.unread, "connection")) with \(bytes) unread")
        }
        if victims.unaccepted > 0 { parts.append("\(victims.unaccepted) not accepted") }
        return "at least \(quantity(victims.clients, "client")) waited: \(parts.joined(separator: ", "))"
    }

    /// `, 3 more stalls were only counted before it: ×3 since …`; empty if there were none.
    var countedBefore: String {
        guard suppressed > 0 else { return "" }
        let counted = "\(quantity(suppressed, "more stall")) \(suppressed == 1 ? "was" : "were") only counted"
        return ", \(counted)" + (repeats.map { " before it: \($0.whole)" } ?? "")
    }
}

extension RunRecord {
    /// The service; for a watcher from outside, those that it watched.
    var watchedService: String? {
        targets == nil ? service?.name : commonService ?? Self.list(Set(watched.compactMap(\.service)))
    }

    /// The service of all loops of the run, as far as its record names it: older records of watchers from outside name only the programs.
    /// Nil if each loop has a service of its own.
    var commonService: String? {
        guard let targets else { return service?.name }
        guard watched.allSatisfy({ $0.service == nil }) else { return nil }
        // A process that starts another program is in the record again.
        let last = Dictionary(targets.map { ($0.pid, $0.executable) }) { _, later in later }
        return Self.list(Set(last.values.compactMap { $0.map(fileName(ofPath:)) }))
    }

    private static func list(_ names: Set<String>) -> String {
        names.sorted().prefix(2).joined(separator: ", ") + (names.count > 2 ? " and \(names.count - 2) more" : "")
    }
}

/// Unique prefixes of ids, all of the same length. Reports of one minute share at least the first six characters, those of one
/// millisecond up to 25.
struct ShortIDs {
    /// From 8 to 26 characters.
    let length: Int
    /// Ids that begin like another one for too long. Stalls that a process reports at the same moment have such ids.
    private let close: Set<UInt128>

    /// Characters at the end of an elided id.
    private static let ending = 6
    private static let mostShared = 12

    /// - Parameter elides: whether the middle of ids is left out that begin like others for 12 characters and more.
    init(_ ids: some Sequence<ULID>, elides: Bool = false) {
        let sorted = ids.map(\.rawValue).sorted()
        var (longest, close): (Int, Set<UInt128>) = (0, [])
        for (left, right) in zip(sorted, sorted.dropFirst()) where left != right {
            let shared = Self.sharedCharacters(left, right)
            if elides, shared >= Self.mostShared {
                close.formUnion([left, right])
            } else {
                longest = max(longest, shared)
            }
        }
        (length, self.close) = (max(8, longest + 1), close)
    }

    /// The most columns that a shortened id needs.
    var width: Int { close.isEmpty ? length : length + 1 + Self.ending }

    /// The first character encodes three bits, each of the other 25 encodes five.
    private static func sharedCharacters(_ left: UInt128, _ right: UInt128) -> Int {
        ((left ^ right).leadingZeroBitCount + 2) / 5
    }

    func short(_ id: ULID) -> String {
        close.contains(id.rawValue) ? Self.elided(id, after: length) : String(id.description.prefix(length))
    }

    /// For a single id: eight characters are its time to a second, and the end distinguishes it from others of that second.
    static func elided(_ id: ULID, after length: Int = 8) -> String {
        "\(id.description.prefix(length))…\(id.description.suffix(ending))"
    }
}

/// Unique prefixes of fingerprints without their version, as git shortens commits.
struct ShortFingerprints {
    /// From 8 to 16 digits.
    let length: Int

    init(_ fingerprints: some Sequence<Fingerprint>) {
        let sorted = Set(Set(fingerprints).map(Self.digits)).sorted()
        let shared = zip(sorted, sorted.dropFirst()).map { left, right in
            zip(left.utf8, right.utf8).prefix { $0 == $1 }.count
        }
        length = min(16, max(8, (shared.max() ?? 0) + 1))
    }

    /// For a single fingerprint: 8 digits are unique among some thousand.
    static func prefix(of fingerprint: Fingerprint) -> String { String(digits(fingerprint).prefix(8)) }

    func short(_ fingerprint: Fingerprint) -> String { String(Self.digits(fingerprint).prefix(length)) }

    private static func digits(_ fingerprint: Fingerprint) -> Substring {
        let text = fingerprint.rawValue
        return text[(text.utf8.lastIndex(of: UInt8(ascii: ":")).map(text.utf8.index(after:)) ?? text.startIndex)...]
    }
}
