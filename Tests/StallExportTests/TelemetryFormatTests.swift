import Foundation
import StallExport
import StallReports
import Testing

@Suite("Exports for other tools")
struct TelemetryFormatTests {
    private func lines(_ format: ExportFormat, _ reports: [StallReport] = ExportSample.reports) throws -> [[String:
        Any]]
    {
        try ExportSample.text(format, reports).split(separator: "\n").map { try ExportSample.json(Data($0.utf8)) }
    }

    @Test("Chrome: one track for each watched item, a bar for each stall")
    func traceEvents() throws {
        let file = try ExportSample.json(ExportSample.export(.chrome))
        let events = try #require(file["traceEvents"] as? [[String: Any]])
        #expect(events.map { $0["ph"] as? String } == ["M", "M", "X", "M", "X"])
        #expect(events.map { $0["tid"] as? Int } == [0, 1, 1, 2, 2])
        #expect(events[2]["dur"] as? Double == 600_000)
        #expect(events[2]["name"] as? String == "total()")
        let none = try ExportSample.json(ExportSample.export(.chrome, []))
        #expect((none["traceEvents"] as? [Any])?.isEmpty == true)
    }

    @Test("Chrome: processes with one id are distinguished by host, container and start")
    func traceProcesses() throws {
        let changes: [(inout StallReport) -> Void] = [
            { _ in }, { $0.host.name = "web2" }, { $0.process.pidNamespace = 4_026_531_836 },
            { $0.process.startTicks = 99 }, { $0.run = .make() },
            { $0.startedAt = $0.startedAt.advanced(byNanoseconds: 1_000_000_000) },
        ]
        let reports = changes.map { change in
            var report = ExportSample.reports[0]
            change(&report)
            return report
        }
        let file = try ExportSample.json(ExportSample.export(.chrome, reports))
        let events = try #require(file["traceEvents"] as? [[String: Any]])
        let bars = events.filter { $0["ph"] as? String == "X" }
        #expect(bars.map { $0["pid"] as? Int } == [1, 2, 3, 4, 5, 1])
        #expect(bars.map { $0["tid"] as? Int } == [1, 2, 3, 4, 5, 1])
        let names = events.filter { $0["name"] as? String == "process_name" }
            .map { ($0["args"] as? [String: String])?["name"] }
        #expect(names.prefix(2) == ["shop (pid 7 on web1)", "shop (pid 7 on web2)"] && names.count == 5)
    }

    @Test("Stalls of several loops with one label overlap: Chrome's bars do not, and Firefox's times do not decrease")
    func overlapping() throws {
        // Each lasts for 600 ms.
        let reports = [0, 200, 600, 700, 1_300].map { (milliseconds: Int64) in
            var report = ExportSample.reports[0]
            report.startedAt = ExportSample.start.advanced(byNanoseconds: milliseconds * 1_000_000)
            return report
        }
        let file = try ExportSample.json(ExportSample.export(.chrome, reports))
        let events = try #require(file["traceEvents"] as? [[String: Any]])
        #expect(events.filter { $0["ph"] as? String == "X" }.map { $0["tid"] as? Int } == [1, 2, 1, 3, 1])
        #expect(events.count { $0["name"] as? String == "thread_name" } == 3)

        let profile = try ExportSample.json(ExportSample.export(.firefox, reports))
        let thread = try #require((profile["threads"] as? [[String: Any]])?.first)
        let samples = try #require(thread["samples"] as? [String: Any])
        let (times, weights) = (samples["time"] as? [Double] ?? [], samples["weight"] as? [Double] ?? [])
        #expect(times.count == 25 && times == times.sorted() && abs(weights.reduce(0, +) - 3000) < 0.001)
    }

    @Test("OpenTelemetry logs: a record per line, numbers as text, only identifiers that a receiver accepts")
    func logs() throws {
        var odd = ExportSample.reports[0]
        odd.trace = .init(traceID: "not a trace", spanID: "00f067aa0ba902b7")
        odd.startedAt = Timestamp(seconds: -5)
        let requests = try lines(.otlpLogs, [ExportSample.reports[0], odd])
        let records = try requests.map { request in
            let resource = try #require((request["resourceLogs"] as? [[String: Any]])?.first)
            let scope = try #require((resource["scopeLogs"] as? [[String: Any]])?.first)
            return try #require((scope["logRecords"] as? [[String: Any]])?.first)
        }
        #expect(records[0]["timeUnixNano"] as? String == "1795000000123456789")
        #expect(records[0]["severityNumber"] as? Int == 17 && records[0]["eventName"] as? String == "stall")
        #expect(records[0]["traceId"] as? String == "4bf92f3577b34da6a3ce929d0e0e4736")
        #expect(records[1]["traceId"] == nil && records[1]["spanId"] == nil)
        #expect(records[1]["timeUnixNano"] as? String == "0")
        let attributes = try #require(records[0]["attributes"] as? [[String: Any]])
        let line = attributes.first { $0["key"] as? String == "code.line.number" }?["value"] as? [String: String]
        #expect(line == ["intValue": "12"])
    }

    @Test("OpenTelemetry logs: the stack has the awaiting functions, and the place of a function without a name")
    func stackOfLogs() throws {
        var report = ExportSample.reports[0]
        report.stacks[0].frames[1].function = nil
        report.stacks[0].frames[1].symbol = "total"
        report.stacks[0].frames[0].function = nil
        report.stacks[0].frames[0].file = nil
        report.stacks[0].async = .init(from: 1, frames: [ExportSample.frame("handler", own: true)], ends: .task)
        let text = try ExportSample.text(.otlpLogs, [report])
        #expect(text.contains(#""shop+0x10 (no symbols)\ntotal (Sources/Shop/Cart.swift:12)\nhandler""#), "\(text)")
    }

    @Test("OpenTelemetry metrics: cumulative sums of each run")
    func metrics() throws {
        let request = try #require(try lines(.otlpMetrics).first)
        let resource = try #require((request["resourceMetrics"] as? [[String: Any]])?.first)
        let metrics = try #require(
            (resource["scopeMetrics"] as? [[String: Any]])?.first?["metrics"] as? [[String: Any]]
        )
        let watched = try #require(metrics.first { $0["name"] as? String == "stall_monitor.watched" })
        let sum = try #require(watched["sum"] as? [String: Any])
        let point = try #require((sum["dataPoints"] as? [[String: Any]])?.first)
        #expect(watched["unit"] as? String == "s" && point["asDouble"] as? Double == 60)
        #expect(sum["aggregationTemporality"] as? Int == 2 && sum["isMonotonic"] as? Bool == true)
    }

    @Test("Prometheus: each family once with its type, labels escaped; promtool accepts it")
    func prometheus() throws {
        var odd = ExportSample.reports[0]
        odd.watched.label = "a\"b\\c"
        let text = try ExportSample.text(.prometheus, [odd] + ExportSample.reports)
        let types = text.split(separator: "\n").filter { $0.hasPrefix("# TYPE") }
        #expect(Set(types).count == types.count && !types.isEmpty)
        #expect(
            text.contains(
                #"stall_monitor_turns_total{service="shop",host="web1",run="\#(ExportSample.run.id)",label="main",type="run_loop"} 1000.0"#
            )
        )
        #expect(text.contains("# HELP stall_monitor_reports Reports of the chosen stalls"))
        #expect(text.contains(#"stall_monitor_watched_seconds_total{"#) && text.contains(#"label="a\"b\\c""#))
        var run = ExportSample.run
        run.watched = ["node", "redis"].map { service in
            var loop = RunRecord.Watched(label: "main", watchedNs: 1)
            loop.service = service
            return loop
        }
        let watched = try ExportSample.text(.prometheus, runs: [run]).split(separator: "\n").filter {
            $0.hasPrefix("stall_monitor_watched_seconds_total{")
        }
        #expect(watched.count == 2 && watched[1].contains(#"type="run_loop",watched_service="redis"} "#), "\(watched)")
        #expect(!text.contains("fingerprint"))
        if Tool.exists("promtool") {
            #expect(try Tool.run("promtool", ["check", "metrics"], input: Data(text.utf8)).status == 0)
        }
    }

    @Test("Sentry: a tag has at most 200 characters")
    func tags() throws {
        var long = ExportSample.reports[0]
        long.service?.name = String(repeating: "a", count: 300)
        long.watched.label = String(repeating: "b", count: 300)
        let tags = try #require(try lines(.sentry, [long])[0]["tags"] as? [String: String])
        #expect(tags["service"] == String(repeating: "a", count: 199) + "…" && tags["watched.label"]?.count == 200)
        #expect(tags["kind"] == "blocked")
    }

    @Test("Sentry: a release has no slashes, and at most 200 bytes")
    func release() throws {
        var odd = ExportSample.reports[0]
        odd.service = .init(name: "acme/shop\\x", version: "1.2\u{1B}")
        var long = odd
        long.service?.name = String(repeating: "a", count: 300)
        var wide = odd
        wide.service?.name = String(repeating: "é", count: 110)
        let releases = try lines(.sentry, [odd, long, wide]).map { $0["release"] as? String }
        let (latin, accents) = (String(repeating: "a", count: 200), String(repeating: "é", count: 100))
        #expect(releases == ["acme-shop-x@1.2-u{1B}", latin, accents])
    }

    @Test("Sentry: an event per line, its stack outermost first; no stack if there is none")
    func sentry() throws {
        let events = try lines(.sentry)
        let exceptions = try events.map { event in
            try #require(((event["exception"] as? [String: Any])?["values"] as? [[String: Any]])?.first)
        }
        let frames = try #require((exceptions[0]["stacktrace"] as? [String: Any])?["frames"] as? [[String: Any]])
        #expect(frames.map { $0["function"] as? String } == ["main", "total()", "price()"])
        #expect(frames.map { $0["in_app"] as? Bool } == [false, true, true])
        #expect(exceptions[1]["stacktrace"] == nil)
        #expect(events.allSatisfy { ($0["event_id"] as? String)?.count == 32 })
        #expect(events[0]["release"] as? String == "shop@1.2" && events[0]["level"] as? String == "error")
    }

    @Test(
        "Sentry: a trace context has both identifiers; a trace without a span is extra data",
        arguments: [nil, "", "x"] as [String?]
    )
    func trace(span: String?) throws {
        var odd = ExportSample.reports[0]
        odd.trace?.spanID = span
        let events = try lines(.sentry, [ExportSample.reports[0], odd])
        let context = (events[0]["contexts"] as? [String: Any])?["trace"] as? [String: String]
        #expect(context == ["trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "span_id": "00f067aa0ba902b7"])
        #expect(events[1]["contexts"] == nil)
        let extra = try #require(events[1]["extra"] as? [String: String])
        #expect(extra["trace"] == "4bf92f3577b34da6a3ce929d0e0e4736")
    }

    @Test("CSV: one row for each stall, quoted where necessary, without formulas")
    func table() throws {
        var odd = ExportSample.reports[0]
        odd.culprit?.function = "=1+1"
        odd.watched.label = "a,\"b\""
        let rows = try ExportSample.text(.csv, [odd]).components(separatedBy: "\r\n")
        #expect(rows.count == 3 && rows[2].isEmpty)
        #expect(rows[1].contains(",600.0,shop,1.2,web1,7,run_loop,\"a,\"\"b\"\"\",'=1+1,"))
        #expect(rows[0].split(separator: ",").count == 20)
    }

    @Test(
        "a wait is called 'waiting' in other tools, as on the terminal; only reports have 'blocked'",
        arguments: [ExportFormat.html, .pprof, .chrome, .firefox, .otlpLogs, .prometheus, .sentry, .csv]
    )
    func waiting(_ format: ExportFormat) throws {
        var report = ExportSample.reports[0]
        let computing = try ExportSample.export(format, [report])
        report.cause.verdict = .blocked
        let waiting = try ExportSample.export(format, [report])
        #expect(computing.range(of: Data("waiting".utf8)) == nil && waiting.range(of: Data("waiting".utf8)) != nil)
        report.cause.verdict = .waiting
        #expect(try ExportSample.export(format, [report]) == waiting)
    }

    @Test("NDJSON: the reports themselves")
    func reports() throws {
        let lines = try ExportSample.text(.ndjson).split(separator: "\n")
        #expect(try lines.map { try StallReport(json: Array($0.utf8)) } == ExportSample.reports)
    }
}
