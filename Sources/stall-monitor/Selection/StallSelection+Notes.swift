import StallGate
import StallReading
import StallReports

extension StallSelection {
    /// The note if no stall matches.
    var nothingFound: String { isEverything ? "no stalls" : "no matching stalls" }

    /// The note if no stall of a directory matches. It distinguishes "no stalls" from "nothing was watched".
    ///
    /// - Parameters:
    ///   - stalls: The number of stalls in the directory.
    ///   - runs: The directory's run records.
    ///   - names: Aliases of faults: stalls may have been counted by an earlier fingerprint than the one that was asked for.
    func nothingFound(among stalls: Int, _ runs: [RunRecord], names: FaultNames? = nil) -> String {
        if stalls == 0, runs.isEmpty {
            return CollectorCopy.isInUse
                ? "the collector has no such stalls, and no run of a monitor at that time; names must have the same case there"
                : "no stalls, and no monitor has ever written here; is this the right directory?"
        }
        let matching = runs.compactMap { $0.chosen(by: self, names: names, counting: .whole) }
        let running = matching.filter { $0.state == .running }.map { "\($0.process.pid)" }
        let others = running.count > 4 ? " and \(running.count - 4) more" : ""
        let some = running.prefix(4).joined(separator: ", ") + others
        let note = running.isEmpty ? "" : "; still watching: process \(some)"
        let found = isEverything || stalls == 0 ? "no stalls" : "no matching stalls among \(stalls)"
        let unknown = unknownName(in: runs).map { ": \($0)" } ?? ""
        return found + countedOnly(matching, names) + (runs.isEmpty ? "" : coverage(matching) + unknown) + note
    }

    /// `no run is of service shp; did you mean 'shop'?`. Nil if every name that was asked for is that of some run, or there is no run.
    func unknownName(in runs: [RunRecord]) -> String? {
        let parts: [(what: String, patterns: [NamePattern], found: [String?])] = [
            ("service", services, runs.map { $0.service?.name } + runs.flatMap { $0.watched.map(\.service) }),
            ("release", releases, runs.map { $0.service?.version }),
            ("host", hosts, runs.map { $0.host.name }),
        ]
        for (what, patterns, found) in parts {
            let names = Set(found.compactMap(\.self)).sorted()
            guard let name = patterns.lazy.compactMap(\.exactName).first, !names.isEmpty,
                !names.contains(where: { name in patterns.contains { $0.matches(name) } })
            else { continue }
            let others = names.count > 4 ? " and \(names.count - 4) more" : ""
            let list = "there are \(names.prefix(4).joined(separator: ", "))\(others)"
            return "no run is of \(what) \(name); "
                + (nearestName(to: name, among: names).map { "did you mean '\($0)'?" } ?? list)
        }
        return nil
    }

    /// Notes about faults and functions that were asked for and that no stall has, chosen or not: it may be gone, or misspelt.
    ///
    /// - Parameter whole: What is chosen from.
    func unknownFaults(in whole: ReportReader.Overview) -> [String] {
        // A copy from a collector has only what is chosen.
        guard !fingerprints.isEmpty || !functions.isEmpty, !CollectorCopy.isInUse else { return [] }
        let stalls = whole.stalls.oncePerTraits
        let known = Set(
            stalls.flatMap { [$0.fingerprint] + ($0.aliases ?? []) }
                + whole.runs.flatMap { $0.repeated ?? [] }.map(\.fingerprint)
        )
        let faults = fingerprints.filter { !known.contains(where: $0.matches) }
        let names = stalls.compactMap(\.culpritName)
        let isOfFunction = functions.isEmpty || names.contains { name in functions.contains { $0.matches(name) } }
        return faults.map {
            "no stall in these directories, at any time, has a fingerprint that begins with \($0); 'stall-monitor faults' lists those that are there"
        }
            + (isOfFunction
                ? []
                : [
                    "no stall in these directories, at any time, is in such a function; 'stall-monitor faults' lists them"
                ])
    }

    /// `, but 37 were only counted: …`. A fault that repeats has one report an hour, which may be older than the chosen time.
    private func countedOnly(_ runs: [RunRecord], _ names: FaultNames?) -> String {
        let counted = runs.flatMap { $0.repeated ?? [] }.filter { $0.membership(in: self, names: names) == .wanted }
        let count = counted.map { Int64(clamping: max(0, part(of: $0).repeats.count)) }.saturatingSum()
        return count == 0
            ? "" : ", but \(count) \(count == 1 ? "was" : "were") only counted: 'stall-monitor faults' has them"
    }

    /// `; 3 loops were watched, for 1h2m in all`. Without it, no stalls would look the same whether somebody watched or not.
    private func coverage(_ runs: [RunRecord]) -> String {
        let watched = runs.flatMap(\.watched).filter { $0.watchedNs > 0 }
        let length = DurationText(nanoseconds: watched.map(\.watchedNs).saturatingSum()).short
        return switch watched.count {
        case 0: isEverything ? "; nothing was watched" : "; nothing that matches was watched"
        case 1: "; 1 loop was watched, for \(length)"
        case let count: "; \(count) loops were watched, for \(length) in all"
        }
    }

    /// The note if reports are missing because their monitors could not write them: without it, none would look like no stall.
    func lostNote(_ runs: [RunRecord]) -> String? {
        let lost = runs.filter { includes($0) }.map { max(0, $0.lostWrites) }.saturatingSum()
        guard lost > 0 else { return nil }
        return "\(quantity(lost, "report")) could not be written, or not completely; 'stall-monitor doctor' says more"
    }
}
