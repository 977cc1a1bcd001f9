import Foundation
import StallReports
import StallStore

/// A stall as an OpenTelemetry log record, as written by `stall-monitor ship --to` and `export --format otlp-logs`.
///
/// The record has the stalled thread's stack, and what lists and figures need. It lacks evidence, modules and the stacks of other
/// threads.
struct TelemetryStall {
    let record: TelemetryLogs.Record
    let resource: TelemetryLogs.Attributes
    private let attributes: TelemetryLogs.Attributes

    init(_ record: TelemetryLogs.Record, _ resource: TelemetryLogs.Attributes?) {
        (self.record, self.resource) = (record, resource ?? .init())
        attributes = record.attributes ?? .init()
    }

    /// - Throws: If the record is not that of a stall, or lacks something that every stall has.
    func report() throws(RefusedArrival) -> StallReport {
        guard let text = attributes.text("stall.id") else {
            throw RefusedArrival("it is not the log record of a stall: it has no attribute 'stall.id'")
        }
        guard let id = ULID(text) else { throw RefusedArrival("its 'stall.id' is no ULID") }
        let kind = StallKind(rawValue: try needed("stall.kind"))
        let state = StallState(rawValue: try needed("stall.state"))
        guard let fingerprint = Fingerprint(rawValue: try needed("stall.fingerprint")) else {
            throw RefusedArrival("its 'stall.fingerprint' is no fingerprint")
        }
        guard let start = record.timeUnixNano?.value, start > 0 else { throw RefusedArrival("it has no time") }
        guard let duration = attributes.number("stall.duration_ns") else { throw missing("stall.duration_ns") }
        let startedAt = Timestamp(sinceEpoch: start)
        let excluded = attributes.number("stall.excluded_ns")
        let end = duration.addingSaturated(excluded ?? 0)
        var report = StallReport(
            id: id,
            kind: kind,
            state: state,
            severity: Severity(rawValue: record.severityText ?? Severity.warning.rawValue),
            startedAt: startedAt,
            detectedAt: Timestamp(sinceEpoch: max(start, record.observedTimeUnixNano?.value ?? start)),
            endedAt: state == .recovered ? startedAt.advanced(byNanoseconds: max(0, end)) : nil,
            durationNs: duration,
            excludedNs: excluded,
            rule: rule(kind),
            host: HostIdentity(name: resource.text("host.name") ?? "unknown"),
            process: process,
            watched: watched,
            thread: thread,
            cause: cause,
            fingerprint: fingerprint,
            suppressed: repeats?.count ?? 0
        )
        fill(&report)
        return report
    }

    private func fill(_ report: inout StallReport) {
        report.service = service
        (report.repeats, report.aliases) = (repeats, aliases)
        report.isProvisional = attributes.text("stall.fingerprint.provisional") == "true" ? true : nil
        let frames = Self.frames(attributes.text("code.stacktrace") ?? "")
        (report.stacks, report.culprit) = stacks(frames, report)
        report.labels = attributes.text("stall.labels").map { $0.split(separator: " > ").map(String.init) }
        report.trace = record.traceId.flatMap { trace in
            trace.isEmpty ? nil : .init(traceID: trace, spanID: record.spanId.flatMap { $0.isEmpty ? nil : $0 })
        }
        let prefix = "stall.metadata."
        for (name, value) in attributes.values where name.hasPrefix(prefix) {
            if let text = value.text { report.metadata[String(name.dropFirst(prefix.count))] = text }
        }
    }

    private func needed(_ name: String) throws(RefusedArrival) -> String {
        guard let text = attributes.text(name) else { throw missing(name) }
        return text
    }

    private func missing(_ name: String) -> RefusedArrival { RefusedArrival("it has no attribute '\(name)'") }

    // MARK: Where it was

    private var service: ServiceIdentity? {
        resource.text("service.name").map {
            ServiceIdentity(
                name: $0,
                version: resource.text("service.version"),
                instance: resource.text("service.instance.id")
            )
        }
    }

    private var process: ProcessIdentity {
        ProcessIdentity(
            pid: Int32(clamping: resource.number("process.pid") ?? 0),
            executable: resource.text("process.executable.path")
        )
    }

    private var watched: StallReport.Watched {
        .init(
            type: WatchedType(rawValue: attributes.text("stall.watched.type") ?? WatchedType.runLoop.rawValue),
            label: attributes.text("stall.watched.label") ?? ""
        )
    }

    private var thread: StallReport.Thread {
        .init(id: Int32(clamping: attributes.number("thread.id") ?? 0), name: attributes.text("thread.name"))
    }

    // MARK: What it was

    private var cause: StallReport.Cause {
        .init(
            verdict: Verdict(rawValue: attributes.text("stall.verdict") ?? Verdict.unknown.rawValue),
            summary: record.body?.text ?? ""
        )
    }

    /// Zero means unknown.
    private func rule(_ kind: StallKind) -> StallReport.Rule {
        .init(
            name: kind,
            tickNs: attributes.number("stall.rule.tick_ns") ?? 0,
            ticks: Int(clamping: attributes.number("stall.rule.ticks") ?? 0)
        )
    }

    private var repeats: StallReport.Repeats? {
        guard let count = attributes.number("stall.repeats.count"), count > 0,
            let first = attributes.number("stall.repeats.first_unix_nano"),
            let last = attributes.number("stall.repeats.last_unix_nano")
        else { return nil }
        return .init(
            count: Int(clamping: count),
            report: nil,
            firstAt: Timestamp(sinceEpoch: first),
            lastAt: Timestamp(sinceEpoch: last),
            totalNs: attributes.number("stall.repeats.total_ns") ?? 0,
            longestNs: attributes.number("stall.repeats.longest_ns") ?? 0
        )
    }

    private var aliases: [Fingerprint]? {
        attributes.text("stall.fingerprint.aliases").map { text in
            text.split(separator: " ").compactMap { Fingerprint(rawValue: String($0)) }
        }
    }

    // MARK: Where in the code

    private func stacks(
        _ frames: [StallReport.Frame],
        _ report: StallReport
    ) -> (stacks: [StallReport.Stack], culprit: StallReport.Culprit?) {
        var frames = frames
        var culprit: StallReport.Culprit?
        if let name = attributes.text("code.function.name") {
            // It may be beyond the frames that were sent. Then no frame is marked.
            let frame = frames.firstIndex { $0.function == name }
            if let frame { frames[frame].own = true }
            culprit = .init(
                function: name,
                file: attributes.text("code.file.path"),
                line: attributes.number("code.line.number").map(Int.init(clamping:)),
                stack: 0,
                frame: frame ?? frames.count
            )
        }
        let error = attributes.text("stall.stack.error")
        guard !frames.isEmpty || error != nil else { return ([], culprit) }
        return ([.init(thread: report.thread, capturedAt: report.detectedAt, frames: frames, error: error)], culprit)
    }

    /// Each line is `FUNCTION` or `FUNCTION (FILE:LINE)`; `?` means a function without a name.
    static func frames(_ text: String) -> [StallReport.Frame] {
        text.split(separator: "\n").prefix(256).map { line in
            let (function, place) = parts(line)
            return .init(
                address: 0,
                function: function == "?" ? nil : String(function),
                file: place.map { String($0.file) },
                line: place?.line
            )
        }
    }

    private static func parts(_ line: Substring) -> (function: Substring, place: (file: Substring, line: Int)?) {
        guard line.last == ")",
            // Names and paths may contain parentheses. Compilers record absolute paths.
            let open = line.range(of: " (/", options: .backwards) ?? line.range(of: " (", options: .backwards)
        else { return (line, nil) }
        let inside = line[line.index(open.lowerBound, offsetBy: 2)...].dropLast()
        guard let colon = inside.lastIndex(of: ":"), let number = Int(inside[inside.index(after: colon)...]), number > 0
        else { return (line, nil) }
        return (line[..<open.lowerBound], (inside[..<colon], number))
    }
}
