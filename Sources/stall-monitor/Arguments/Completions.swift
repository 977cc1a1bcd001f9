import ArgumentParser
import Glibc
import StallReading
import StallReports

/// Shell completions: ids, faults and names found in reports, and process ids.
///
/// Reports are read from the directories named on the line so far, and only the latest, so that completion is instant.
enum Completions {
    /// How many of the newest stalls are offered.
    private static let limit = 500

    /// `latest`, and unique prefixes of ids and fingerprints.
    static let stallsAndFaults = custom { stalls in
        let ids = ShortIDs(stalls.map(\.id))
        return ["latest"] + stalls.map { ids.short($0.id) } + faults(of: stalls)
    }
    static let faults = custom { faults(of: $0) }
    static let services = custom { $0.compactMap(\.service) }
    static let hosts = custom { $0.map(\.host) }
    static let releases = custom { $0.compactMap(\.release) }
    static let labels = custom { $0.map(\.label) }

    /// Ids of processes that may be inspected: the user's own, or all for root.
    static let processes = CompletionKind.custom { _, _, prefix in
        let user = geteuid()
        return Folder.names(in: "/proc").filter { name in
            var status = stat()
            guard Int32(name) != nil, name.hasPrefix(prefix), unsafe stat("/proc/\(name)", &status) == 0 else {
                return false
            }
            return user == 0 || status.st_uid == user
        }
    }

    private static func custom(_ offer: @escaping @Sendable ([StallOutline]) -> [String]) -> CompletionKind {
        .custom { words, index, prefix in
            offered(offer(stalls(near: words, index)), prefix)
        }
    }

    /// The words with this prefix, ignoring case. Words that a shell would split or misread are left out.
    static func offered(_ words: [String], _ prefix: String) -> [String] {
        var known: Set<String> = []
        return words.filter { word in
            !word.isEmpty && !word.hasPrefix("-") && word.lowercased().hasPrefix(prefix.lowercased())
                && word.allSatisfy(isPlain) && known.insert(word).inserted
        }
    }

    private static func isPlain(_ character: Character) -> Bool {
        character.isASCII && (character.isLetter || character.isNumber || "._-+@".contains(character))
    }

    private static func faults(of stalls: [StallOutline]) -> [String] {
        let names = ShortFingerprints(stalls.map(\.fingerprint))
        return stalls.map { names.short($0.fingerprint) }
    }

    /// The latest stalls in the directories named on the line, or in the default directory.
    ///
    /// - Parameter index: the word that is being completed; it does not name a directory yet.
    private static func stalls(near words: [String], _ index: Int) -> [StallOutline] {
        let named = words.enumerated().dropFirst().filter { $0.offset != index && Folder.exists($0.element) }
        let paths = named.isEmpty ? [ReportDirectory.defaultPath] : named.map(\.element)
        guard let catalogs = try? ReportSources(paths).catalogs() else { return [] }
        return catalogs.stalls.suffix(limit).reversed().compactMap { try? catalogs.outline($0) }
    }
}
