import Dispatch
import Glibc
import RunLoopKit
import StallMonitor
import StallReading
import StallReports
import Synchronization

/// The environment of a scenario: a separate process, with a monitor that watches its main loop and one worker.
final class Stage: Sendable {
    static let workerLabel = "worker"
    /// The duration of most stalls: more than twice the threshold, so that the report has additional samples. `STALL_LENGTH_MS` sets another.
    static let usualLength = Duration.milliseconds(
        unsafe getenv("STALL_LENGTH_MS").flatMap { unsafe Int(String(cString: $0)) } ?? 600
    )

    let monitor: StallMonitor
    let watch: StallMonitor.Watch?
    /// For the scenario's own files and sockets.
    let directory: String
    /// Opened when the first stall begins: threads that hold something the stall waits for measure their time from here.
    let begun = Gate()
    let place: Place
    private let worker: WorkerThread
    private let marks = Mutex<[Receipt.Span]>([])
    private let turns = Mutex<[Receipt.Span]>([])
    /// A stall that has not ended.
    private let unfinished = Mutex<Measurement?>(nil)
    private let marked = DispatchSemaphore(value: 0)

    /// The loop that stalls.
    enum Place: String, Sendable {
        case mainLoop, worker, mainActor

        /// The label of the loop in the reports.
        var label: String { self == .worker ? Stage.workerLabel : "main" }
    }

    init(_ place: Place, monitor: StallMonitor, directory: String) throws {
        self.place = place
        self.monitor = monitor
        self.directory = directory
        worker = try WorkerThread(name: "corpus-worker")
        watch = try monitor.watch(worker.loop, label: Self.workerLabel)
    }

    /// The loop that the scenario is about.
    var loop: EventRunLoop { place == .worker ? worker.loop : .main }

    /// Ends the worker's thread, for scenarios that test this.
    func endWorker() {
        worker.stop()
        worker.join()
    }

    /// Stalls the place by running `body` there, and returns when it is over.
    func stall(_ body: @escaping @Sendable () -> Int) {
        run { [self] in mark(body) }
    }

    /// Runs `body` on the place, and returns when it is done.
    func run(_ body: @escaping @Sendable () -> Void) {
        let done = Gate()
        start {
            body()
            done.open()
        }
        done.wait()
    }

    /// Runs `body` on the place, and does not wait.
    func start(_ body: @escaping @Sendable () -> Void) {
        switch place {
        case .mainActor: Task { @MainActor in body() }
        case .mainLoop, .worker: loop.perform(body)
        }
    }

    /// Executes the work that stalls the calling thread, and records its times and CPU use.
    ///
    /// - Parameter other: The stalled loop, if it is not the scenario's own.
    func mark(of other: Place? = nil, _ body: () -> Int) {
        let measurement = Measurement(label: (other ?? place).label)
        unfinished.withLock { $0 = measurement }
        begun.open()
        keep(body())
        unfinished.withLock { $0 = nil }
        noteStall(measurement.span())
    }

    /// A measurement of the place's thread, started on that thread.
    func measurement() -> Measurement {
        let begun = Mutex<Measurement?>(nil)
        run { [place] in begun.withLock { $0 = Measurement(label: place.label) } }
        return begun.withLock { $0 } ?? Measurement(label: place.label)
    }

    /// Records one stall that consists of many pieces of work.
    func noteStall(_ span: Receipt.Span) {
        marks.withLock { $0.append(span) }
        marked.signal()
    }

    /// Blocks the thread until `count` more stalls are over.
    func waitForMarks(_ count: Int) {
        for _ in 0..<count { marked.wait() }
    }

    /// Executes work that is not a stall. On a busy machine it may become a stall anyway, which is then recorded.
    func turn(_ body: () -> Int) {
        let measurement = Measurement(label: place.label)
        keep(body())
        let span = measurement.span()
        guard span.isSlowTurn else { return }
        turns.withLock { $0.append(span) }
    }

    /// The calling thread sleeps.
    func rest(_ duration: Duration) { sleepFor(duration) }

    /// All recorded stalls and turns.
    var receipt: Receipt {
        let open = unfinished.withLock { $0 }.map { [$0.span(onOwnThread: false)] } ?? []
        return Receipt(stalls: marks.withLock { $0 } + open, slowTurns: turns.withLock { $0 })
    }

    /// Ends the process without any cleanup once the unfinished stall is reported: neither the monitor nor the stall ends
    /// normally.
    func endInMidStall() -> Never {
        rest(.milliseconds(1_200))
        for _ in 0..<90
        where (try? ReportReader(path: directory + "/reports").names().contains { $0.content == .stall }) != true {
            rest(.milliseconds(100))
        }
        receipt.write(in: directory)
        _exit(0)
    }
}

/// The machine cannot play a scenario.
struct SkippedScenario: Error {
    let reason: String

    init(_ reason: String) { self.reason = reason }
}
