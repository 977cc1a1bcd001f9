import StallReports

/// Chrome's trace events: a process for each process, a track for each watched loop, a bar for each stall.
struct TraceEventExporter: ReportExporter {
    /// More than one for loops with one label: viewers drop a bar that begins inside another and ends after it.
    private var tracks: [Track: [Lane]] = [:]
    private var laneCount = 0
    private var processes: [ProcessKey: Int] = [:]
    private var separator = ""

    private struct Track: Hashable {
        var process: Int
        var label: String
    }

    /// A track of the viewer.
    private struct Lane {
        let number: Int
        /// Where its last bar ends.
        var endNs: Int64
    }

    /// The most lanes of one label. Reports that are made to harm may need any number.
    private static let laneLimit = 64

    func begin(_ runs: [RunRecord]) -> [UInt8] { Array(#"{"displayTimeUnit":"ms","traceEvents":["#.utf8) }

    mutating func add(_ report: StallReport) throws(ReportError) -> [UInt8] {
        var events: [Event] = []
        let process = processes[ProcessKey(report)] ?? processes.count + 1
        if processes.updateValue(process, forKey: ProcessKey(report)) == nil {
            events.append(Self.naming("process_name", Self.name(of: report), process: process, track: 0))
        }
        let track = Track(process: process, label: report.watched.label)
        let (number, isNew) = place(report, on: track)
        if isNew { events.append(Self.naming("thread_name", plain(track.label), process: process, track: number)) }
        events.append(Self.bar(report, process: process, track: number))
        var bytes: [UInt8] = []
        for event in events {
            bytes += Array(separator.utf8) + (try ReportJSON.encode(event)).dropLast()
            separator = ",\n"
        }
        return bytes
    }

    func end() -> [UInt8] { Array("]}\n".utf8) }

    /// The number of the first lane that is free when the stall begins.
    private mutating func place(_ report: StallReport, on track: Track) -> (number: Int, isNew: Bool) {
        let start = report.startedAt.unixNanoseconds
        let end = start.addingSaturated(max(0, report.durationNs))
        let lanes = tracks[track] ?? []
        let free = lanes.firstIndex { $0.endNs <= start } ?? (lanes.count < Self.laneLimit ? nil : lanes.count - 1)
        guard let free else {
            laneCount += 1
            tracks[track, default: []].append(Lane(number: laneCount, endNs: end))
            return (laneCount, true)
        }
        tracks[track]?[free].endNs = max(lanes[free].endNs, end)
        return (lanes[free].number, false)
    }

    /// Includes the real process number: the events use other numbers, which are unique.
    private static func name(of report: StallReport) -> String {
        let name = report.service?.name ?? report.process.executable ?? "process"
        return plain("\(name) (pid \(report.process.pid) on \(report.host.name))")
    }

    /// The event that names a process or a track.
    private static func naming(_ event: String, _ name: String, process: Int, track: Int) -> Event {
        Event(name: event, phase: "M", process: process, track: track, arguments: ["name": name])
    }

    /// The stall itself.
    private static func bar(_ report: StallReport, process: Int, track: Int) -> Event {
        Event(
            name: plain(report.culpritName ?? report.kind.rawValue),
            phase: "X",
            process: process,
            track: track,
            arguments: [
                "id": report.id.description, "fingerprint": report.fingerprint.description,
                "verdict": report.cause.verdict.canonical.rawValue, "kind": report.kind.rawValue,
                "state": report.state.rawValue,
                "cause": plain(report.cause.summary),
            ],
            category: plain(report.kind.rawValue),
            start: Double(report.startedAt.unixNanoseconds) / 1000,
            length: Double(report.durationNs) / 1000
        )
    }

    /// Times in microseconds, the format's unit.
    private struct Event: Encodable {
        var name: String
        var phase: String
        var process: Int
        var track: Int
        var arguments: [String: String]
        var category: String?
        var start: Double?
        var length: Double?

        private enum CodingKeys: String, CodingKey {
            case name
            case phase = "ph"
            case process = "pid"
            case track = "tid"
            case arguments = "args"
            case category = "cat"
            case start = "ts"
            case length = "dur"
        }
    }
}
