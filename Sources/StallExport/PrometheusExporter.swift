import StallReports

/// One count of a run record, with its breakdown. There is no breakdown by fingerprint: there are too many.
struct RunMetric {
    struct Point {
        var labels: [(name: String, value: String)] = []
        var count: Int64
    }

    let name: String
    let help: String
    /// Counted in nanoseconds, and exported in seconds.
    let isSeconds: Bool
    let points: [Point]

    private init(_ name: String, _ help: String, isSeconds: Bool = false, _ points: [Point]) {
        (self.name, self.help, self.isSeconds, self.points) = (name, help, isSeconds, points)
    }

    func value(of point: Point) -> Double { isSeconds ? Double(point.count) / 1e9 : Double(point.count) }

    static func all(of run: RunRecord) -> [RunMetric] {
        let stalls = run.stalls.sorted { $0.key < $1.key }
            .map { Point(labels: [("kind", plain($0.key))], count: $0.value) }
        let loops = run.watched.map { watched in
            let service = watched.service.map { [(name: "watched_service", value: plain($0))] } ?? []
            return (
                labels: [("label", plain(watched.label)), ("type", plain(watched.type.rawValue))] + service,
                watched: watched
            )
        }
        let turns = loops.compactMap { labels, watched in
            watched.turns.map { Point(labels: labels, count: Int64(clamping: $0)) }
        }
        let threads = [
            ("watchdog", run.cost.watchdogCPUNs), ("reporter", run.cost.reporterCPUNs),
            ("writer", run.cost.writerCPUNs),
        ].compactMap { name, time in time.map { Point(labels: [("thread", name)], count: $0) } }
        return [
            RunMetric("stalls", "Stalls, by the rule that found them.", stalls),
            one("suppressed_stalls", "Stalls that were counted and not reported.", run.suppressed),
            one("captures", "Stacks taken.", run.cost.captures),
            one("capture_failures", "Captures that failed.", run.captureFailures),
            one("lost_reports", "Reports that could not be written.", run.lostWrites),
            RunMetric("turns", "Turns that a watched loop finished.", turns),
            RunMetric(
                "watched",
                "How long a loop was watched.",
                isSeconds: true,
                loops.map { Point(labels: $0.labels, count: $0.watched.watchedNs) }
            ),
            one("held", "How long watched threads were held for captures.", isSeconds: true, run.cost.heldNs),
            RunMetric("cpu", "Processor time of the monitor's threads.", isSeconds: true, threads),
        ].filter { !$0.points.isEmpty }
    }

    private static func one(_ name: String, _ help: String, isSeconds: Bool = false, _ count: Int64) -> RunMetric {
        RunMetric(name, help, isSeconds: isSeconds, [Point(count: count)])
    }
}

/// Prometheus' text format, version 0.0.4. Runs are distinguished by `service`, `host` and `run`.
struct PrometheusExporter: ReportExporter {
    private var runs: [RunRecord] = []
    /// The reports of each series, by its labels.
    private var blocked: [[String]: (count: Int64, nanoseconds: Int64)] = [:]

    mutating func begin(_ runs: [RunRecord]) -> [UInt8] {
        self.runs = runs
        return []
    }

    mutating func add(_ report: StallReport) -> [UInt8] {
        let labels: [(String, String)] = [
            ("service", report.service?.name ?? ""), ("host", report.host.name), ("label", report.watched.label),
            ("type", report.watched.type.rawValue), ("kind", report.kind.rawValue),
            ("verdict", report.cause.verdict.canonical.rawValue),
        ]
        let series = labels.map { Self.label($0.0, $0.1) }
        var sum = blocked[series] ?? (0, 0)
        sum.count.addSaturated(1)
        sum.nanoseconds.addSaturated(report.durationNs)
        blocked[series] = sum
        return []
    }

    func end() -> [UInt8] {
        var families: [String: (help: String, lines: [String])] = [:]
        for run in runs {
            let own = [
                Self.label("service", run.service?.name ?? ""), Self.label("host", run.host.name),
                Self.label("run", run.id.description),
            ]
            for metric in RunMetric.all(of: run) {
                let name = "stall_monitor_\(metric.name)\(metric.isSeconds ? "_seconds" : "")_total"
                families[name, default: (metric.help, [])].lines += metric.points.map { point in
                    let labels = own + point.labels.map { Self.label($0.name, $0.value) }
                    return "\(name){\(labels.joined(separator: ","))} \(metric.value(of: point))"
                }
            }
        }
        let sums = blocked.sorted { $0.key.lexicographicallyPrecedes($1.key) }
        families["stall_monitor_reports"] = (
            "Reports of the chosen stalls: without a choice, all.",
            sums.map { "stall_monitor_reports{\($0.key.joined(separator: ","))} \($0.value.count)" }
        )
        families["stall_monitor_reported_blocked_seconds"] = (
            "How long the stalls of these reports lasted.",
            sums.map {
                "stall_monitor_reported_blocked_seconds{\($0.key.joined(separator: ","))} \(Double($0.value.nanoseconds) / 1e9)"
            }
        )
        return families.sorted { $0.key < $1.key }.flatMap { name, family in
            let type = name.hasSuffix("_total") ? "counter" : "gauge"
            let head = "# HELP \(name) \(family.help)\n# TYPE \(name) \(type)\n"
            return Array((head + family.lines.map { $0 + "\n" }.joined()).utf8)
        }
    }

    private static func label(_ name: String, _ value: String) -> String {
        let escaped = plain(value).escaped(["\\": "\\\\", "\"": "\\\"", "\n": "\\n"])
        return "\(name)=\"\(escaped)\""
    }
}
