import StallReports

/// Sentry events, one per line: an exception of type `Stall` with the stalled thread's stack, grouped by the report's
/// fingerprint.
struct SentryExporter: ReportExporter {
    func add(_ report: StallReport) throws(ReportError) -> [UInt8] { try ReportJSON.encode(Event(report)) }

    private struct Event: Encodable {
        var eventID: String
        var timestamp: Double
        var platform = "native"
        var logger = "stall-monitor"
        var level: String
        var serverName: String
        var release: String?
        var transaction: String?
        var fingerprint: [String]
        var tags: [String: String]
        var exception: Exceptions
        var extra: [String: String]
        var contexts: [String: [String: String]]?

        init(_ report: StallReport) {
            let id = String(report.id.rawValue, radix: 16)
            eventID = String(repeating: "0", count: 32 - id.count) + id
            timestamp = Double(report.startedAt.unixNanoseconds) / 1e9
            level = report.severity == .warning ? "warning" : report.severity == .critical ? "fatal" : "error"
            serverName = plain(report.host.name)
            release = report.service.flatMap { service in
                service.version.map { Self.release("\(service.name)@\($0)") }
            }
            transaction = report.culpritName.map(plain)
            fingerprint = [report.fingerprint.description]
            tags = [
                "kind": report.kind.rawValue, "verdict": report.cause.verdict.canonical.rawValue,
                "state": report.state.rawValue,
                "watched.label": report.watched.label, "watched.type": report.watched.type.rawValue,
            ]
            if let service = report.service?.name { tags["service"] = service }
            // Sentry takes at most 200 characters in a tag.
            tags = tags.mapValues { VisibleText.of($0, limit: 200) }
            exception = Exceptions(values: [Exception(report)])
            extra = [
                "report": report.id.description, "duration": DurationText(nanoseconds: report.durationNs).description,
                "pid": "\(report.process.pid)",
            ]
            if let trace = report.trace { add(trace) }
        }

        /// Sentry refuses slashes in it, and more than 200 bytes.
        private static func release(_ text: String) -> String {
            var release = plain(text.escaped(["/": "-"])).escaped(["\\": "-"])
            while release.utf8.count > 200 { release.unicodeScalars.removeLast() }
            return release
        }

        /// The trace context requires both identifiers.
        private mutating func add(_ trace: StallReport.Trace) {
            let span = trace.spanID.flatMap { Telemetry.identifier($0, digits: 16) }
            if let span, let id = Telemetry.identifier(trace.traceID, digits: 32) {
                contexts = ["trace": ["trace_id": id, "span_id": span]]
            } else {
                extra["trace"] = plain(trace.traceID)
            }
        }

        private enum CodingKeys: String, CodingKey {
            case eventID = "event_id"
            case timestamp, platform, logger, level
            case serverName = "server_name"
            case release, transaction, fingerprint, tags, exception, extra, contexts
        }
    }

    private struct Exceptions: Encodable { var values: [Exception] }

    private struct Exception: Encodable {
        var type = "Stall"
        var value: String
        var mechanism = Mechanism()
        var threadID: Int32
        var stacktrace: Stack?

        init(_ report: StallReport) {
            value = plain(report.cause.summary)
            threadID = report.thread.id
            let frames = report.framesOfCulprit
            // Sentry rejects a stack without a frame.
            stacktrace = frames.isEmpty ? nil : Stack(frames: frames.reversed().map { Frame($0, in: report) })
        }

        private enum CodingKeys: String, CodingKey {
            case type, value, mechanism
            case threadID = "thread_id"
            case stacktrace
        }
    }

    private struct Mechanism: Encodable {
        var type = "stall-monitor"
        var handled = true
    }

    private struct Stack: Encodable { var frames: [Frame] }

    private struct Frame: Encodable {
        var function: String
        var filename: String?
        var line: Int?
        var isInApp: Bool
        var package: String?
        var address: String

        init(_ frame: StallReport.Frame, in report: StallReport) {
            let module = report.modules.module(of: frame)
            function = frame.plainName(module)
            (filename, line) = (frame.file.map(plain), frame.line)
            (isInApp, package, address) = (frame.own, module.map { plain($0.path) }, frame.address.description)
        }

        private enum CodingKeys: String, CodingKey {
            case function, filename
            case line = "lineno"
            case isInApp = "in_app"
            case package
            case address = "instruction_addr"
        }
    }
}
