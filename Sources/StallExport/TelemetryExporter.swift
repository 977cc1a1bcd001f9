internal import StallReports

// OpenTelemetry's JSON encoding (opentelemetry.io, "OTLP", "File exporter"): each line is a whole request to a receiver. Names of
// attributes are those of its semantic conventions where there are any.

/// A stall is a log record with the event name `stall`.
struct TelemetryLogExporter: ReportExporter {
    func add(_ report: StallReport) throws(ReportError) -> [UInt8] {
        let resource = Telemetry.Resource(service: report.service, host: report.host, process: report.process)
        let record = Record(report)
        return try line(Request(resourceLogs: [.init(resource: resource, scopeLogs: [.init(logRecords: [record])])]))
    }

    private struct Request: Encodable { var resourceLogs: [ResourceLogs] }

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
            timeUnixNano = "\(report.startedAt.unixNanoseconds)"
            observedTimeUnixNano = "\(report.detectedAt.unixNanoseconds)"
            // The numbers that OpenTelemetry gives to WARN, ERROR and FATAL.
            severityNumber = report.severity == .warning ? 13 : report.severity == .critical ? 21 : 17
            severityText = report.severity.rawValue
            body = .string(plain(report.cause.summary))
            attributes = [
                .init("stall.id", .string(report.id.description)),
                .init("stall.fingerprint", .string(report.fingerprint.description)),
                .init("stall.kind", .string(report.kind.rawValue)),
                .init("stall.verdict", .string(report.cause.verdict.rawValue)),
                .init("stall.state", .string(report.state.rawValue)),
                .init("stall.duration_ns", .integer(report.durationNs)),
                .init("stall.watched.type", .string(report.watched.type.rawValue)),
                .init("stall.watched.label", .string(plain(report.watched.label))),
                .init("thread.id", .integer(Int64(report.thread.id))),
            ]
            if let name = report.thread.name { attributes.append(.init("thread.name", .string(plain(name)))) }
            if let name = report.culpritName { attributes.append(.init("code.function.name", .string(plain(name)))) }
            if let file = report.culprit?.file { attributes.append(.init("code.file.path", .string(plain(file)))) }
            if let line = report.culprit?.line { attributes.append(.init("code.line.number", .integer(Int64(line)))) }
            traceId = report.trace.flatMap { Self.identifier($0.traceID, digits: 32) }
            spanId = traceId.flatMap { _ in report.trace?.spanID.flatMap { Self.identifier($0, digits: 16) } }
        }

        /// A receiver refuses the whole request for another form.
        private static func identifier(_ text: String, digits: Int) -> String? {
            text.utf8.count == digits && text.allSatisfy { $0.isASCII && $0.isHexDigit } ? text : nil
        }
    }
}

/// What the run records count, each run a resource with cumulative sums.
struct TelemetryMetricExporter: ReportExporter {
    mutating func begin(_ runs: [RunRecord]) throws(ReportError) -> [UInt8] {
        var bytes: [UInt8] = []
        for run in runs {
            let resource = Telemetry.Resource(service: run.service, host: run.host, process: run.process)
            let metrics = RunMetric.all(of: run).map { Metric($0, run) }
            bytes += try line(
                Request(resourceMetrics: [.init(resource: resource, scopeMetrics: [.init(metrics: metrics)])])
            )
        }
        return bytes
    }

    func add(_ report: StallReport) -> [UInt8] { [] }

    private struct Request: Encodable { var resourceMetrics: [ResourceMetrics] }

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
                        startTimeUnixNano: "\(run.startedAt.unixNanoseconds)",
                        timeUnixNano: "\(run.updatedAt.unixNanoseconds)",
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

/// What logs and metrics have in common.
enum Telemetry {
    struct Scope: Encodable { var name = "stall-monitor" }

    struct Resource: Encodable {
        var attributes: [Attribute]

        init(service: ServiceIdentity?, host: HostIdentity, process: ProcessIdentity) {
            attributes = [
                .init("service.name", .string(plain(service?.name ?? "unknown_service"))),
                .init("host.name", .string(plain(host.name))),
                .init("process.pid", .integer(Int64(process.pid))),
            ]
            if let version = service?.version { attributes.append(.init("service.version", .string(plain(version)))) }
            if let instance = service?.instance {
                attributes.append(.init("service.instance.id", .string(plain(instance))))
            }
            if let path = process.executable {
                attributes.append(.init("process.executable.path", .string(plain(path))))
            }
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
            // 64-bit numbers are texts in this encoding.
            case .integer(let number): try container.encode("\(number)", forKey: .intValue)
            }
        }

        private enum CodingKeys: String, CodingKey { case stringValue, intValue }
    }
}
