import Dispatch
import Glibc
import RunLoopKit
import StallDetection
import StallReading
import StallReports
import Synchronization
import TestSupport
import Testing

@testable import StallDiagnosis
@testable import StallMonitor

/// One monitor at a time: the capture signal belongs to the process.
@Suite(
    "A monitor on a real loop",
    .serialized,
    .captureSignal,
    .timeLimit(.minutes(60)),
    .repeatedWhenLate(by: .milliseconds(50))
)
struct StallMonitorTests {
    private let directory = TemporaryDirectory(inMemory: true)
    private let log = EventLog()
    private let worker = StallingLoop()

    private func start(_ change: (inout StallMonitor.Configuration) -> Void = { _ in }) -> StallMonitor {
        var configuration = StallMonitor.Configuration(
            directory: directory.path + "/reports",
            repeats: .everyStall,
            ownCode: OwnCode(modules: ["StallMonitorTests"])
        )
        change(&configuration)
        return StallMonitor.start(configuration, watching: [worker.loop], onEvent: log.handler)
    }

    private func contents() throws -> ReportReader.Contents {
        try ReportReader(path: directory.path + "/reports").contents()
    }

    @Test("A sleeping loop's stall is found, blamed on the function that sleeps, and closed with its length")
    func sleepingStall() throws {
        let monitor = start()
        // If the first look fell between the beginning of the turn and that of its block, the stall's start would only be known to a tick.
        waitUntil { monitor.engine.map { $0.ledger.snapshot.looks > 0 } ?? true }
        worker.perform { _ = stallInSleep(600) }
        #expect(log.wait { !$0.ended.isEmpty })
        monitor.stop()
        worker.end()

        let report = try #require(log.ended.first)
        #expect(log.began.count == 1 && log.ended.count == 1)
        #expect(report.state == .recovered && report.kind == .blocked)
        #expect(report.durationNs >= 600_000_000 && report.durationMinNs == nil)
        #expect(report.culprit?.function?.contains("stallInSleep") == true, "\(report)")
        #expect(report.cause.verdict == .blocked && report.cause.systemCall?.name?.contains("nanosleep") == true)
        #expect(report.stacks.first?.method == .quiet && report.stacks.first?.complete == true)
        // The block runs in the turn after the wake-up, or in the turn that begins when it is added.
        #expect(["after_waiting", "before_sources"].contains(report.watched.activity))
        #expect(report.watched.mode == "default")
        #expect(try contents().reports == [report])
    }

    @Test("A computing loop's stall is on the CPU, and blamed on the function that computes")
    func computingStall() throws {
        let monitor = start()
        worker.perform { _ = stallByComputing(600) }
        #expect(log.wait { !$0.ended.isEmpty })
        monitor.stop()
        worker.end()

        let report = try #require(log.ended.first)
        #expect(report.culprit?.function?.contains("stallByComputing") == true, "\(report)")
        #expect([.onCPU, .starved].contains(report.cause.verdict))
        #expect(report.stacks.first?.method == .signal)
    }

    @Test("A read on a pipe is reported with the call and what its descriptor refers to")
    func readingStall() throws {
        let monitor = start()
        worker.perform { _ = stallInRead(500) }
        #expect(log.wait { !$0.ended.isEmpty })
        monitor.stop()
        worker.end()

        let report = try #require(log.ended.first)
        #expect(report.culprit?.function?.contains("stallInRead") == true, "\(report)")
        #expect(report.cause.systemCall?.name == "read")
        #expect(report.cause.summary.contains("pipe:["))
    }

    @Test("A report is in the directory during the stall; its final version is in the same file")
    func ongoingReport() throws {
        let monitor = start()
        let mayGoOn = DispatchSemaphore(value: 0)
        worker.loop.perform { mayGoOn.wait() }
        #expect(log.wait { !$0.began.isEmpty })
        #expect(try contents().reports.map(\.state) == [.ongoing])
        mayGoOn.signal()
        #expect(log.wait { !$0.ended.isEmpty })
        #expect(try contents().reports.map(\.state) == [.recovered])
        monitor.stop()
        worker.end()
    }

    @Test("Short work, however much, and rest give no report; the run record shows that the loop was watched")
    func noStall() throws {
        let monitor = start()
        for _ in 0..<40 { worker.perform { _ = stallByComputing(10) } }
        monitor.stop()
        worker.end()

        // A machine without a free CPU can starve any loop: that is reported, and is correct.
        #expect(log.began.allSatisfy { $0.cause.verdict == .starved })
        let run = try #require(try contents().runs.first)
        #expect(run.state == .stopped && run.ticks > 0)
        #expect(run.watched.map(\.label) == [worker.loop.label])
        #expect(run.watched[0].watchedNs >= 400_000_000)
    }

    @Test("A watch has its own tick, ticks and label")
    func ownRule() throws {
        let monitor = start()
        let other = StallingLoop()
        try monitor.watch(other.loop, label: "other", rule: StallRule(tick: .milliseconds(10), ticks: 3))
        other.perform { _ = stallInSleep(120) }
        worker.perform { _ = stallInSleep(120) }
        #expect(log.wait { !$0.ended.isEmpty })
        monitor.stop()
        [worker, other].forEach { $0.end() }

        #expect(log.ended.filter { $0.cause.verdict != .starved }.map(\.watched.label) == ["other"])
        #expect(log.ended.first?.rule.tickNs == 10_000_000 && log.ended.first?.rule.ticks == 3)
    }

    @Test("A second monitor with the same signal says that another one is the reason why it takes no stacks")
    func secondMonitor() {
        let first = start()
        let faults = EventLog()
        let second = StallMonitor.start(
            StallMonitor.Configuration(directory: directory.path + "/second"),
            watching: [],
            onEvent: faults.handler
        )
        #expect(faults.wait { !$0.faults.isEmpty })
        let fault = faults.faults.first
        #expect(fault?.code == .captureUnavailable)
        #expect(fault?.message.contains("another monitor, or a StackCapturer, of this process") == true)
        second.stop()
        first.stop()
        worker.end()
    }

    @Test("A loop can be watched once, and again after the watch is cancelled")
    func watchOnce() throws {
        let monitor = start()
        let refused = #expect(throws: StallMonitorError.self) { try monitor.watch(worker.loop, label: "again") }
        #expect(refused?.code == .loopAlreadyWatched && refused?.message.hasSuffix("It is again.") == true)
        let other = StallingLoop()
        let watch = try monitor.watch(other.loop)
        #expect(monitor.watch(of: other.loop)?.number == watch.number)
        watch.cancel()
        #expect(monitor.watch(of: other.loop) == nil)
        // The watchdog carries out the order; until then the loop counts as watched.
        waitUntil { (try? monitor.watch(other.loop)) != nil }
        #expect(monitor.watch(of: other.loop).map { $0.number > watch.number } == true)
        monitor.stop()
        #expect(throws: StallMonitorError.self) { try monitor.watch(other.loop) }
        [worker, other].forEach { $0.end() }
    }

    @Test("A loop that several selections include is watched once, which is no fault; a loop of another monitor is one")
    func selectedTwice() {
        let monitor = start()
        let search = LateDiscovery()
        monitor.watch([.loops([worker.loop, worker.loop]), .found(by: search)])
        search.announce(.loop(worker.loop))
        let (faults, other) = (EventLog(), StallMonitor.Configuration(directory: directory.path + "/other"))
        let second = StallMonitor.start(other, watching: [worker.loop], onEvent: faults.handler)
        second.stop()
        monitor.stop()
        #expect(!log.faults.map(\.code).contains(.loopAlreadyWatched))
        #expect(faults.faults.map(\.code).contains(.loopAlreadyWatched))
        worker.end()
    }

    @Test("When the monitor stops, an ongoing stall is closed as abandoned, without an end")
    func stopInStall() throws {
        let monitor = start()
        let mayGoOn = DispatchSemaphore(value: 0)
        worker.loop.perform { mayGoOn.wait() }
        #expect(log.wait { !$0.began.isEmpty })
        monitor.stop()
        let report = try #require(try contents().reports.first)
        #expect(report.state == .abandoned && report.endedAt == nil)
        #expect(report.durationNs >= 250_000_000)
        mayGoOn.signal()
        worker.end()
    }

    @Test("A stall that is over when the monitor stops is closed as recovered, also if it has just ended")
    func stopAfterStall() throws {
        let monitor = start()
        let mayGoOn = DispatchSemaphore(value: 0)
        worker.loop.perform { mayGoOn.wait() }
        #expect(log.wait { !$0.began.isEmpty })
        mayGoOn.signal()
        try worker.loop.performAndWait {}
        monitor.stop()
        let report = try #require(try contents().reports.first)
        #expect(report.state == .recovered && report.endedAt != nil)
        worker.end()
    }

    @Test("A thread that stops the monitor in its own stall is not blamed for that")
    func stopByStalledThread() throws {
        let tick = Duration.milliseconds(200)
        let monitor = start { $0.rule = StallRule(tick: tick) }
        // The next stack would be due one and a half ticks after the first, and is looked for after two.
        worker.perform {
            _ = log.wait { !$0.began.isEmpty }
            _ = stallInSleep(350)
            monitor.stop()
        }
        worker.end()
        let report = try #require(try contents().reports.first)
        #expect(report.state == .abandoned && !report.stacks.isEmpty)
        let functions = report.stacks.flatMap(\.frames).compactMap(\.function)
        #expect(functions.filter { $0.contains("StallMonitor.stop") } == [])
    }

    @Test("A monitor to which nobody keeps a reference watches loops that are found later")
    func noReference() throws {
        let discovery = LateDiscovery()
        weak var kept: StallMonitor?
        do {
            let configuration = StallMonitor.Configuration(directory: directory.path + "/reports")
            let monitor = StallMonitor.start(configuration, watching: .found(by: discovery), onEvent: log.handler)
            kept = monitor
        }
        let present = kept
        let monitor = try #require(present)
        discovery.announce(.loop(worker.loop))
        #expect(monitor.watch(of: worker.loop)?.number == 1)
        monitor.stop()
        worker.end()
    }

    @Test("A search that begins while the monitor stops is not left behind, and what it finds then is no fault")
    func searchDuringStop() {
        let monitor = start()
        let (late, other) = (LateDiscovery(), StallingLoop())
        let discovery = LateDiscovery { found in
            monitor.watch(.found(by: late))
            found(.loop(other.loop))
        }
        monitor.watch(.found(by: discovery))
        monitor.stop()
        #expect(!late.isSearching && !discovery.isSearching)
        #expect(log.faults.isEmpty)
        [worker, other].forEach { $0.end() }
    }

    @Test("A second stop during the first one does not end the event streams before the last event")
    func stopTwice() async {
        let (mayGoOn, handlerMayReturn) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        let configuration = StallMonitor.Configuration(directory: directory.path + "/reports", repeats: .everyStall)
        let monitor = StallMonitor.start(configuration, watching: [worker.loop]) { event in
            if case .began = event { handlerMayReturn.wait() }
        }
        var events = monitor.events().makeAsyncIterator()
        worker.loop.perform { mayGoOn.wait() }
        while let event = await events.next() { if case .began = event { break } }
        startThread { monitor.stop() }
        while monitor.isRunning { await Task.yield() }
        monitor.stop()
        handlerMayReturn.signal()
        var states: [StallState] = []
        while let event = await events.next() { if case .ended(let report) = event { states.append(report.state) } }
        #expect(states == [.abandoned])
        mayGoOn.signal()
        worker.end()
    }

    @Test("Stopping leaves no thread, no signal handler and no descriptor behind")
    func stopLeavesNothing() throws {
        worker.perform {}
        let before = ProcessState.now
        let cycles = 40
        for _ in 0..<cycles {
            let monitor = start()
            worker.perform { _ = stallInSleep(1) }
            monitor.stop()
        }
        let after = ProcessState.settled(after: before)
        #expect(after.monitorThreads.count <= before.monitorThreads.count)
        #expect(after.handlesSignal == before.handlesSignal)
        // Other tests open descriptors meanwhile, but not one for each cycle.
        #expect(after.descriptors < before.descriptors + cycles)
        worker.end()
    }

    @Test("A directory that cannot be written is reported once; the handler still gets the stall")
    func unwritableDirectory() throws {
        let file = directory.path + "/file"
        close(unsafe open(file, O_CREAT | O_WRONLY, 0o600))
        let monitor = start { $0.directory = file + "/reports" }
        worker.perform { _ = stallInSleep(400) }
        #expect(log.wait { !$0.ended.isEmpty })
        monitor.stop()
        worker.end()
        #expect(log.faults.map(\.code) == [.reportNotWritten, .reportsLost])
        #expect(log.ended.count == 1)
    }

    @Test("While a handler does not return, the newest stalls are kept for it, each with its end")
    func hangingHandler() throws {
        let mayGoOn = DispatchSemaphore(value: 0)
        let isHeld = Atomic(false)
        var configuration = StallMonitor.Configuration(
            directory: directory.path + "/reports",
            rule: StallRule(tick: .milliseconds(1), ticks: 3),
            repeats: .everyStall
        )
        configuration.noticeCapacity = 12
        let monitor = StallMonitor.start(configuration, watching: [worker.loop]) { [log] event in
            if !isHeld.exchange(true, ordering: .sequentiallyConsistent) { mayGoOn.wait() }
            log.handler(event)
        }
        // Many more than are kept, even if the watchdog is so late that it must dismiss most of them.
        for _ in 0..<150 { worker.perform { usleep(10_000) } }
        let lately = Timestamp.now()
        for _ in 0..<150 { worker.perform { usleep(10_000) } }
        mayGoOn.signal()
        let cameUp = log.wait { $0.ended.last.map { $0.startedAt > lately } == true }
        monitor.stop()
        worker.end()

        #expect(cameUp, "the newest are there")
        #expect(log.began.map(\.id).starts(with: log.ended.map(\.id)))
        let run = try #require(try contents().runs.first)
        let dropped = run.writing?.dropped["stalls"] ?? 0
        #expect(dropped > 0 && run.lostWrites >= dropped)
        #expect(run.writing.map { $0.noticePeakBytes > 0 && $0.noticePeakBytes <= 8 << 20 } == true)
    }

    @Test("A monitor over its budget takes no stacks, says so, and resumes when the cost has fallen")
    func overBudget() throws {
        let monitor = start {
            $0.cost = .init(processorShare: 0.02, processorBurst: .milliseconds(30), heldShare: 1)
        }
        // Finding the names for a first stack takes longer than the whole burst: a debug build's binary is large. On a faster machine
        // later stalls use up the rest: even a report without a stack costs more than the budget regains during its stall.
        let isRefused = { (report: StallReport) in
            report.stacks.first?.error?.contains("its budget (2 % of a processor") == true
        }
        let wasRefused = stall { $0.ended.contains(where: isRefused) }
        let refused = log.ended.first(where: isRefused)
        // Short work, so that the watchdog looks; it costs nothing that the budget counts.
        let wasMended = log.wait(working: worker) { log in
            let stops = log.faults.count { $0.code == .capturesStopped }
            return stops > 0 && log.mended.count { $0 == .capturesStopped } == stops
        }
        let before = log.ended.count
        let cameBack = stall { $0.ended.dropFirst(before).contains { $0.stacks.contains { !$0.frames.isEmpty } } }
        monitor.stop()
        worker.end()

        #expect(wasRefused && wasMended && cameBack)
        #expect(log.faults.map(\.code).first == .capturesStopped)
        #expect(refused?.stacks.allSatisfy(\.frames.isEmpty) == true, "\(log.ended.map(\.stacks))")
        #expect(refused?.monitor.budget != nil && refused?.monitor.watchdogCPUNs ?? 0 > 0)
        let run = try #require(try contents().runs.first)
        #expect(run.budget.map { $0.stops >= 1 && $0.skippedStacks >= 1 && $0.stoppedNs > 0 } == true, "\(run)")
        #expect(run.cost.reporterCPUNs ?? 0 > 0 && run.cost.writerCPUNs ?? 0 > 0 && run.cost.captureCPUNs ?? 0 > 0)
    }

    /// Stalls until a condition holds: on a busy machine a late watchdog cannot prove every stall.
    private func stall(until condition: (EventLog) -> Bool) -> Bool {
        for _ in 0..<40 where !condition(log) {
            let before = log.ended.count
            worker.perform { _ = stallInSleep(400) }
            for _ in 0..<200 where log.ended.count == before { usleep(10_000) }
        }
        return condition(log)
    }

    @Test("A value out of range is reported and replaced by the nearest one; a watch's own rule is refused")
    func outOfRange() throws {
        let monitor = start {
            $0.repeats.burst = 0
            $0.limits.bytes = -1
        }
        #expect(throws: StallMonitorError.self) { try monitor.watch(worker.loop, rule: StallRule(ticks: 0)) }
        #expect(stall { !$0.ended.isEmpty })
        monitor.stop()
        worker.end()

        #expect(log.faults.map(\.code) == [.configurationOutOfRange, .configurationOutOfRange])
        let texts = log.faults.map(\.message)
        #expect(texts.contains { $0.hasSuffix("repeats.burst is 0; set it to 1 to 100000.") }, "\(texts)")
    }

    @Test("Labels and the server's details of a stall are in its report")
    func details() throws {
        let monitor = start {
            $0.metadata = ["region": "north", "shard": "7"]
            $0.details = { report in
                .init(
                    metadata: ["shard": "\(report.kind)", "path": "/cart"],
                    trace: .init(traceID: "4bf9", spanID: "00f0")
                )
            }
        }
        // The closure runs on a thread of its own, which has a tenth of a second: on a busy machine it may come too late.
        #expect(stall { $0.ended.contains { $0.trace != nil } })
        monitor.stop()
        worker.end()

        let report = try #require(log.ended.first { $0.trace != nil })
        #expect(report.metadata == ["region": "north", "shard": "blocked", "path": "/cart"])
        #expect(report.trace == .init(traceID: "4bf9", spanID: "00f0"))
        #expect(try contents().reports.contains(report))
    }

    @Test("The server's labels for its work are in the report, and in the version that the closure gets")
    func labels() throws {
        let asked = Mutex<[String]?>(nil)
        let monitor = start {
            $0.details = { report in
                asked.withLock { $0 = report.labels }
                return .init()
            }
        }
        worker.perform { withStallLabel("import") { withStallLabel("parse") { _ = stallInSleep(600) } } }
        #expect(log.wait { !$0.ended.isEmpty })
        monitor.stop()
        worker.end()

        // A report does not wait for the closure for longer than a tenth of a second.
        waitUntil { asked.withLock { $0 } != nil }
        #expect(log.ended.first?.labels == ["import", "parse"] && asked.withLock { $0 } == ["import", "parse"])
        #expect(try contents().reports.first?.labels == ["import", "parse"])
    }

    @Test("A closure that does not return is reported once, and reports are written without its details")
    func detailsThatHang() throws {
        let mayGoOn = DispatchSemaphore(value: 0)
        let monitor = start {
            $0.metadata = ["region": "north"]
            $0.details = { _ in
                mayGoOn.wait()
                return .init(metadata: ["too": "late"])
            }
        }
        #expect(stall { $0.ended.count >= 2 })
        mayGoOn.signal()
        monitor.stop()
        worker.end()

        #expect(log.ended.allSatisfy { $0.metadata == ["region": "north"] })
        #expect(log.faults.map(\.code) == [.detailsMissing])
    }

    @Test("Every sequence gets the same events, until the monitor is stopped")
    func events() async {
        let monitor = start()
        let (first, second) = (monitor.events(), monitor.events(keeping: 1))
        #expect(stall { !$0.ended.isEmpty })
        monitor.stop()
        worker.end()

        var kinds: [String] = []
        for await event in first {
            switch event {
            case .began(let report): kinds.append("began \(report.id)")
            case .ended(let report): kinds.append("ended \(report.id)")
            default: break
            }
        }
        #expect(kinds.sorted() == (log.began.map { "began \($0.id)" } + log.ended.map { "ended \($0.id)" }).sorted())
        var kept = 0
        for await _ in second { kept += 1 }
        for await _ in monitor.events() { kept += 1 }
        #expect(kept == 1)
    }

    @Test("A monitor that is switched off does nothing")
    func disabled() async {
        let before = ProcessState.now
        let monitor = start { $0.enabled = false }
        #expect(!monitor.isRunning)
        #expect(throws: Never.self) { try monitor.watch(worker.loop).cancel() }
        // A monitor of an earlier test that could not stop in time has left its handler.
        #expect(ProcessState.now.monitorThreads.count <= before.monitorThreads.count)
        #expect(ProcessState.now.handlesSignal == before.handlesSignal)
        for await _ in monitor.events() { Issue.record("nothing is told") }
        monitor.stop()
        worker.end()
    }
}

/// What a monitor must not leave behind.
struct ProcessState {
    var monitorThreads: [String]
    var descriptors: Int
    var handlesSignal: Bool

    static var now: ProcessState {
        ProcessState(
            monitorThreads: entries("/proc/self/task").compactMap { readSmallFile("/proc/self/task/\($0)/comm") }
                .filter { $0.hasPrefix("stall-") },
            descriptors: entries("/proc/self/fd").count,
            handlesSignal: isHandled(SIGPROF)
        )
    }

    /// A thread has stopped when it has returned from its work, and is gone a moment later: waits for that, up to 30 s.
    static func settled(after before: ProcessState) -> ProcessState {
        let deadline = MonotonicInstant.now + .seconds(30)
        var state = now
        while state.monitorThreads.count > before.monitorThreads.count, MonotonicInstant.now < deadline {
            usleep(1000)
            state = now
        }
        return state
    }

    private static func entries(_ path: String) -> [String] {
        guard let directory = unsafe opendir(path) else { return [] }
        defer { unsafe closedir(directory) }
        var names: [String] = []
        while let entry = unsafe readdir(directory) {
            let name = unsafe withUnsafePointer(to: &entry.pointee.d_name) {
                unsafe $0.withMemoryRebound(to: CChar.self, capacity: 256) { unsafe String(cString: $0) }
            }
            if name.first != "." { names.append(name) }
        }
        return names
    }

    private static func isHandled(_ signal: Int32) -> Bool {
        var action = sigaction()
        unsafe sigaction(signal, nil, &action)
        return unsafe action.__sigaction_handler.sa_handler != nil
    }
}

/// Finds a loop when the test says so.
private final class LateDiscovery: LoopDiscovery {
    typealias Listener = @Sendable (LoopFinding) -> Void

    private let listener = Mutex<Listener?>(nil)
    private let atEnd: @Sendable (Listener) -> Void

    /// - Parameter atEnd: Called when the search is ended, with the listener to which it still announces.
    init(atEnd: @escaping @Sendable (Listener) -> Void = { _ in }) { self.atEnd = atEnd }

    var isSearching: Bool { listener.withLock { $0 != nil } }

    func announce(_ finding: LoopFinding) { listener.withLock { $0 }?(finding) }

    func begin(_ found: @escaping Listener) throws(StallMonitorError) -> @Sendable () -> Void {
        listener.withLock { $0 = found }
        return { [self] in
            atEnd(found)
            listener.withLock { $0 = nil }
        }
    }
}
