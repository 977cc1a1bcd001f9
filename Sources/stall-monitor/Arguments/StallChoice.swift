import StallReports

/// Which stall is meant: the latest, or the one whose id begins so.
enum StallChoice: Hashable {
    case latest
    /// In upper case.
    case prefix(String)

    /// Nil for what can be the beginning of no id.
    init?(_ text: String) {
        if text == "latest" {
            self = .latest
            return
        }
        let filled = text + String(repeating: "0", count: max(0, 26 - text.count))
        guard !text.isEmpty, ULID(filled) != nil else { return nil }
        self = .prefix(text.uppercased())
    }

    /// The one id meant among `ids`.
    func pick(from ids: [ULID]) throws(CommandFailure) -> ULID {
        switch self {
        case .latest:
            guard let last = ids.max() else { throw CommandFailure("there are no stalls in the directory") }
            return last
        case .prefix(let prefix):
            let matches = ids.filter { $0.description.hasPrefix(prefix) }
            guard let first = matches.first else {
                throw CommandFailure("no stall's id begins with \(prefix); 'stall-monitor list' shows them")
            }
            guard matches.count == 1 else {
                let some = matches.prefix(5).map(\.description).joined(separator: ", ")
                throw CommandFailure(
                    "\(matches.count) stalls' ids begin with \(prefix): give more of one of \(some)"
                )
            }
            return first
        }
    }
}
