import ArgumentParser
import Glibc
import StallReports

/// What the shell offers for an argument: ids, faults and names that the reports have, and processes.
///
/// Reports are looked for where the line so far says, and only the latest are read: completion is to come at once.
enum Completions {
    /// Stalls whose names are offered, the newest first.
    private static let limit = 500

    /// `latest`, beginnings of ids and of fingerprints that are enough, and files.
    static let stallsAndFaults = custom { stalls in
        let ids = ShortIDs(stalls.map(\.id))
        return ["latest"] + stalls.map { ids.short($0.id) } + faults(of: stalls)
    }
    static let faults = custom { faults(of: $0) }
    static let services = custom { names($0.map(\.service)) }
    static let hosts = custom { names($0.map(\.host)) }
    static let releases = custom { names($0.map(\.release)) }
    static let labels = custom { names($0.map(\.label)) }

    /// Numbers of the processes that may be looked into: one's own, or all for root.
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

    /// What goes on as the word does, in either case. Nothing that a shell would take apart, or take for something else.
    static func offered(_ words: [String], _ prefix: String) -> [String] {
        var known: Set<String> = []
        return words.filter { word in
            !word.isEmpty && !word.hasPrefix("-") && word.lowercased().hasPrefix(prefix.lowercased())
                && word.utf8.allSatisfy(isPlain) && known.insert(word).inserted
        }
    }

    private static func isPlain(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"):
            true
        default: [".", "_", "-", "+", "@"].contains { UInt8(ascii: $0) == byte }
        }
    }

    private static func names(_ all: [String?]) -> [String] { all.compactMap(\.self) }

    private static func faults(of stalls: [StallOutline]) -> [String] {
        let names = ShortFingerprints(stalls.map(\.fingerprint))
        return stalls.map { names.short($0.fingerprint) }
    }

    /// The latest stalls of the directories that the line names; of the default one where it names none.
    ///
    /// - Parameter index: which of the words is being completed; it names no directory yet.
    private static func stalls(near words: [String], _ index: Int) -> [StallOutline] {
        let named = words.enumerated().dropFirst().filter { $0.offset != index && Folder.exists($0.element) }
        let paths = named.isEmpty ? [ReportDirectory.defaultPath] : named.map(\.element)
        guard let catalogs = try? ReportSources(paths).catalogs() else { return [] }
        return catalogs.stalls.suffix(limit).reversed().compactMap { try? catalogs.outline($0) }
    }
}
