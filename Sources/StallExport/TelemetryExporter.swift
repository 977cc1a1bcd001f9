package import StallReports

// OpenTelemetry's JSON encoding (opentelemetry.io, "OTLP", "File exporter"): each line is a whole request to a receiver.
// Attributes have the names of its semantic conventions where these exist.

/// A stall is a log record with the event name `stall`.
struct TelemetryLogExporter: ReportExporter {
    func add(_ report: StallReport) throws(ReportError) -> [UInt8] {
        Telemetry.Signal.logs.request([try Self.element(report)]) + [UInt8(ascii: "\n")]
    }

    /// The report's part of a request to `/v1/logs`.
    static func element(_ report: StallReport) throws(ReportError) -> [UInt8] {
        let resource = Telemetry.Resource(service: report.service, host: report.host, process: report.process)
        return try ReportJSON.encode(
            ResourceLogs(resource: resource, scopeLogs: [.init(logRecords: [Record(report)])])
        ).dropLast()
    }

    private struct ResourceLogs: Encodable {
        var resource: Telemetry.Resource
        var scopeLogs: [ScopeLogs]
    }

    private struct ScopeLogs: Encodable {
        var scope = Telemetry.Scope()
        var logRecords: [Record]
    }

    private struct Record: Encodable {
        var timeUnixNano: String
        var observedTimeUnixNano: String
        var severityNumber: Int
        var severityText: String
        var eventName = "stall"
        var body: Telemetry.Value
        var attributes: [Telemetry.Attribute]
        var traceId: String?
        var spanId: String?

        init(_ report: StallReport) {
            timeUnixNano = Telemetry.time(report.startedAt)
            observedTimeUnixNano = Telemetry.time(report.detectedAt)
            // OpenTelemetry's numbers for WARN, ERROR and FATAL.
            severityNumber = report.severity == .warning ? 13 : report.severity == .critical ? 21 : 17
            severityText = report.severity.rawValue
            body = .string(plain(report.cause.summary))
            attributes = [
                .init("stall.id", .string(report.id.description)),
                .init("stall.fingerprint", .string(report.fingerprint.description)),
                .init("stall.kind", .string(report.kind.rawValue)),
                .init("stall.verdict", .string(report.cause.verdict.canonical.rawValue)),
                .init("stall.state", .string(report.state.rawValue)),
                .init("stall.duration_ns", .integer(report.durationNs)),
                .init("stall.watched.type", .string(report.watched.type.rawValue)),
                .init("stall.watched.label", .string(plain(report.watched.label))),
                .init("thread.id", .integer(Int64(report.thread.id))),
            ]
            attributes += Self.counting(report)
            attributes.add("thread.name", report.thread.name)
            attributes.add("code.function.name", report.culpritName)
            attributes.add("code.file.path", report.culprit?.file)
            if let line = report.culprit?.line { attributes.append(.init("code.line.number", .integer(Int64(line)))) }
            let stack = Self.stackTrace(report)
            if !stack.isEmpty { attributes.append(.init("code.stacktrace", .string(stack))) }
            // Why there is no stack.
            attributes.add("stall.stack.error", report.stacks.first?.error)
            attributes.add("stall.labels", report.labels?.joined(separator: " > "))
            for (name, value) in report.metadata.sorted(by: { $0.key < $1.key }) {
                attributes.add("stall.metadata." + plain(name), value)
            }
            traceId = report.trace.flatMap { Telemetry.identifier($0.traceID, digits: 32) }
            spanId = traceId.flatMap { _ in report.trace?.spanID.flatMap { Telemetry.identifier($0, digits: 16) } }
        }

        /// What a receiver needs to compute the same figures as from the report itself.
        private static func counting(_ report: StallReport) -> [Telemetry.Attribute] {
            var attributes: [Telemetry.Attribute] = [
                .init("stall.rule.tick_ns", .integer(report.rule.tickNs)),
                .init("stall.rule.ticks", .integer(Int64(report.rule.ticks))),
            ]
            if let excluded = report.excludedNs { attributes.append(.init("stall.excluded_ns", .integer(excluded))) }
            // The same stall is sent again when its functions have names: that record replaces this one.
            if report.isProvisional == true { attributes.add("stall.fingerprint.provisional", "true") }
            if let aliases = report.aliases, !aliases.isEmpty {
                attributes.add("stall.fingerprint.aliases", aliases.map(\.rawValue).joined(separator: " "))
            }
            if let repeats = report.repeats {
                attributes += [
                    .init("stall.repeats.count", .integer(Int64(repeats.count))),
                    .init("stall.repeats.total_ns", .integer(repeats.totalNs)),
                    .init("stall.repeats.longest_ns", .integer(repeats.longestNs)),
                    .init("stall.repeats.first_unix_nano", .integer(repeats.firstAt.unixNanoseconds)),
                    .init("stall.repeats.last_unix_nano", .integer(repeats.lastAt.unixNanoseconds)),
                ]
            }
            return attributes
        }

        /// The stalled thread's stack with the functions that await it, the innermost first, at most 64: receivers cut or reject
        /// longer values.
        private static func stackTrace(_ report: StallReport) -> String {
            report.framesOfCulprit.prefix(64).map { frame in
                let place = frame.file.map { " (\(plain($0))\(frame.line.map { ":\($0)" } ?? ""))" } ?? ""
                return frame.plainName(report.modules.module(of: frame)) + place
            }.joined(separator: "\n")
        }
    }
}

/// The counts of run records: each run is a resource with cumulative sums.
struct TelemetryMetricExporter: ReportExporter {
    mutating func begin(_ runs: [RunRecord]) throws(ReportError) -> [UInt8] {
        var bytes: [UInt8] = []
        for run in runs {
            bytes += Telemetry.Signal.metrics.request([try Self.element(run)]) + [UInt8(ascii: "\n")]
        }
        return bytes
    }

    /// The run's part of a request to `/v1/metrics`.
    static func element(_ run: RunRecord) throws(ReportError) -> [UInt8] {
        let resource = Telemetry.Resource(service: run.service, host: run.host, process: run.process)
        let metrics = RunMetric.all(of: run).map { Metric($0, run) }
        return try ReportJSON.encode(ResourceMetrics(resource: resource, scopeMetrics: [.init(metrics: metrics)]))
            .dropLast()
    }

    func add(_ report: StallReport) -> [UInt8] { [] }

    private struct ResourceMetrics: Encodable {
        var resource: Telemetry.Resource
        var scopeMetrics: [ScopeMetrics]
    }

    private struct ScopeMetrics: Encodable {
        var scope = Telemetry.Scope()
        var metrics: [Metric]
    }

    private struct Metric: Encodable {
        var name: String
        var description: String
        var unit: String
        var sum: Sum

        init(_ metric: RunMetric, _ run: RunRecord) {
            name = "stall_monitor." + metric.name.replacing("_", with: ".")
            (description, unit) = (metric.help, metric.isSeconds ? "s" : "{\(metric.name)}")
            sum = Sum(
                dataPoints: metric.points.map { point in
                    Point(
                        startTimeUnixNano: Telemetry.time(run.startedAt),
                        timeUnixNano: Telemetry.time(run.updatedAt),
                        asDouble: metric.value(of: point),
                        attributes: point.labels.map { .init($0.name, .string($0.value)) }
                    )
                }
            )
        }
    }

    private struct Sum: Encodable {
        var dataPoints: [Point]
        /// Cumulative.
        var aggregationTemporality = 2
        var isMonotonic = true
    }

    private struct Point: Encodable {
        var startTimeUnixNano: String
        var timeUnixNano: String
        var asDouble: Double
        var attributes: [Telemetry.Attribute]
    }
}

/// OpenTelemetry's requests to a receiver, by OTLP over HTTP in JSON; and the common parts of logs and metrics.
package enum Telemetry {
    package enum Signal: Sendable {
        case logs, metrics

        /// The path of the receiver.
        package var path: String { self == .logs ? "v1/logs" : "v1/metrics" }

        /// The body of one request. Its elements are encoded separately, because reports can be large.
        package func request(_ elements: [[UInt8]]) -> [UInt8] {
            let name = self == .logs ? "resourceLogs" : "resourceMetrics"
            return Array("{\"\(name)\":[".utf8) + elements.joined(separator: [UInt8(ascii: ",")]) + Array("]}".utf8)
        }
    }

    /// A log record, for a request with one or more elements.
    package static func element(_ report: StallReport) throws(ReportError) -> [UInt8] {
        try TelemetryLogExporter.element(report)
    }

    /// The counts of a run so far, for a request with one or more elements.
    package static func element(_ run: RunRecord) throws(ReportError) -> [UInt8] {
        try TelemetryMetricExporter.element(run)
    }

    /// Nanoseconds since 1970. The field is unsigned: a receiver rejects the whole request with an earlier time. 0 means unknown.
    static func time(_ moment: Timestamp) -> String { "\(max(0, moment.unixNanoseconds))" }

    /// A trace's or span's identifier. Nil for another form: a receiver rejects the whole request then.
    static func identifier(_ text: String, digits: Int) -> String? {
        text.utf8.count == digits && text.allSatisfy { $0.isASCII && $0.isHexDigit } ? text : nil
    }

    struct Scope: Encodable { var name = "stall-monitor" }

    struct Resource: Encodable {
        var attributes: [Attribute]

        init(service: ServiceIdentity?, host: HostIdentity, process: ProcessIdentity) {
            attributes = [
                .init("service.name", .string(plain(service?.name ?? "unknown_service"))),
                .init("host.name", .string(plain(host.name))),
                .init("process.pid", .integer(Int64(process.pid))),
            ]
            attributes.add("service.version", service?.version)
            attributes.add("service.instance.id", service?.instance)
            attributes.add("process.executable.path", process.executable)
        }
    }

    struct Attribute: Encodable {
        var key: String
        var value: Value

        init(_ key: String, _ value: Value) { (self.key, self.value) = (key, value) }
    }

    enum Value: Encodable {
        case string(String)
        case integer(Int64)

        func encode(to encoder: any Encoder) throws {
            var container = encoder.container(keyedBy: CodingKeys.self)
            switch self {
            case .string(let text): try container.encode(text, forKey: .stringValue)
            // 64-bit numbers are strings in this encoding.
            case .integer(let number): try container.encode("\(number)", forKey: .intValue)
            }
        }

        private enum CodingKeys: String, CodingKey { case stringValue, intValue }
    }
}

extension [Telemetry.Attribute] {
    /// Adds nothing for a missing text.
    fileprivate mutating func add(_ key: String, _ text: String?) {
        if let text { append(.init(key, .string(plain(text)))) }
    }
}
