import Dispatch
import Glibc
import RunLoopKit
import StallMonitor
import StallReports
import Synchronization

/// Where a scenario is played: a process of its own, with a monitor that watches its main loop and one worker.
final class Stage: Sendable {
    static let workerLabel = "worker"
    /// How long most stalls last: over twice the threshold, so that a report of it has grown samples.
    static let usualLength = Duration.milliseconds(600)

    let monitor: StallMonitor
    let watch: StallMonitor.Watch?
    /// For files and sockets of the scenario's own.
    let directory: String
    /// Opened as the first stall begins: those who hold something the stall waits for count from here.
    let begun = Gate()
    let place: Place
    private let worker: WorkerThread
    private let marks = Mutex<[Receipt.Span]>([])
    private let turns = Mutex<[Receipt.Span]>([])
    /// A stall that goes on.
    private let unfinished = Mutex<Measurement?>(nil)
    private let marked = DispatchSemaphore(value: 0)

    /// Whose turns stand still.
    enum Place: String, Sendable {
        case mainLoop, worker, mainActor

        /// What the reports call the loop.
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

    /// The worker's thread, for those who end it.
    func endWorker() {
        worker.stop()
        worker.join()
    }

    /// Has the place stand still in `body`, and returns when it is over.
    func stall(_ body: @escaping @Sendable () -> Int) {
        run { [self] in mark(body) }
    }

    /// Has the place do some work, and returns when it is done.
    func run(_ body: @escaping @Sendable () -> Void) {
        let done = Gate()
        start {
            body()
            done.open()
        }
        done.wait()
    }

    /// Has the place do some work, and does not wait.
    func start(_ body: @escaping @Sendable () -> Void) {
        switch place {
        case .mainActor: Task { @MainActor in body() }
        case .mainLoop, .worker: loop.perform(body)
        }
    }

    /// Does the work that stalls the calling thread, and notes when and at whose cost.
    ///
    /// - Parameter other: the loop that stands still, if it is not the scenario's own.
    func mark(of other: Place? = nil, _ body: () -> Int) {
        let measurement = Measurement(label: (other ?? place).label)
        unfinished.withLock { $0 = measurement }
        begun.open()
        keep(body())
        unfinished.withLock { $0 = nil }
        noteStall(measurement.span())
    }

    /// A measurement of the place's thread, begun there.
    func measurement() -> Measurement {
        let begun = Mutex<Measurement?>(nil)
        run { [place] in begun.withLock { $0 = Measurement(label: place.label) } }
        return begun.withLock { $0 } ?? Measurement(label: place.label)
    }

    /// One stall that is made of many pieces of work.
    func noteStall(_ span: Receipt.Span) {
        marks.withLock { $0.append(span) }
        marked.signal()
    }

    /// Blocks the thread until so many more stalls are over.
    func waitForMarks(_ count: Int) {
        for _ in 0..<count { marked.wait() }
    }

    /// Does work that is no stall. On a machine that has other things to do it may become one all the same: then that is noted.
    func turn(_ body: () -> Int) {
        let measurement = Measurement(label: place.label)
        keep(body())
        let span = measurement.span()
        guard span.isSlowTurn else { return }
        turns.withLock { $0.append(span) }
    }

    /// The calling thread rests.
    func rest(_ duration: Duration) { sleepFor(duration) }

    /// What happened.
    var receipt: Receipt {
        let open = unfinished.withLock { $0 }.map { [$0.span(onOwnThread: false)] } ?? []
        return Receipt(stalls: marks.withLock { $0 } + open, slowTurns: turns.withLock { $0 })
    }

    /// Ends the process as it is, once the stall that goes on is reported: neither the monitor nor the stall come to their end.
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
