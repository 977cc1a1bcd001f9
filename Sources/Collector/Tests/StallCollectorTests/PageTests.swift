import Foundation
import HTTPTypes
import StallExport
import StallReports
import StallStore
import Testing

@testable import StallCollector

@Suite("Pages")
struct PageTests {
    static func report(_ function: String, _ release: String, milliseconds: Int64 = 500) -> StallReport {
        var report = Samples.report(function)
        report.service = .init(name: "shop", version: release)
        report.durationNs = milliseconds * 1_000_000
        report.endedAt = report.startedAt.advanced(byNanoseconds: report.durationNs)
        return report
    }

    static func report(_ function: String? = nil, hoursAgo hours: Int64, now: Timestamp = .now())
        -> StallReport
    {
        var report = function.map { Samples.report($0) } ?? Samples.report()
        report.startedAt = now.advanced(byNanoseconds: -hours * 3_600_000_000_000)
        report.endedAt = report.startedAt.advanced(byNanoseconds: report.durationNs)
        return report
    }

    static func text(_ client: Client, _ uri: String) async throws -> String {
        try await client.execute(uri: uri, method: .get) {
            #expect($0.status == .ok, "\(uri)")
            return String(decoding: $0.body, as: UTF8.self)
        }
    }

    @Test("A host's page has a line for each of its loops, with a bar for each stall; a fault's page leads there")
    func timeline() async throws {
        try await Samples.withStore { store, _ in
            var reports = (0..<4).map { _ in Samples.report() }
            for (index, label) in ["<main>", "<main>", "pool", "pool"].enumerated() {
                reports[index].watched = .init(label: label)
                reports[index].host = .init(name: index < 3 ? "web&1" : "web2")
            }
            _ = try await store.insert(reports.map { try Arrival(json: $0.json(), team: "default") })
            try await Client.withServer(store, CollectorOptions()) { [reports] client in
                let start = try await Self.text(client, "/timeline")
                #expect(start.contains("Choose a host.") && start.contains("<option value=\"web2\">"))
                let fault = try await Self.text(client, "/faults/\(reports[0].fingerprint)?since=1d")
                let link = "/timeline?since=1d&amp;host=web%261"
                #expect(fault.contains("<a href=\"\(link)\">web&amp;1</a>"))
                let page = try await Self.text(client, link.replacing("&amp;", with: "&"))
                // A picture also has a line for the whole time.
                let pictures = page.components(separatedBy: "<svg").dropFirst()
                #expect(pictures.map { $0.components(separatedBy: "<rect").count - 1 } == [3, 2])
                #expect(page.contains("<td>&lt;main&gt;<br>") && !page.contains("<main>"))
                for report in reports {
                    #expect(page.contains("/reports/\(report.id)") == (report.host.name == "web&1"))
                }
                #expect(try await Self.text(client, "/timeline?host=web3").contains("No stalls."))
            }
        }
    }

    @Test("What could be markup is escaped also where it is part of another character")
    func escapes() async throws {
        try await Samples.withStore { store, _ in
            // A letter that joins with what follows it, and an accent.
            let report = Self.report("\u{D4E}</script><b>", "\"\u{301} selected")
            _ = try await store.insert([try Arrival(json: report.json(), team: "default")])
            try await Client.withServer(store, CollectorOptions()) { client in
                let list = try await Self.text(client, "/?text=%22%CC%81%20onfocus=x")
                #expect(list.contains("name=\"text\" value=\"&quot;\u{301} onfocus=x\">"))
                #expect(list.contains("<option value=\"&quot;\u{301} selected\">"))
                for path in ["/?since=1d", "/live", "/reports/\(report.id)", "/faults/\(report.fingerprint)/flame"] {
                    let page = try await Self.text(client, path)
                    #expect(page.contains("\u{D4E}&lt;/script&gt;&lt;b&gt;"), "\(path)")
                    #expect(Data(page.utf8).range(of: Data("\u{D4E}<".utf8)) == nil, "\(path)")
                }
            }
        }
    }

    @Test("A page that does not show all faults says so, and one of a past time says when that ended")
    func limits() async throws {
        try await Samples.withStore { store, _ in
            let reports = ["f()", "g()"].map { Self.report($0, "1.1") }
            _ = try await store.insert(reports.map { try Arrival(json: $0.json(), team: "default") })
            try await Client.withServer(store, CollectorOptions()) { client in
                #expect(try await Self.text(client, "/?limit=1").contains("Shown are the first 1."))
                #expect(try await !Self.text(client, "/?limit=3").contains("Shown are the first"))
                // As many as there are: these are all.
                #expect(try await !Self.text(client, "/?limit=2").contains("Shown are the first"))
                for limit in 1...2 {
                    let page = try await Self.text(client, "/?limit=\(limit)")
                    #expect(page.components(separatedBy: "<td><a href=\"/faults/").count - 1 == limit, "\(page)")
                }
                let fault = "/faults/\(reports[0].fingerprint.rawValue)"
                #expect(try await Self.text(client, fault).contains(", since 20"))
                let ended = try await Self.text(client, fault + "?until=0s")
                #expect(ended.contains(", from 20") && ended.contains(" to 20"))
            }
        }
    }

    @Test("The page of faults says between which times monitors ran: hardly one of them ran all that time")
    func watchedTimes() async throws {
        try await Samples.withStore { store, _ in
            try await Client.withServer(store, CollectorOptions()) { client in
                let page = try await Self.text(client, "/?since=2026-01-30T00:00:00Z&until=2026-01-31T00:00:00Z")
                #expect(page.contains(" ran between 2026-01-30 00:00:00 and 2026-01-31 00:00:00 (UTC)."), "\(page)")
            }
        }
    }

    @Test("The forms of a page of a past time have the time's end, which can be changed or removed")
    func pastForms() async throws {
        try await Samples.withStore { store, _ in
            try await Client.withServer(store, CollectorOptions()) { client in
                for page in ["/", "/timeline"] {
                    let until = "2026-01-02T03:04:05Z"
                    let past = try await Self.text(client, "\(page)?since=2026-01-01T00:00:00Z&until=\(until)")
                    #expect(past.contains("<input name=\"until\" value=\"\(until)\""), "\(page)")
                    for query in ["", "?since=1d&until="] {
                        #expect(try await !Self.text(client, page + query).contains("name=\"until\""), "\(page)")
                    }
                }
            }
        }
    }

    @Test("A fault's page links to every export of its stalls")
    func exports() async throws {
        try await Samples.withStore { store, _ in
            let report = Samples.report()
            _ = try await store.insert([try Arrival(json: report.json(), team: "default")])
            try await Client.withServer(store, CollectorOptions()) { client in
                let page = try await Self.text(client, "/faults/\(report.fingerprint)?since=1d")
                let links = page.matches(
                    of: try Regex("href=\"(/api/v1/faults/[^\"]*/export/[^\"]*)\"", as: (Substring, Substring).self)
                )
                // All except those made from run records.
                #expect(links.count == ExportFormat.allCases.count - 2)
                for link in links {
                    let uri = link.output.1.replacing("&amp;", with: "&")
                    let answer = try await client.execute(uri: String(uri), method: .get) { $0 }
                    #expect(answer.status == .ok && !answer.body.isEmpty, "\(uri)")
                }
            }
        }
    }

    @Test("An export and a flame graph that do not contain all stalls say so")
    func truncation() async throws {
        try await Samples.withStore { store, _ in
            let (all, more) = (QuestionRoutes.exportedStalls, Samples.report("more()"))
            let reports = (0..<all).map { _ in Samples.report() } + [more]
            _ = try await store.insert(reports.map { try Arrival(json: $0.json(), team: "default") })
            let fault = reports[0].fingerprint
            try await Client.withServer(store, CollectorOptions()) { client in
                func export(_ fault: Fingerprint, _ format: String) async throws -> (isTruncated: Bool, text: String) {
                    let uri = "/api/v1/faults/\(fault)/export/\(format)"
                    return try await client.execute(uri: uri, method: .get) { answer in
                        #expect(answer.status == .ok, "\(uri)")
                        let isTruncated = answer.headers[HTTPField.Name("Stall-Truncated")!] == "true"
                        return (isTruncated, String(decoding: answer.body, as: UTF8.self))
                    }
                }
                for isOneMore in [false, true] {
                    if isOneMore {
                        _ = try await store.insert([Arrival(json: Samples.report().json(), team: "default")])
                    }
                    let table = try await export(fault, "csv")
                    #expect(table.isTruncated == isOneMore)
                    // With its header.
                    #expect(table.text.split(separator: "\r\n").count == all + 1)
                    for format in ["html", "svg"] {
                        let answer = try await export(fault, format)
                        #expect(answer.isTruncated == isOneMore, "\(format)")
                        #expect(answer.text.contains(QuestionRoutes.truncation) == isOneMore, "\(format)")
                    }
                    let flame = try await Self.text(client, "/faults/\(fault)/flame")
                    #expect(flame.contains(QuestionRoutes.truncation) == isOneMore)
                    #expect(try await export(more.fingerprint, "csv").isTruncated == false)
                }
                #expect(try await Self.text(client, "/faults/\(fault)").contains(QuestionRoutes.exportLimits))
            }
        }
    }

    @Test("Reports are exported up to a size, and it is told whether these were all")
    func exportedBytes() async throws {
        try await Samples.withStore { store, _ in
            let reports = (0..<3).map { _ in Samples.report() }
            _ = try await store.insert(reports.map { try Arrival(json: $0.json(), team: "default") })
            let query = StallQuery(team: "default", since: Timestamp(seconds: 0), until: .now())
            let stalls = try await store.exportedStalls(of: reports[0].fingerprint, query)
            for (bytes, count) in [(1, 1), (1 << 20, 3)] {
                var passed = 0
                let isWhole = try await store.eachReport(of: stalls, team: "default", bytes: bytes) { _ in passed += 1 }
                #expect(passed == count && isWhole == (count == stalls.count))
            }
        }
    }

    @Test("A browser asks each time whether it has the present files of pages, and is sent those it has not")
    func assets() async throws {
        try await Client.withServer(StubStore(), CollectorOptions()) { client in
            var tags: Set<String> = []
            for name in ["style.css", "flame.css", "flame.js", "icon.svg", "live.js"] {
                func get(_ tag: String?) async throws -> Client.Answer {
                    var headers: HTTPFields = [:]
                    headers[.ifNoneMatch] = tag
                    return try await client.execute(uri: "/assets/\(name)", method: .get, headers: headers) { $0 }
                }
                let first = try await get(nil)
                let tag = try #require(first.headers[.eTag])
                #expect(first.headers[.cacheControl] == "no-cache", "\(name)")
                let isNew = tags.insert(tag).inserted
                #expect(tag.hasPrefix("\"") && tag.hasSuffix("\"") && isNew, "\(name)")
                let again = try await get(tag)
                #expect(again.status == .notModified && again.body.isEmpty && again.headers[.eTag] == tag, "\(name)")
                let other = try await get("\"of an earlier version\"")
                #expect(other.status == .ok && other.body == first.body && !other.body.isEmpty, "\(name)")
            }
        }
    }
}
