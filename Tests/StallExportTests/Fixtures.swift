import Foundation
import StallExport
import StallReports
import Testing

/// An external program, and files for it.
enum Tool {
    static func exists(_ name: String) -> Bool { path(of: name) != nil }

    /// Why a test of `reads` is skipped.
    static let missing: Comment = "its reader is not installed: scripts/test --all installs it"

    /// Whether the Python that `scripts/setup --all` installs has a module.
    static func reads(_ module: String) -> Bool {
        exists(readers) && (try? run(readers, ["-c", "import \(module)"]).status) == 0
    }

    static let readers = URL(filePath: #filePath).deletingLastPathComponent()
        .appending(path: "../../.build-readers/bin/python3").standardized.path

    private static func path(of name: String) -> String? {
        if name.hasPrefix("/") { return FileManager.default.isExecutableFile(atPath: name) ? name : nil }
        return ["/usr/bin", "/usr/local/bin", "/bin"].map { "\($0)/\(name)" }.first {
            FileManager.default.isExecutableFile(atPath: $0)
        }
    }

    static func run(_ name: String, _ arguments: [String], input: Data = Data()) throws -> (
        status: Int32, output: String
    ) {
        let (output, source) = (try File(Data(), suffix: "out"), try File(input, suffix: "in"))
        let process = Process()
        process.executableURL = path(of: name).map { URL(filePath: $0) }
        process.arguments = arguments
        process.standardInput = try FileHandle(forReadingFrom: URL(filePath: source.path))
        let handle = try FileHandle(forWritingTo: URL(filePath: output.path))
        (process.standardOutput, process.standardError) = (handle, FileHandle.nullDevice)
        try process.run()
        process.waitUntilExit()
        let text = String(decoding: try Data(contentsOf: URL(filePath: output.path)), as: UTF8.self)
        return (process.terminationStatus, text)
    }

    /// A file that is removed when this object is freed.
    final class File {
        let path: String

        init(_ data: Data, suffix: String) throws {
            path = FileManager.default.temporaryDirectory.appending(path: "export-\(UUID()).\(suffix)").path
            try data.write(to: URL(filePath: path))
        }

        deinit { try? FileManager.default.removeItem(atPath: path) }
    }
}

/// Reports with names that each format must escape.
enum ExportSample {
    static let hostile = "</script><b>\"a\",;b'\u{1B}[31m\n=cmd|' /C calc'!A0 \u{202E}x"

    static let start = Timestamp(seconds: 1_795_000_000, nanoseconds: 123_456_789)

    static let modules = [
        StallReport.Module(path: "/srv/shop", buildID: "aa11", loadBase: 0x1000),
        StallReport.Module(path: "/usr/lib/libc.so.6", loadBase: 0x2000),
    ]

    static func frame(_ name: String, own: Bool = false, line: Int? = nil) -> StallReport.Frame {
        .init(
            address: Address(UInt64(name.utf8.count)),
            module: own ? 0 : 1,
            offset: 0x10,
            function: name,
            file: line.map { _ in "Sources/Shop/Cart.swift" },
            line: line,
            own: own
        )
    }

    /// A stall with stacks, innermost first, each with the number of milliseconds for which it was seen.
    static func report(
        _ stacks: [(frames: [StallReport.Frame], milliseconds: Int64?)],
        label: String = "main",
        milliseconds: Int64 = 600,
        culprit: String = "total()"
    ) -> StallReport {
        let thread = StallReport.Thread(id: 4711, name: "main")
        return StallReport(
            kind: .blocked,
            state: .recovered,
            severity: .error,
            startedAt: start,
            detectedAt: start.advanced(byNanoseconds: 250_000_000),
            endedAt: start.advanced(byNanoseconds: milliseconds * 1_000_000),
            durationNs: milliseconds * 1_000_000,
            rule: .init(name: .blocked, tickNs: 50_000_000, ticks: 5),
            host: .init(name: "web1"),
            service: .init(name: "shop", version: "1.2"),
            process: .init(pid: 7, executable: "/srv/shop"),
            watched: .init(label: label),
            thread: thread,
            cause: .init(verdict: .onCPU, summary: "It computed."),
            stacks: stacks.map { frames, milliseconds in
                .init(
                    thread: thread,
                    capturedAt: start,
                    method: .signal,
                    frames: frames,
                    sampledNs: milliseconds.map { $0 * 1_000_000 }
                )
            },
            culprit: .init(function: culprit, file: "Sources/Shop/Cart.swift", line: 12, stack: 0, frame: 0),
            modules: modules,
            fingerprint: .make(kind: .blocked, frames: [], modules: []),
            trace: .init(traceID: "4bf92f3577b34da6a3ce929d0e0e4736", spanID: "00f067aa0ba902b7")
        )
    }

    /// Two thirds of 600 ms in `price`, a third in `tax`, and 400 ms of another loop without a stack.
    static let reports = [
        report([
            ([frame("price()", own: true, line: 3), frame("total()", own: true, line: 12), frame("main")], 200),
            ([frame("tax()", own: true, line: 9), frame("total()", own: true, line: 14), frame("main")], 100),
        ]),
        report([], label: "worker", milliseconds: 400),
    ]

    static let run: RunRecord = {
        var run = RunRecord(
            state: .stopped,
            startedAt: start,
            updatedAt: start.advanced(byNanoseconds: 60_000_000_000),
            host: .init(name: "web1"),
            service: .init(name: "shop"),
            process: .init(pid: 7),
            monitorVersion: "1"
        )
        run.watched = [.init(label: "main", watchedNs: 60_000_000_000, turns: 1_000)]
        run.stalls = ["blocked": 2]
        return run
    }()

    static func export(_ format: ExportFormat, _ reports: [StallReport] = reports, runs: [RunRecord] = [run]) throws
        -> Data
    {
        var exporter = format.makeExporter()
        var bytes = try exporter.begin(runs)
        for report in reports { bytes += try exporter.add(report) }
        return Data(bytes + (try exporter.end()))
    }

    static func text(_ format: ExportFormat, _ reports: [StallReport] = reports, runs: [RunRecord] = [run]) throws
        -> String
    {
        String(decoding: try export(format, reports, runs: runs), as: UTF8.self)
    }

    static func json(_ data: Data) throws -> [String: Any] {
        guard let object = try JSONSerialization.jsonObject(with: data) as? [String: Any] else {
            throw CocoaError(.coderReadCorrupt)
        }
        return object
    }
}
