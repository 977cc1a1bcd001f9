import Dispatch
import Glibc
import RunLoopKit
import StallDetection
import StallReports
import Synchronization
import TestSupport
import Testing

@testable import StallMonitor

@Suite("Names of the stalled work", .serialized, .timeLimit(.minutes(10)))
struct StallLabelTests {
    private func report(task: UInt64? = nil, thread: Int32 = 1) -> StallReport {
        var report = StallReport.minimal()
        report.thread.id = thread
        if let task {
            var stack = StallReport.Stack(thread: report.thread, capturedAt: .now())
            stack.async = .init(from: 0, frames: [], ends: .task, task: task)
            report.stacks = [stack]
        }
        return report
    }

    private func labels(_ report: StallReport, at time: MonotonicInstant = .now) -> [String] {
        StalledWork(of: report, at: time).labels
    }

    /// As while a monitor runs.
    private func watching<Value>(_ body: () async throws -> Value) async rethrows -> Value {
        WorkTable.addReader()
        defer { WorkTable.removeReader() }
        return try await body()
    }

    @Test(
        "A task's labels are found by its id, outermost first, also in awaited functions, and are then removed"
    )
    func task() async throws {
        try await watching {
            let number = UInt64(try #require(WorkKey.currentTaskNumber))
            await withStallLabel("checkout") {
                await Task.yield()
                #expect(labels(report(task: number)) == ["checkout"])
                await withStallLabel("charge") {
                    await Task { await withStallLabel("other") { await Task.yield() } }.value
                    #expect(labels(report(task: number)) == ["checkout", "charge"])
                }
                #expect(labels(report(task: number)) == ["checkout"])
            }
            #expect(labels(report(task: number)).isEmpty)
        }
    }

    @Test("A child task does not have its parent's label")
    func childTask() async {
        await watching {
            await withStallLabel("parent") {
                async let found = WorkKey.currentTaskNumber.map { labels(report(task: UInt64($0))) }
                #expect(await found == [])
            }
        }
    }

    @Test("A label of code that does not suspend is found by the thread; threads have separate labels")
    func threads() async {
        await watching {
            let own = LoopThread.current().id
            withStallLabel("import") {
                #expect(labels(report(thread: own)) == ["import"])
                #expect(labels(report(thread: own + 1)).isEmpty)
                #expect(throws: CancellationError.self) {
                    try withStallLabel("parse") { () throws(CancellationError) in throw CancellationError() }
                }
                #expect(labels(report(thread: own)) == ["import"])
            }
        }
    }

    @Test("A label in force when the stall was detected is found even after its end; a later one is not")
    func past() async throws {
        await watching {
            let (table, key) = (WorkTable(), WorkKey.task(7))
            table.begin(WorkNote(label: "long"), as: key)
            let detected = MonotonicInstant.now + WorkTable.shortestPast
            while MonotonicInstant.now <= detected {}
            table.end(key)
            table.begin(WorkNote(label: "later"), as: key)
            let found = { StalledWork(of: report(task: 7), at: $0, in: table).labels }
            #expect(found(detected) == ["long"] && found(.now) == ["later"])
            // However many follow it, up to a limit; no more than that are kept.
            for _ in 0...WorkTable.pastCapacity {
                table.begin(WorkNote(label: "x"), as: key)
                table.end(key)
            }
            #expect(found(detected) == ["long"])
        }
    }

    @Test("A report takes sixteen labels of 128 bytes")
    func bounds() {
        let table = WorkTable()
        for _ in 0..<20 { table.begin(WorkNote(label: String(repeating: "é", count: 100)), as: .thread(3)) }
        let found = StalledWork(of: report(thread: 3), at: .now, in: table).labels
        #expect(found.count == 16 && found.allSatisfy { $0.utf8.count == 128 })
    }

    private final class Request: WorkContext {
        let trace: StallReport.Trace? = nil
    }

    private struct Ended {
        weak var request: Request?
    }

    @Test("The contexts of 512 pieces of ended work are kept, and all are released when the last monitor ends")
    func contextsKept() {
        let (table, keys) = (WorkTable(), (0..<600).map { WorkKey.task($0) })
        var ended: [Ended] = []
        for key in keys {
            let request = Request()
            ended.append(Ended(request: request))
            table.begin(WorkNote(context: request), as: key)
        }
        let begun = MonotonicInstant.now
        while MonotonicInstant.now - begun < WorkTable.shortestPast { usleep(1000) }
        for key in keys { table.end(key) }
        #expect(ended.count { $0.request != nil } == 512)
        // The latest ones.
        #expect(ended.suffix(500).allSatisfy { $0.request != nil })
        table.forgetEnded()
        #expect(ended.allSatisfy { $0.request == nil })
    }

    @Test("The context of work that ends after the last monitor is not kept")
    func contextNotKept() {
        let (table, key) = (WorkTable(keepsEnded: { false }), WorkKey.task(7))
        var ended = Ended()
        do {
            let request = Request()
            ended.request = request
            table.begin(WorkNote(context: request), as: key)
        }
        let begun = MonotonicInstant.now
        while MonotonicInstant.now - begun < WorkTable.shortestPast { usleep(1000) }
        #expect(ended.request != nil)
        table.end(key)
        #expect(ended.request == nil)
    }

    @Test("Without a running monitor nothing is recorded")
    func nobodyReads() async {
        // In a process of its own: a test that failed may have left a monitor in this one.
        await #expect(processExitsWith: .success) {
            StallLabelTests.expectLabels([], under: "unseen")
            WorkTable.addReader()
            StallLabelTests.expectLabels(["seen"], under: "seen")
        }
    }

    private static func expectLabels(_ labels: [String], under label: String) {
        var report = StallReport.minimal()
        report.thread.id = LoopThread.current().id
        withStallLabel(label) { #expect(StalledWork(of: report, at: .now).labels == labels) }
    }

    @Test("Threads that begin and end work at the same time lose no labels")
    func contention() {
        let (table, group) = (WorkTable(), DispatchGroup())
        for number in 0..<4 {
            group.enter()
            startThread {
                for round in 0..<200 {
                    let key = WorkKey.task(UInt32(number * 1000 + round % 17))
                    table.begin(WorkNote(label: "\(number)"), as: key)
                    table.begin(WorkNote(label: "inner"), as: key)
                    table.end(key)
                }
                group.leave()
            }
        }
        group.wait()
        for number in 0..<4 {
            let marks = (0..<17).flatMap { table.marks(of: [.task(UInt32(number * 1000 + $0))], at: .now) }
            #expect(marks.count == 200 && marks.allSatisfy { $0.note.label == "\(number)" })
        }
    }

    @Test("A fork's child leaves a closure that began in its parent, although another thread held the lock")
    func forkInside() throws {
        // Swift does not offer fork.
        typealias Fork = @convention(c) () -> pid_t
        let address = try unsafe #require(dlsym(nil, "fork"))
        let fork = unsafe unsafeBitCast(address, to: Fork.self)
        let table = WorkTable()
        let isOver = Atomic(false)
        table.begin(WorkNote(label: "parent"), as: .thread(1))
        // The same part of the table.
        let other = try MonitorThread(name: "label-test") {
            while !isOver.load(ordering: .relaxed) {
                table.begin(WorkNote(label: "other"), as: .thread(17))
                table.end(.thread(17))
            }
        }
        var (children, status) = (0, Int32(0))
        while children < 50, status == 0 {
            children += 1
            let child = fork()
            if child == 0 {
                // Threads that tests run on block this signal, and the child inherits that.
                var alarms = sigset_t()
                unsafe sigemptyset(&alarms)
                unsafe sigaddset(&alarms, SIGALRM)
                unsafe pthread_sigmask(SIG_UNBLOCK, &alarms, nil)
                alarm(60)
                table.end(.thread(1))
                _exit(0)
            }
            status = -1
            guard child > 0 else { break }
            while unsafe waitpid(child, &status, 0) < 0, errno == EINTR {}
        }
        isOver.store(true, ordering: .relaxed)
        #expect(status == 0, "child \(children)")
        #expect(other.join(by: .now + .seconds(60)))
    }
}
