import Foundation
import Glibc
import StallReports

enum Sample {
    static let start = Timestamp(seconds: 1_795_000_000, nanoseconds: 123_456_789)
    static let thread = StallReport.Thread(id: 4711, name: "main", state: "S")

    /// A finished stall of a fixed host and process, so that its page is always the same.
    static func report(id: ULID = ULID(rawValue: 1 << 90), state: StallState = .recovered) -> StallReport {
        let names: [(String, Int, Bool)] = [
            ("clock_nanosleep", 1, false), ("usleep", 1, false), ("shop.Cart.total() -> Swift.Int", 0, true),
            ("swift_job_run", 1, false), ("drain", 1, false), ("main", 0, true), ("__libc_start_main", 1, false),
        ]
        let frames = names.enumerated().map { index, frame in
            StallReport.Frame(
                address: Address(0x1000 + UInt64(index)),
                module: frame.1,
                function: frame.0,
                functionOffset: 0x10,
                own: frame.2
            )
        }
        let modules = [
            StallReport.Module(path: "/srv/shop", buildID: "aa11", loadBase: 0x1000),
            StallReport.Module(path: "/usr/lib/libc.so.6", loadBase: 0x2000),
        ]
        return StallReport(
            id: id,
            kind: .blocked,
            state: state,
            severity: .error,
            startedAt: start,
            detectedAt: start.advanced(byNanoseconds: 250_000_000),
            endedAt: state == .recovered ? start.advanced(byNanoseconds: 612_345_678) : nil,
            durationNs: 612_345_678,
            rule: .init(name: .blocked, tickNs: 50_000_000, ticks: 5),
            host: .init(name: "web1", bootID: "other", kernel: "6.1", cpus: 2),
            service: .init(name: "shop", version: "1.2"),
            process: .init(pid: 4711, executable: "/srv/shop"),
            watched: .init(label: "main", mode: "default", activity: "before_sources", turn: 1234),
            thread: thread,
            cause: .init(
                verdict: .blocked,
                summary: "Asleep in clock_nanosleep.",
                systemCall: .init(number: 230, name: "clock_nanosleep", arguments: [0x1, 0x0]),
                evidence: .init(cpuNs: 0, runDelayNs: 81_000, windowNs: 250_000_000, majorFaults: 4)
            ),
            stacks: [.init(thread: thread, capturedAt: start, method: .quiet, frames: frames)],
            culprit: .init(function: "shop.Cart.total() -> Swift.Int", module: "shop", stack: 0, frame: 2),
            modules: modules,
            fingerprint: .make(kind: .blocked, frames: frames, modules: modules),
            suppressed: 3,
            metadata: ["region": "eu"],
            monitor: .init(heldNs: 0, unwindNs: 81_000, symbolicationNs: 9_000, copiedBytes: 4096)
        )
    }

    /// This many copies of `report`, each later than the one before.
    static func repeats(of report: ULID, count: Int) -> StallReport.Repeats {
        .init(
            count: count,
            report: report,
            firstAt: start.advanced(byNanoseconds: 1_000_000_000),
            lastAt: start.advanced(byNanoseconds: 9_000_000_000),
            totalNs: 4_000_000_000,
            longestNs: 590_000_000
        )
    }

    /// An ongoing stall, in the test's own process.
    static func ongoing() -> StallReport {
        var report = report(id: .make(), state: .ongoing)
        (report.host, report.process) = (.current(), .current())
        return report
    }

    static func run() -> RunRecord {
        RunRecord(
            state: .stopped,
            startedAt: start,
            updatedAt: start,
            stoppedAt: start,
            host: .init(name: "web1"),
            process: .init(pid: 4711),
            monitorVersion: "0.1.0",
            watched: [.init(label: "main", watchedNs: 60_000_000_000)]
        )
    }

    /// What a hostile writer puts into every string.
    static let hostileText = "\u{1B}]0;owned\u{7}\u{1B}[2J\u{9B}31m\r\n\u{202E}\u{200B}\u{2028}x"

    /// A report all of whose strings are hostile.
    static func hostile() throws -> StallReport {
        var hostile = report(id: .make())
        let text = hostileText
        (hostile.kind, hostile.state) = (StallKind(rawValue: text), StallState(rawValue: text))
        (hostile.severity, hostile.rule.name) = (Severity(rawValue: text), StallKind(rawValue: text))
        hostile.host = .init(name: text, bootID: text, kernel: text, cpus: 1)
        hostile.service = .init(name: text, version: text, instance: text)
        (hostile.process.executable, hostile.process.buildID) = (text, text)
        hostile.watched = .init(type: WatchedType(rawValue: text), label: text, mode: text, activity: text)
        hostile.thread = .init(id: 1, name: text, state: text)
        hostile.cause.verdict = Verdict(rawValue: text)
        hostile.cause.summary = text
        hostile.cause.systemCall?.name = text
        hostile.cause.evidence?.waitChannel = text
        let frame = StallReport.Frame(
            address: 1,
            module: 0,
            function: text,
            symbol: text,
            own: true,
            foundBy: FrameOrigin(rawValue: text)
        )
        hostile.stacks = [
            .init(
                role: StackRole(rawValue: text),
                thread: hostile.thread,
                capturedAt: start,
                method: CaptureMethod(rawValue: text),
                frames: [frame],
                error: text
            )
        ]
        hostile.culprit = .init(function: text, symbol: text, module: text, stack: 0, frame: 0)
        hostile.modules = [.init(path: text, buildID: text, loadBase: 0)]
        hostile.trace = .init(traceID: text, spanID: text)
        hostile.metadata = [text: text]
        return hostile
    }
}

extension String {
    /// Characters that a terminal obeys or hides, except line feeds.
    var commandsTerminal: Bool {
        unicodeScalars.contains { $0 != "\n" && VisibleText.of(String($0)) != String($0) }
    }
}

/// A report directory of the test's own, removed with it; it does not exist before the first write.
final class ReportsFixture: Sendable {
    let root: String
    var path: String { root + "/reports" }
    var store: ReportDirectory { ReportDirectory(path: path) }

    /// - Parameter inMemory: Keeps it off the disks. A monitor or 'watch' that ends waits some seconds for a slow disk, and then does
    ///   without it: a test of what a whole run has left would depend on the disk's speed.
    init(inMemory: Bool = false) throws {
        let folder = inMemory ? Self.memory : nil
        root = "\(folder ?? "/tmp")/stall-command-\(ULID.make())"
        try FileManager.default.createDirectory(atPath: root, withIntermediateDirectories: true)
    }

    /// The system's folder in memory. Nil if there is none, or if programs in it cannot be run.
    private static let memory: String? = {
        let path = "/dev/shm"
        var system = statvfs()
        guard unsafe access(path, W_OK | X_OK) == 0, unsafe statvfs(path, &system) == 0 else { return nil }
        // ST_NOEXEC, which Swift does not import.
        return system.f_flag & 8 == 0 ? path : nil
    }()

    deinit { try? FileManager.default.removeItem(atPath: root) }

    /// Writes a file with any content under a report's name.
    func plant(_ bytes: some Sequence<UInt8>) throws {
        try Data(bytes).write(to: URL(filePath: "\(path)/\(ReportFileName(.stall, .make()))"))
    }
}
