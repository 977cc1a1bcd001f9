import Foundation
import StallReports
import WebRequests

/// The course of the demo: a server in a separate process, a time without a stall, then one stall after the other.
struct DemoShow {
    let directory: String
    /// Whether reports are printed on standard output as they appear.
    let showsReports: Bool

    private static let controlTime = Duration.seconds(6)
    private static let stallMilliseconds = 600

    func run() async throws -> DemoResult {
        let server = try DemoServerProcess(directory: directory)
        defer { server.end() }
        return try await play(DemoDriver(address: "http://127.0.0.1:\(try server.port())"))
    }

    private func play(_ driver: DemoDriver) async throws -> DemoResult {
        let feed = try ReportFeed(directory: directory) { [showsReports] report, isFirst in
            guard showsReports else { return }
            print(DemoTable.line(report, isFirst: isFirst))
            fflush(nil)
        }
        defer { feed.stop() }
        note("Control: \(Self.controlTime) of requests, and no stall")
        let requests = try await driver.load(for: Self.controlTime)
        let control = DemoResult.Control(
            durationNs: Int64(Self.controlTime / .nanoseconds(1)),
            requests: requests,
            reports: try feed.reports().count
        )
        var receipts: [StallReceipt] = []
        for (index, stall) in DemoStall.allCases.enumerated() {
            note("Stall \(index + 1) of \(DemoStall.allCases.count): \(stall.title)")
            receipts.append(try await driver.inject(stall, milliseconds: Self.stallMilliseconds))
            await feed.settle(count: control.reports + receipts.count)
        }
        return DemoResult(receipts, control: control, reports: try feed.reports(), directory: directory)
    }

    private func note(_ text: String) {
        FileHandle.standardError.write(Data("demo: \(text)\n".utf8))
    }
}

/// The demo's server: this program, started as a separate process. It
/// ends at the end of its input, so that it does not outlive the demo.
private final class DemoServerProcess {
    private let process = Process()
    private let input = Pipe()
    private let output = Pipe()

    init(directory: String) throws {
        process.executableURL = URL(filePath: "/proc/self/exe").resolvingSymlinksInPath()
        process.arguments = ["--keep", "--until-input-ends", "--reports", directory]
        (process.standardInput, process.standardOutput) = (input, output)
        try process.run()
    }

    /// Waits until the server has printed its address.
    func port() throws -> Int {
        var text = ""
        while case let bytes = output.fileHandleForReading.availableData, !bytes.isEmpty {
            text += String(decoding: bytes, as: UTF8.self)
            for line in text.split(separator: "\n").dropLast(text.hasSuffix("\n") ? 0 : 1) {
                if let port = DemoAnnouncement.port(in: String(line)) { return port }
            }
        }
        process.waitUntilExit()
        throw DemoFailure(
            "the server ended before it listened (status \(process.terminationStatus)); its errors stand above"
        )
    }

    func end() {
        process.terminate()
        process.waitUntilExit()
    }
}

/// Sends the demo's requests.
struct DemoDriver {
    /// `http://host:port`
    let address: String

    init(address: String) { self.address = address }

    /// Two clients request ordinary work, one request after the other. Returns the number of answered requests.
    func load(for time: Duration) async throws -> Int {
        let end = ContinuousClock.now + time
        return try await withThrowingTaskGroup { group in
            for path in ["health", "work"] {
                group.addTask {
                    var answered = 0
                    while ContinuousClock.now < end {
                        _ = try await get(path)
                        answered += 1
                    }
                    return answered
                }
            }
            return try await group.reduce(0, +)
        }
    }

    /// Makes the server stall itself.
    func inject(_ stall: DemoStall, milliseconds: Int) async throws -> StallReceipt {
        try JSONDecoder().decode(
            StallReceipt.self,
            from: try await get("stall/\(stall.rawValue)?ms=\(milliseconds)")
        )
    }

    private func get(_ path: String) async throws -> Data {
        let (head, body) = try await WebRequest("\(address)/\(path)", limit: .whole(.seconds(60))).answer(
            bytes: 1 << 20
        )
        guard head.status == 200 else { throw DemoFailure("GET /\(path) was answered with \(head.status)") }
        return Data(body)
    }
}
