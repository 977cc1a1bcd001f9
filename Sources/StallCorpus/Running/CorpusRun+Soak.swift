import FoundationEssentials
import Glibc
import RunLoopKit
import StallMonitor
import StallReading
import StallReports
import Synchronization

/// The result of a soak.
package struct SoakResult: Codable, Sendable {
    var seconds: Int
    /// The turns of all loops.
    var turns: UInt64 = 0
    /// Reports of turns that really were long, as measured by the loops themselves.
    var trueStalls = 0
    var falseAlarms: [FoundStall] = []
    var ticks: Int64 = 0
    /// The ticks at which the watchdog itself was late.
    var lateTicks: Int64 = 0
    var watchdogCPUMs = 0.0
    var failure: String?

    package var passed: Bool { failure == nil && falseAlarms.isEmpty && turns > 0 }

    package var text: String {
        if let failure { return "soak: \(failure)\n" }
        let head =
            "soak: \(seconds) s, \(turns) turns, \(ticks) looks (\(lateTicks) late): \(falseAlarms.count) false alarms, "
        let alarms = falseAlarms.map { "  \($0.label), \($0.lengthMs) ms, \($0.verdict): \($0.summary)\n" }
        return head + "\(trueStalls) turns that were long indeed; the watchdog took \(Int(watchdogCPUMs)) ms of CPU\n"
            + alarms.joined()
    }

    package var json: String {
        let encoder = JSONEncoder()
        encoder.keyEncodingStrategy = .convertToSnakeCase
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys]
        return ((try? encoder.encode(self)).map { String(decoding: $0, as: UTF8.self) } ?? "{}") + "\n"
    }
}

extension CorpusRun {
    /// Watches loops that do little work for this number of seconds.
    package func soak(seconds: Int) async -> SoakResult {
        await withCheckedContinuation { continuation in
            startThread(named: "corpus-runner") {
                continuation.resume(returning: playSoak(seconds))
            }
        }
    }

    private func playSoak(_ seconds: Int) -> SoakResult {
        let busy = BusyThreads(load)
        defer { busy.stop() }
        let name = Soak(seconds: seconds).name
        let place = "\(directory)/\(name)"
        if let problem = make(place) { return SoakResult(seconds: seconds, failure: problem) }
        let end = ChildProcess.run(
            command,
            adding: [ScenarioProcess.nameVariable: name, ScenarioProcess.directoryVariable: place],
            output: place + "/output.txt",
            within: .seconds(seconds + 120)
        )
        let contents = (try? ReportReader(path: place + "/reports").contents()) ?? .init()
        return SoakResult(seconds, end, Receipt(in: place), contents)
    }
}

extension SoakResult {
    fileprivate init(
        _ seconds: Int,
        _ end: ChildProcess.End,
        _ receipt: Receipt?,
        _ contents: ReportReader.Contents
    ) {
        let slow = receipt?.slowTurns ?? []
        let alarms = contents.reports.filter { !$0.isTrue(of: slow) }
        self.init(
            seconds: seconds,
            turns: contents.runs.flatMap(\.watched).reduce(0) { $0 + ($1.turns ?? 0) },
            trueStalls: contents.reports.count - alarms.count,
            falseAlarms: alarms.map(FoundStall.init),
            ticks: contents.runs.reduce(0) { $0 + $1.ticks },
            lateTicks: contents.runs.reduce(0) { $0 + $1.lateTicks },
            watchdogCPUMs: contents.runs.reduce(0) { $0 + Double($1.cost.watchdogCPUNs) / 1e6 },
            failure: end.problem ?? receipt?.failure ?? (receipt == nil ? "it left no receipt" : nil)
        )
    }
}

/// Loops that rest, or do little work, for a long time, on a machine that is
/// overloaded: no stall may be reported except turns that really were long.
package struct Soak: Sendable {
    let seconds: Int

    private static let prefix = "soak-"

    package init(seconds: Int) { self.seconds = seconds }

    /// Parses the name that is passed in a child's environment.
    init?(named name: String) {
        guard name.hasPrefix(Self.prefix), let seconds = Int(name.dropFirst(Self.prefix.count)) else { return nil }
        self.init(seconds: seconds)
    }

    var name: String { Self.prefix + "\(seconds)" }

    /// Runs in the child process: the main loop and two workers do a millisecond of work now and then, two more workers rest.
    func play(in directory: String) -> Int32 {
        let monitor = StallMonitor.start(.init(directory: directory + "/reports", service: .init(name: "soak")))
        let busyTimes = Mutex<[BusyTimes]>([])
        do {
            let workers = try (0..<4).map { try WorkerThread(name: "soak-\($0)") }
            for worker in workers { try monitor.watch(worker.loop, label: worker.name) }
            let lightlyBusy = [(EventRunLoop.main, "main")] + workers.prefix(2).map { ($0.loop, $0.name) }
            for (loop, label) in lightlyBusy {
                busyTimes.withLock { $0.append(BusyTimes(of: loop, label)) }
                loop.add(EventTimer(every: .milliseconds(37)) { _ in keep(handleShortEvent()) }, to: .common)
                loop.wakeUp()
            }
            sleepFor(.seconds(seconds))
            monitor.stop()
            for worker in workers { worker.stop() }
        } catch {
            Receipt(failure: "\(error)").write(in: directory)
            return 1
        }
        Receipt(slowTurns: busyTimes.withLock { $0 }.flatMap(\.long)).write(in: directory)
        return 0
    }
}

/// Records the busy times of a loop, measured by its own activities.
private final class BusyTimes: Sendable {
    private struct State {
        var since: Measurement?
        var long: [Receipt.Span] = []
    }

    private let state = Mutex(State())

    init(of loop: EventRunLoop, _ label: String) {
        let leaving = LoopObserver(activities: .afterWaiting, order: .min) { [state = Weak(self)] _, _ in
            state.value?.state.withLock { $0.since = Measurement(label: label) }
        }
        let resting = LoopObserver(activities: .beforeWaiting, order: .max) { [state = Weak(self)] _, _ in
            state.value?.rest()
        }
        loop.add(leaving, to: .common)
        loop.add(resting, to: .common)
    }

    private func rest() {
        state.withLock { state in
            guard let since = state.since.take() else { return }
            let span = since.span()
            if span.isSlowTurn { state.long.append(span) }
        }
    }

    var long: [Receipt.Span] { state.withLock { $0.long } }

    private struct Weak: Sendable {
        weak var value: BusyTimes?

        init(_ value: BusyTimes) { self.value = value }
    }
}
