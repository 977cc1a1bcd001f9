import Foundation
import StallReports
import Testing

@testable import StallShipping
@testable import WebRequests

@Suite("The checkpoint")
final class CheckpointTests {
    private let path = NSTemporaryDirectory() + "checkpoint-\(UUID())"
    private let ids = (0..<5).map { _ in ULID.make() }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    private func shipment(_ index: Int, _ version: Shipment.Version) -> Shipment {
        Shipment(id: ids[index], version: version, directory: "/x")
    }

    @Test("It remembers the latest version of each stall, also after it is opened again")
    func remembers() throws {
        do {
            var checkpoint = try Checkpoint(path: path)
            try checkpoint.note([shipment(0, .ongoing), shipment(1, .ended)])
            try checkpoint.note([shipment(2, .counted(7)), shipment(3, .provisional), shipment(4, .closed(7))])
        }
        let checkpoint = try Checkpoint(path: path)
        let known = [
            shipment(0, .ongoing), shipment(1, .ongoing), shipment(1, .provisional), shipment(1, .ended),
            shipment(2, .counted(7)), shipment(3, .provisional), shipment(4, .counted(8)), shipment(4, .closed(7)),
        ]
        for shipment in known {
            let isKnown = checkpoint.has(shipment)
            #expect(isKnown)
        }
        let unknown = [
            shipment(0, .provisional), shipment(2, .counted(8)), shipment(2, .closed(6)), shipment(3, .ended),
            shipment(4, .closed(8)),
        ]
        for shipment in unknown {
            let isKnown = checkpoint.has(shipment)
            #expect(!isKnown)
        }
    }

    @Test("Counts of a running process are new whatever their time: clocks are set back. After its end none are")
    func clockSetBack() throws {
        do {
            var checkpoint = try Checkpoint(path: path)
            try checkpoint.note([shipment(0, .counted(9)), shipment(1, .counted(9)), shipment(1, .closed(5))])
            let isKnown = (checkpoint.has(shipment(0, .counted(5))), checkpoint.has(shipment(1, .counted(7))))
            #expect(isKnown == (false, true))
            try checkpoint.note([shipment(0, .counted(5))])
        }
        let checkpoint = try Checkpoint(path: path)
        let isKnown = (checkpoint.has(shipment(0, .counted(5))), checkpoint.has(shipment(1, .counted(7))))
        #expect(isKnown == (true, true))
    }

    @Test("A line that is cut off anywhere counts as absent; the lines before it stay")
    func cutOff() throws {
        do {
            var checkpoint = try Checkpoint(path: path)
            try checkpoint.note([shipment(0, .ended), shipment(1, .counted(1234))])
        }
        let whole = try Data(contentsOf: URL(filePath: path))
        for length in whole.count - 32..<whole.count {
            try whole.prefix(length).write(to: URL(filePath: path))
            var checkpoint = try Checkpoint(path: path)
            let isKnown = checkpoint.has(shipment(0, .ended))
            #expect(isKnown)
            for part in [1, 12, 123, 1234] as [Int64] {
                let isKnown = checkpoint.has(shipment(1, .counted(part)))
                #expect(!isKnown)
            }
            try checkpoint.note([shipment(2, .ended)])
        }
        let checkpoint = try Checkpoint(path: path)
        let isKnown = checkpoint.has(shipment(2, .ended))
        #expect(isKnown)
    }

    @Test("Its size is limited; it keeps the latest versions and stays locked")
    func bounded() throws {
        let all = (0..<95).map { Shipment(id: ULID(rawValue: 1 + $0), version: .ended, directory: "/x") }
        do {
            var checkpoint = try Checkpoint(path: path, limit: 10)
            for shipment in all {
                try checkpoint.note([shipment])
                let lines = try String(contentsOfFile: path, encoding: .utf8).split(separator: "\n").count
                #expect(lines <= 1 + 2 * 10)
            }
            #expect(throws: ShippingError.self) { _ = try Checkpoint(path: self.path) }
        }
        let checkpoint = try Checkpoint(path: path, limit: 10)
        let known = all.filter { checkpoint.has($0) }
        #expect(known == all.suffix(10))
    }

    @Test("Anything but a regular file is refused, and stays")
    func special() throws {
        try #require(unsafe mkfifo(path, 0o600) == 0)
        #expect(throws: ShippingError.self) { _ = try Checkpoint(path: self.path) }
        var status = stat()
        #expect(unsafe lstat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFIFO)
    }

    @Test("If it was removed with its directory, it is there again with the next shipment, and stays locked")
    func removed() throws {
        let directory = path + "-directory"
        let path = directory + "/checkpoint"
        func make() throws {
            try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        }
        defer { try? FileManager.default.removeItem(atPath: directory) }
        try make()
        do {
            var checkpoint = try Checkpoint(path: path)
            try checkpoint.note([shipment(0, .ended)])
            try FileManager.default.removeItem(atPath: directory)
            var isWritten = true
            do { try checkpoint.note([shipment(1, .ended)]) } catch { isWritten = false }
            #expect(!isWritten)
            try make()
            try checkpoint.note([shipment(2, .ended)])
            #expect(throws: ShippingError.self) { _ = try Checkpoint(path: path) }
        }
        let checkpoint = try Checkpoint(path: path)
        let known = (0..<3).filter { checkpoint.has(shipment($0, .ended)) }
        #expect(known == [0, 1, 2])
    }

    @Test("Nothing at the place of its draft holds it up: what a killed process left there, a pipe, or a link")
    func drafts() throws {
        let (draft, target) = (path + ".partial", path + ".target")
        defer { try? FileManager.default.removeItem(atPath: target) }
        try Data("keep".utf8).write(to: URL(filePath: target))
        let others: [() -> Bool] = [
            { FileManager.default.createFile(atPath: draft, contents: Data("stall-ship".utf8)) },
            { unsafe mkfifo(draft, 0o600) == 0 },
            { unsafe symlink(target, draft) == 0 },
        ]
        for makeOther in others {
            try #require(makeOther())
            var checkpoint = try Checkpoint(path: path)
            try checkpoint.note([shipment(0, .ended)])
            #expect(!FileManager.default.fileExists(atPath: draft))
        }
        #expect(try String(contentsOfFile: target, encoding: .utf8) == "keep")
        #expect(try String(contentsOfFile: path, encoding: .utf8).hasSuffix(" ended\n"))
    }

    @Test("Only one process at a time can have it")
    func owned() throws {
        let first = try Checkpoint(path: path)
        #expect(throws: ShippingError.self) { _ = try Checkpoint(path: self.path) }
        let isKnown = first.has(shipment(0, .ended))
        #expect(!isKnown)
    }
}

@Suite("Shipments that wait")
struct ShipmentQueueTests {
    private let ids = (0..<4).map { _ in ULID.make() }

    @Test("Shipments keep their order; a later version replaces an earlier one, even one being sent")
    func order() {
        var queue = ShipmentQueue()
        let all = ids.map { Shipment(id: $0, version: .ongoing, directory: "/x") }
        for (index, shipment) in all.enumerated() { queue.add(shipment, [UInt8(index)]) }
        let later = Shipment(id: ids[1], version: .ended, directory: "/x")
        queue.add(later, [9])
        queue.add(all[1], [8])
        #expect(queue.first(3) == [all[0], later, all[2]] && queue.bytes(of: later) == [9])
        queue.remove([all[0], all[1]])
        #expect(queue.first(9) == [later, all[2], all[3]])
        queue.moveToEnd([all[2], all[0]])
        #expect(queue.first(9) == [later, all[3], all[2]])
        queue.moveToEnd([all[3]])
        queue.remove([later])
        queue.add(later, nil)
        #expect(queue.first(9) == [all[2], all[3], later] && queue.count == 3 && queue.bytes(of: later) == nil)
        queue.remove([later, all[3], all[0]])
        #expect(queue.first(9) == [all[2]] && queue.count == 1)
        queue.add(all[3], nil)
        queue.remove([all[2]])
        #expect(queue.first(9) == [all[3]])
    }

    @Test("Encoded shipments are kept up to a size, whatever their number")
    func size() {
        var queue = ShipmentQueue()
        let all = ids.map { Shipment(id: $0, version: .ongoing, directory: "/x") }
        let half = [UInt8](repeating: 7, count: ShipmentQueue.madeLimit / 2)
        for shipment in all.prefix(3) { queue.add(shipment, half) }
        #expect(all.prefix(3).map { queue.bytes(of: $0) != nil } == [true, true, false])
        queue.remove([all[0]])
        queue.add(all[3], half)
        #expect(queue.bytes(of: all[3]) == half && queue.count == 3)
        // A later version takes the place of the earlier one.
        let later = Shipment(id: ids[1], version: .ended, directory: "/x")
        queue.add(later, half)
        #expect(queue.bytes(of: later) == half)
    }
}

@Suite("A receiver's answer")
struct HTTPAnswerTests {
    private func answer(
        _ status: Int,
        _ body: String = "",
        retryAfter: String? = nil,
        isCollector: Bool = false
    ) -> Answer {
        HTTPAnswer.read(
            .init(status: status, fields: ["retry-after": retryAfter].compactMapValues(\.self)),
            Array(body.utf8),
            isCollector: isCollector
        )
    }

    @Test("What an OTLP answer says was accepted, in part or whole")
    func accepted() {
        #expect(answer(200, "{}") == .accepted(rejected: 0, message: ""))
        #expect(answer(200, "") == .accepted(rejected: 0, message: ""))
        let partial = #"{"partialSuccess":{"rejectedLogRecords":"2","errorMessage":"too old"}}"#
        #expect(answer(200, partial) == .accepted(rejected: 2, message: "too old"))
        let points = #"{"partialSuccess":{"rejectedDataPoints":3}}"#
        #expect(answer(202, points) == .accepted(rejected: 3, message: ""))
        #expect(answer(200, #"{"partialSuccess":{"rejectedLogRecords":"-9"}}"#) == .accepted(rejected: 0, message: ""))
        // At this number Foundation's decoder ends the process.
        let long = #"{"partialSuccess":{"rejectedLogRecords":\#(String(repeating: "9", count: 168))e-152}}"#
        #expect(answer(200, long) == .accepted(rejected: 0, message: ""))
    }

    @Test("A server that does not answer as a collector has accepted nothing")
    func noCollector() {
        let receipt = #"{"accepted":2,"reasons":[{"line":2,"reason":"malformed"}],"refused":1}"#
        #expect(answer(202, receipt, isCollector: true) == .accepted(rejected: 1, message: "malformed"))
        for body in ["", "{}", "<html>Sign in</html>", #"{"partialSuccess":{}}"#] {
            let expected = Answer.unavailable("it does not answer as a collector does (200)", retryAfter: nil)
            #expect(answer(200, body, isCollector: true) == expected)
        }
    }

    @Test("It is said what to give: a token if the request had none, and a new address without the path of the request")
    func advice() {
        func reason(_ status: Int, _ fields: [String: String] = [:], hasToken: Bool) -> String? {
            let head = WebRequest.Head(status: status, fields: fields)
            let answer = HTTPAnswer.read(head, [], isCollector: false, path: "v1/logs", hasToken: hasToken)
            guard case .unavailable(let reason, _) = answer else { return nil }
            return reason
        }
        #expect(
            reason(401, hasToken: false) == "it wants a token (401): give one by --token-file or $STALL_MONITOR_TOKEN"
        )
        #expect(reason(401, hasToken: true)?.hasPrefix("it does not know the token") == true)
        for (location, address) in [
            ("https://b.example.com/v1/logs", "https://b.example.com"),
            ("https://b.example.com/x", "https://b.example.com/x"),
        ] {
            let words = "it answers with a redirect to \(address) (308): give that address"
            #expect(reason(308, ["location": location], hasToken: true) == words)
        }
    }

    @Test("Of a page that a proxy answers with, the title is the reason")
    func page() {
        let page = "\r\n<html>\r\n<head><TITLE>502 Bad Gateway</TITLE></head>\r\n<body>nginx</body></html>\r\n"
        #expect(answer(502, page) == .unavailable("it answers 502: 502 Bad Gateway", retryAfter: nil))
        #expect(answer(502, "<p>no</p>") == .unavailable("it answers 502", retryAfter: nil))
        #expect(answer(502, "overloaded\n") == .unavailable("it answers 502: overloaded", retryAfter: nil))
    }

    @Test("When a request is retried: after seconds, at a date, without a header, with an invalid one")
    func later() {
        #expect(answer(503, retryAfter: "7") == .unavailable("it answers 503", retryAfter: .seconds(7)))
        for text in ["-1", "soon", "99999999999999999999", ""] {
            #expect(answer(502, retryAfter: text) == .unavailable("it answers 502", retryAfter: nil))
        }
        let now = Date(timeIntervalSince1970: 784_111_777 - 60)
        #expect(HTTPAnswer.delay("Sun, 06 Nov 1994 08:49:37 GMT", now: now) == .seconds(60))
        #expect(HTTPAnswer.delay("Sun, 06 Nov 1994 08:49:37 GMT", now: Date()) == .zero)
    }

    @Test("The delay grows to a minute, respects the receiver's request, and starts again after a success")
    func backoff() {
        var backoff = Backoff()
        for full in [1.0, 2, 4, 8, 16, 32, 60, 60, 60] {
            let pause = backoff.failed(retryAfter: nil) / .seconds(1)
            #expect(pause >= full / 2 && pause <= full)
        }
        let asked = backoff.failed(retryAfter: .seconds(100)) / .seconds(1)
        #expect(asked >= 100 && asked <= 110)
        #expect(backoff.failed(retryAfter: .seconds(1 << 40)) <= Backoff.longest * 1.1)
        backoff.succeeded()
        #expect(backoff.failed(retryAfter: nil) <= .seconds(1))
    }
}
