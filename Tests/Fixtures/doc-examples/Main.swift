import Dispatch
import Glibc
import RunLoopKit
import RunLoopPorts
import StallMonitor
import StallMonitorLoops
import StallReading
import StallReports

// The code of the documentation, in the order of its articles: that it compiles is the test. Nothing of it is run.

@main
struct Main {
    static func main() {}
}

func rebuildIndex() {}
func flushIndex() {}
func countPages() -> Int { 0 }
func saveDocument() {}
func readRequest(from socket: Int32) {}
func commitChanges() {}

func start() {
    let monitor = StallMonitor.start()
    defer { monitor.stop() }
    rebuildIndex()
}

func charge(_ basket: Int) async throws -> Int { basket }

func labels(_ basket: Int) async throws {
    let receipt = try await withStallLabel("checkout") { try await charge(basket) }
    print(receipt)
}

func thresholds(_ monitor: StallMonitor, _ worker: WorkerThread) throws {
    try monitor.watch(worker.loop, label: "worker", rule: StallRule(tick: .milliseconds(20), ticks: 3))
    monitor.expectSlow(for: .seconds(5)) { rebuildIndex() }
}

func taskPool() {
    let monitor = StallMonitor.start(watching: [.main, .taskPool])
    defer { monitor.stop() }
    var configuration = StallMonitor.Configuration()
    configuration.reportsJobsLongerThan = .seconds(1)
    print(configuration)
}

func ownExecutor(_ workers: TaskPoolHeartbeat) {
    let monitor = StallMonitor.start(watching: [.main, .taskPool, .pools([workers])])
    monitor.stop()
}

@MainActor func endAtTermination(_ monitor: StallMonitor) {
    signal(SIGTERM, SIG_IGN)
    let termination = DispatchSource.makeSignalSource(signal: SIGTERM, queue: .global())
    termination.setEventHandler { @Sendable in
        monitor.stop()
        exit(0)
    }
    termination.resume()
}

func health(_ configuration: inout StallMonitor.Configuration) {
    configuration.health = .init(port: 8081, address: "0.0.0.0", failsAfter: .seconds(30))
    configuration.abortsAfter = .seconds(60)
}

func follow() throws {
    var follower = try ReportFollower(path: "/var/lib/shop/stalls")
    while let event = try follower.next() {
        if case .report(let report) = event { print(report.cause.summary) }
    }
}

@MainActor final class Clock {
    var ticks = 0
    private lazy var timer = EventTimer(every: .seconds(1), onMainActor { [weak self] _ in self?.ticks += 1 })

    func start() {
        EventRunLoop.main.add(timer)
        EventRunLoop.main.perform(onMainActor { self.ticks = 0 })
    }
}

func workerAndTimer() async throws {
    let worker = try WorkerThread(name: "index")
    let timer = EventTimer(every: .seconds(5)) { _ in flushIndex() }
    timer.tolerance = .seconds(1)
    worker.loop.add(timer)
    let pages = try await worker.loop.performAndAwait { countPages() }
    worker.stop()
    print(pages)
}

func items(_ worker: WorkerThread, _ socket: Int32) throws {
    let dirty = EventSource { _ in saveDocument() }
    worker.loop.add(dirty)
    dirty.signalAndWake()

    let source = DescriptorSource(descriptor: socket, events: .readable) { _, events in
        if events.contains(.readable) { readRequest(from: socket) }
    }
    try worker.loop.add(source)

    let observer = LoopObserver(activities: [.beforeWaiting]) { _, _ in commitChanges() }
    worker.loop.add(observer, to: .common)
}

func nested(_ answer: EventSource) {
    EventRunLoop.current.add(answer, to: "answers")
    let result = EventRunLoop.current.run(mode: "answers", for: .seconds(2), returnAfterSourceHandled: true)
    print(result)
}

actor Index {
    nonisolated let loop: EventRunLoop
    init(on loop: EventRunLoop) { self.loop = loop }
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
}

func listen() throws {
    let port = try LocalPort(PortName("com.example.index")) { message in
        if message.id == 1 { EventRunLoop.current.stop() }
    }
    try EventRunLoop.main.add(port)
}
