public import StallReports

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

    /// - Parameter runs: Those of one service. Each process replaces one that ended before it on the same host.
    private static func unreplaced(_ runs: [KnownRun], _ before: Timestamp) -> [SilentRun] {
        Dictionary(grouping: runs) { $0.run.host }.values.flatMap { runs in
            let silent = runs.filter { $0.isRunning && $0.run.updatedAt < before }
            return unreplaced(silent, by: runs.map(\.startedAt)) { $0.run.updatedAt }.map(\.run)
        }
    }

    /// Those of `lost` for which there is no start after a moment. Each start replaces one.
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
