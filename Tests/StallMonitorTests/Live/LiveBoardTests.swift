import Glibc
import RunLoopKit
import StallDetection
import StallReading
import StallReports
import Synchronization
import TestSupport
import Testing

@testable import StackCapture
@testable import StallMonitor

@Suite("What the recorder gets of ongoing stalls", .timeLimit(.minutes(10)))
struct LiveBoardTests {
    private let board = LiveBoard()

    private func stall(_ number: Int) -> StallObservation { QuietLoop().stall(number) }

    /// The same with a stack of a hundred frames, and those of fifty other threads.
    private func heavyStall(of loop: QuietLoop = QuietLoop()) -> StallObservation {
        var stall = loop.stall(1)
        let cost = CapturedStack.Cost(heldNanoseconds: 0, unwindNanoseconds: 0, bytesCopied: 1)
        let stack = CapturedStack(
            frames: (1...100 as ClosedRange<UInt>).map { CapturedStack.Frame(address: $0, found: .unwindTable) },
            method: .quiet,
            systemCall: SystemCall(number: 35, arguments: [0, 0, 0, 0, 0, 0]),
            cost: cost
        )
        let groups = (1...50 as ClosedRange<Int32>).map { number -> ThreadStacks.Group in
            let thread = ThreadStacks.Thread(threadID: number, name: "", method: .quiet, systemCall: nil, cost: cost)
            return ThreadStacks.Group(threads: [thread], stack: stack)
        }
        stall.stack = .captured(stack)
        stall.others = ThreadStacks(groups: groups, missing: [], duration: .zero)
        return stall
    }

    @Test("A stall is kept for the record without its loop and its stacks, but with the thread's system call")
    func light() throws {
        weak var kept: QuietLoop?
        do {
            let loop = QuietLoop()
            kept = loop
            board.begin(heavyStall(of: loop))
        }
        #expect(kept == nil)
        let entry = try #require(board.open[1])
        #expect(entry.systemCall == 35)
    }

    @Test("The stacks of the other threads count towards the memory of a waiting notice, until they are dropped")
    func weight() throws {
        let notice = StallNotice.began(heavyStall())
        let stack = 100 * MemoryLayout<CapturedStack.Frame>.stride
        #expect(notice.bytes > 51 * stack)
        let light = try #require(notice.lightened)
        #expect(light.bytes <= 1024 + 256 && light.lightened == nil)
        // Also if the stalled thread's own stack could not be taken.
        var stall = heavyStall()
        stall.stack = .unavailable("")
        #expect(StallNotice.began(stall).bytes > 50 * stack)
        #expect(try #require(StallNotice.began(stall).lightened).bytes <= 1024 + 256)
    }

    private func play(_ numbers: ClosedRange<Int>) {
        for number in numbers {
            let stall = stall(number)
            board.begin(stall)
            board.end(number, stall.span, as: .recovered)
        }
    }

    @Test("While no report is finished, all ongoing stalls and the newest ended ones are kept")
    func bounded() {
        board.begin(stall(0))
        play(1...1_000)
        #expect(board.open.count == LiveBoard.endedLimit + 1)
        #expect(board.open.keys.sorted().prefix(2) == [0, 1_001 - LiveBoard.endedLimit])
        let update = board.take()
        #expect(update?.changed.count == LiveBoard.endedLimit + 1)
        #expect(update?.released.isEmpty == true, "the recorder has never got them")
        play(1_001...2_000)
        #expect(board.take()?.released.count == LiveBoard.endedLimit, "it has got these")
    }

    @Test("An exit is recorded at once, with its status")
    func exit() {
        #expect(board.take()?.exitStatus == nil)
        board.noteExit(7)
        #expect(board.take()?.exitStatus == 7)
    }

    @Test("Without changes the recorder's thread ends; the stand-in starts it again to record an exit")
    func exitAtRest() throws {
        let (standIn, left) = (TickSemaphore(), TickSemaphore())
        let board = LiveBoard(standIn: standIn)
        let statuses = Mutex<[Int32?]>([])
        board.record {
            repeat {
                while let update = board.take(until: .now) { statuses.withLock { $0.append(update.exitStatus) } }
            } while !board.leave() && !board.isClosed
            left.signal()
        }
        try #require(left.wait(until: .now + .seconds(60)))
        board.serveExit()
        #expect(!left.wait(until: .now) && statuses.withLock { $0 } == [nil])
        board.noteExit(7)
        #expect(standIn.wait(until: .now))
        board.serveExit()
        try #require(left.wait(until: .now + .seconds(60)))
        #expect(statuses.withLock { $0 } == [nil, 7])
        board.close()
    }

    @Test("A stall whose report is finished is released, once")
    func released() {
        play(1...3)
        _ = board.take()
        for _ in 0..<2 { board.release(2) }
        #expect(board.open.keys.sorted() == [1, 3] && board.take()?.released == [2])
    }

    @Test("A stall that is no longer watched is not recorded as recovered")
    func abandoned() {
        let states: [StallState] = [.recovered, .abandoned, .terminated]
        for (number, state) in zip(1..., states) {
            let stall = stall(number)
            board.begin(stall)
            board.end(number, stall.span, as: state)
        }
        let found = board.open.mapValues { LiveStall($0, WallClockAnchor()).state }
        #expect(found == [1: .recovered, 2: .ongoing, 3: .ongoing])
    }

    @Test("Stalls for which the record has no place are counted once each, until they are over or get a place")
    func unplaced() {
        var places = LivePlaces(0..<2)
        for _ in 0..<3 { #expect((1...4).compactMap { places.take($0) }.count == 2) }
        #expect(places.unplaced == [3, 4])
        let freed = places.free(1)
        #expect(freed != nil && places.take(3) == freed && places.unplaced == [4])
        #expect(places.free(4) == nil && places.unplaced.isEmpty)
    }

    @Test("In the record a stall begins when its report says, whenever it is written")
    func beginning() throws {
        let stall = stall(1)
        board.begin(stall)
        let entry = try #require(board.open[1])
        for _ in 0..<3 {
            let live = LiveStall(entry, WallClockAnchor())
            #expect(live.startedAt == stall.clock.time(of: stall.span.earliestStart))
            #expect(live.detectedAt == stall.clock.time(of: stall.detectedAt))
        }
    }

    @Test(
        "The record outlives a stop that had no time left for a stall's report, and tells how the process ended then",
        arguments: [true, false]
    )
    func stop(hasTime: Bool) throws {
        let directory = TemporaryDirectory(inMemory: true)
        func hasRecord() throws -> Bool {
            try OpenDirectory(path: directory.path).names().contains { $0.hasPrefix("live-") }
        }
        let parts = EngineParts(StallMonitor.Configuration(directory: directory.path))
        let reporter = try MonitorThread(name: "stall-reporter") { Reporter(parts) { _ in }.run() }
        parts.startRecording(patience: .milliseconds(1))
        try waitUntil(hasRecord)
        let stall = stall(1)
        parts.live.begin(stall)
        parts.live.end(1, stall.span, as: .recovered)
        if hasTime { parts.notices.add(.began(stall)) } else { parts.writer.giveUp() }
        parts.notices.add(.ended(1, stall.span, nil, .recovered))
        if !hasTime { waitUntil { parts.writer.status.unmade > 0 } }
        parts.end(reporter, within: .seconds(60))
        #expect(try hasRecord() != hasTime)
        guard !hasTime else { return }
        // The recorder has no news for longer than that, and there is no watchdog that would start it for an exit.
        usleep(50_000)
        parts.live.noteExit(3)
        let reader = ReportReader(path: directory.path)
        try waitUntil { try reader.liveProcesses().processes.first?.record.status.exitStatus == 3 }
        parts.live.close()
    }

    @Test("A stall is kept for the record until its finished report is on the disk", arguments: [true, false])
    func unwritten(canWrite: Bool) {
        let directory = TemporaryDirectory(inMemory: true)
        // Nothing can be created below a device.
        let path = canWrite ? directory.path : "/dev/null/reports"
        let parts = EngineParts(StallMonitor.Configuration(directory: path))
        let stall = stall(1)
        parts.live.begin(stall)
        parts.live.end(1, stall.span, as: .recovered)
        parts.notices.add(.began(stall))
        parts.notices.add(.ended(1, stall.span, nil, .recovered))
        // The reporter waits only as long as a working disk would need; a busy machine may need longer.
        parts.notices.add(.settled { _ = parts.writer.wait(until: .now + .seconds(60)) })
        parts.notices.close()
        Reporter(parts) { _ in }.run()
        #expect(parts.live.open.isEmpty == canWrite)
        #expect(parts.writer.join(by: .now + .seconds(60)))
    }
}
