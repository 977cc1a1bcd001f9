import StallReading
import StallReports

/// The state of all processes of a report directory at one moment.
struct LiveSnapshot: Codable, Hashable {
    static let currentSchema = "stall-live/1"

    var schema = LiveSnapshot.currentSchema
    var at: Timestamp
    var processes: [Row]

    struct Row: Codable, Hashable {
        var state: State
        /// How it ended, if it is dead.
        var end: ProcessEnd?
        /// The kernel's state letter, as in `/proc/PID/stat`. Nil if it cannot be read from here.
        var kernelState: String?
        var record: LiveRecord
        /// Its ongoing stalls, and those that have ended while their reports do not say so yet, with details from their reports.
        var stalls: [Stall]
        /// The task pools that it watches, as last written to its run record. Nil without pools or record.
        var pools: [RunRecord.Watched]?
        /// The watched programs, if it is a watcher from outside.
        var programs: String?
        /// Its run record, if it is a watcher from outside, for selections.
        var watcher: RunRecord?

        /// Those of its stalls that have not ended.
        var ongoing: [Stall] { stalls.filter { $0.live.state == .ongoing } }

        /// The name of what is watched.
        var service: String? { programs ?? record.writer.service?.name }

        private enum CodingKeys: String, CodingKey {
            case state, end
            case kernelState = "kernel_state"
            case record, stalls, pools, programs
        }
    }

    enum State: String, Codable {
        case stalled, watching, dead, unknown
    }

    struct Stall: Codable, Hashable {
        var live: LiveStall
        /// Read from its report; nil if that is not written yet.
        var severity: Severity?
        var verdict: Verdict?
        var culprit: String?
        /// Its report's outline, for selections.
        var outline: StallOutline?

        private enum CodingKeys: String, CodingKey { case live, severity, verdict, culprit }
    }

    init(at moment: Timestamp, processes: [Row]) { (at, self.processes) = (moment, processes) }

    /// Reads the directory. Living processes come first, sorted by their longest stall; then dead ones, whose records the next
    /// start of a monitor removes.
    init(_ reader: ReportReader, failures: inout [ReportError]) throws(ReportError) {
        let catalog = try reader.catalog()
        failures += catalog.failures
        at = .now()
        processes = catalog.processes.map { Row($0, catalog, reader) }
        sort()
    }

    private mutating func sort() { processes.sort { $0.rank > $1.rank } }

    /// Sorted by another column. The sort is stable.
    func sorted(by order: TopState.ProcessOrder) -> LiveSnapshot {
        var sorted = self
        switch order {
        case .state: sorted.sort()
        case .pid: sorted.processes.sort { $0.record.writer.process.pid < $1.record.writer.process.pid }
        case .service:
            sorted.processes.sort { ($0.service ?? "~") < ($1.service ?? "~") }
        case .stalls: sorted.processes.sort { $0.ongoing.count > $1.ongoing.count }
        }
        return sorted
    }

    /// Adds the processes of another directory.
    mutating func add(_ other: LiveSnapshot) {
        processes += other.processes
        sort()
    }

    private enum CodingKeys: String, CodingKey { case schema, at, processes }
}

extension LiveSnapshot.Row {
    init(_ process: LiveProcess, _ catalog: ReportCatalog, _ reader: ReportReader) {
        record = process.record
        let liveness = reader.liveness
        let status = process.status(by: liveness)
        state =
            switch status {
            case .dead: .dead
            case .unknown: .unknown
            case .alive: record.stalls.contains { $0.state == .ongoing } ? .stalled : .watching
            }
        kernelState = process.kernelState(by: liveness).map(String.init)
        end = status == .dead ? process.end(by: liveness) : nil
        stalls = record.stalls.sorted { $0.durationNs > $1.durationNs }.map { LiveSnapshot.Stall($0, catalog) }
        let run = try? reader.run(record.run)
        let pools = run?.watched.filter { $0.type == .taskPool && $0.turnDurations != nil }
        self.pools = pools?.isEmpty == false ? pools : nil
        watcher = run.flatMap { $0.targets?.isEmpty == false ? $0 : nil }
        programs = watcher?.watchedService
    }

    /// Greater ranks are shown first.
    fileprivate var rank: (Int, Int64) {
        let order: [LiveSnapshot.State] = [.dead, .unknown, .watching, .stalled]
        return (order.firstIndex(of: state) ?? 0, stalls.first?.live.durationNs ?? 0)
    }
}

extension LiveSnapshot.Stall {
    init(_ stall: LiveStall, _ catalog: ReportCatalog) {
        let report = try? catalog.outline(stall.report)
        (live, outline) = (stall, report)
        (severity, verdict) = (report?.severity, report?.verdict.canonical)
        culprit = report?.culprit.flatMap { $0.function ?? $0.symbol }
    }
}
