import RunLoopKit
import StallReports
import Synchronization
import Testing

@testable import StallMonitor

@Suite("Threads that exist only while there is work", .timeLimit(.minutes(10)))
struct ThreadOnDemandTests {
    private let thread = ThreadOnDemand(name: "on-demand")

    @Test("A thread that has ended is started again by the next demand; a running one is not")
    func again() throws {
        let (begun, mayEnd, ended) = (TickSemaphore(), TickSemaphore(), TickSemaphore())
        let lives = Atomic(0)
        for life in 1...3 {
            for _ in 0..<5 {
                let hasThread = thread.demand {
                    lives.wrappingAdd(1, ordering: .relaxed)
                    begun.signal()
                    mayEnd.wait()
                    if thread.leave(if: { true }) { ended.signal() }
                }
                #expect(hasThread)
            }
            try #require(begun.wait(until: .now + .seconds(60)))
            mayEnd.signal()
            try #require(ended.wait(until: .now + .seconds(60)))
            #expect(lives.load(ordering: .relaxed) == life)
        }
        #expect(thread.join(by: .now))
    }

    @Test("A thread that finds work when about to end continues")
    func staysForWork() throws {
        let left = Mutex<[Bool]>([])
        let ended = TickSemaphore()
        thread.demand {
            let first = thread.leave { false }
            let second = thread.leave { true }
            left.withLock { $0 = [first, second] }
            ended.signal()
        }
        try #require(ended.wait(until: .now + .seconds(60)))
        #expect(left.withLock { $0 } == [false, true])
    }

    @Test("Work done in the thread's place keeps a second thread away, and is not done beside one")
    func replaced() {
        var done = 0
        thread.replace {
            done += 1
            let isServed = thread.demand { Issue.record("two at once") }
            #expect(isServed)
            thread.replace { done += 1 }
        }
        #expect(done == 1 && thread.join(by: .now))
    }
}

@Suite("A writer whose thread exists only while there is work", .timeLimit(.minutes(10)))
struct RestingWriterTests {
    @Test("An order starts the thread, closing ends it, and everything is written")
    func onDemand() throws {
        let directory = TemporaryDirectory()
        let store = ReportDirectory(path: directory.path)
        let meter = CostMeter()
        let writer = ReportWriter(
            sink: DirectorySink(store),
            limits: .init(),
            meter: meter,
            changed: {},
            startsThread: true
        )
        #expect(writer.join(by: .now))
        let names = (0..<3).map { _ in ReportFileName(.stall, .make()) }
        for name in names {
            writer.order { $0.put(PendingDocument(name: name, bytes: [1], isFinal: true)) }
            #expect(writer.wait(until: .now + .seconds(60)))
        }
        writer.order { $0.close() }
        #expect(writer.join(by: .now + .seconds(60)))
        #expect(writer.status.bytesWritten == 3 && writer.status.waitingReports == 0 && meter.totals.writing > 0)
    }

    @Test("The cost of a writer's thread is kept when the next one starts")
    func cost() {
        let meter = CostMeter()
        meter.spent(.writing)
        let before = meter.totals.writing
        meter.beginsWriting()
        meter.spent(.writing)
        #expect(meter.totals.writing >= before * 2)
    }
}
