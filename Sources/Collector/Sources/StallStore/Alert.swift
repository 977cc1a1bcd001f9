public import StallReports

/// An alert. It is kept from its beginning until all receivers have been told of its end.
public struct Alert: Hashable, Sendable {
    /// The team whose reports caused it.
    public var team: String
    /// The rule's name.
    public var rule: String
    /// What the rule found: a fingerprint in a service, a service, or a service on a host.
    public var subject: String
    /// The message for users. Names from reports are in it with control characters made visible.
    public var text: String
    /// When an evaluation of the rules first found it.
    public var beganAt: Timestamp
    /// Nil while it lasts.
    public var endedAt: Timestamp?
    /// The keys of the receivers that were told of its beginning. A key has no line breaks.
    public var toldBegin: Set<String> = []
    /// Those of them that were told of its end too.
    public var toldEnd: Set<String> = []

    /// Creates an ongoing alert of which no receiver was told yet. `team`, `rule` and `subject` identify it.
    public init(team: String, rule: String, subject: String, text: String, beganAt: Timestamp) {
        (self.team, self.rule, self.subject, self.text) = (team, rule, subject, text)
        self.beganAt = beganAt
    }

    /// The form in which stores keep the keys of receivers: a line each.
    package static func text(_ keys: Set<String>) -> String { keys.sorted().joined(separator: "\n") }
    package static func keys(_ text: String) -> Set<String> { Set(text.split(separator: "\n").map(String.init)) }
}

/// A monitor that was running when it sent its last record.
public struct SilentRun: Hashable, Sendable {
    /// The service's name as the process gave it. Empty if it gave none.
    public var service: String
    /// The service's version. Empty if the process gave none.
    public var release: String
    /// The host's name.
    public var host: String
    /// When the monitor wrote its last record.
    public var updatedAt: Timestamp

    package init(service: String, release: String, host: String, updatedAt: Timestamp) {
        (self.service, self.release, self.host) = (service, release, host)
        self.updatedAt = updatedAt
    }
}

/// What a store knows of a run, to find those that are missing.
package struct KnownRun: Sendable {
    private let run: SilentRun
    private let startedAt: Timestamp
    private let isRunning: Bool

    package init(_ run: SilentRun, startedAt: Timestamp, isRunning: Bool) {
        (self.run, self.startedAt, self.isRunning) = (run, startedAt, isRunning)
    }

    /// The runs that were running and have sent nothing since `before`, and whose process was not replaced by another one.
    ///
    /// - Parameter runs: All runs of a team, in any order.
    package static func silent(_ runs: [KnownRun], before: Timestamp) -> [SilentRun] {
        Dictionary(grouping: runs) { $0.run.service }.values
            .flatMap { unreplaced($0, before) }
            .sorted { ($0.service, $0.host, $0.updatedAt) < ($1.service, $1.host, $1.updatedAt) }
    }

    /// How much earlier than the end of a process on another host its successor may have started: a rolling update waits until the
    /// new process is ready. But not in the first half of its time: hosts of one deployment start together, and replace none of them.
    private static let overlapNs: Int64 = 10 * 60_000_000_000

    /// Each process replaces one that ended before it on the same host. And each host that had no process of the service before
    /// replaces another host, because a pod's successor has another host name.
    ///
    /// - Parameter runs: Those of one service.
    private static func unreplaced(_ runs: [KnownRun], _ before: Timestamp) -> [SilentRun] {
        let hosts = Dictionary(grouping: runs) { $0.run.host }.values.compactMap { Host($0, before) }
        return unreplaced(hosts.filter { !$0.silent.isEmpty }, by: hosts.map(\.firstAt)) { host in
            max(host.lastAt.advanced(byNanoseconds: -overlapNs), host.middle, host.firstAt)
        }.flatMap(\.silent)
    }

    /// The runs of one service on one host.
    private struct Host {
        /// When the first of them started.
        let firstAt: Timestamp
        /// Those that were not replaced on this host.
        let silent: [SilentRun]
        /// When the last of these was heard of.
        var lastAt: Timestamp { silent.map(\.updatedAt).max() ?? firstAt }
        var middle: Timestamp { Timestamp(sinceEpoch: firstAt.sinceEpoch / 2 + lastAt.sinceEpoch / 2) }

        init?(_ runs: [KnownRun], _ before: Timestamp) {
            let starts = runs.map(\.startedAt)
            guard let first = starts.min() else { return nil }
            firstAt = first
            silent = unreplaced(runs.filter { $0.isRunning && $0.run.updatedAt < before }, by: starts) {
                $0.run.updatedAt
            }.map(\.run)
        }
    }

    /// Those of `lost` after whose moment there is no start. Each start replaces one.
    private static func unreplaced<Lost>(
        _ lost: [Lost],
        by starts: [Timestamp],
        after moment: (Lost) -> Timestamp
    ) -> [Lost] {
        var starts = starts.sorted()[...]
        return lost.sorted { moment($0) < moment($1) }.filter { lost in
            starts = starts.drop { $0 <= moment(lost) }
            return starts.popFirst() == nil
        }
    }
}
