import LoopTestSupport
import TestSupport
import Testing

@testable import RunLoopKit

/// The heap, a clock's schedule and a mode's queue separately, compared with sorted arrays.
struct TimerHeapTests {
    @Test("R41: any sequence of adding, removing and taking leaves the heap in firing order", arguments: 0..<50)
    func heapMatchesSortedArray(seed: Int) {
        var random = SplitMix64(seed: UInt64(seed))
        var heap = TimerHeap()
        var model: [TimerKey] = []
        for step in 0..<400 {
            switch Int.random(in: 0..<5, using: &random) {
            case 0, 1, 2:
                let used = Set(model.map(\.ticket))
                guard let ticket = (0..<64).first(where: { !used.contains($0) }) else { continue }
                let key = TimerKey.random(ticket: ticket, sequence: UInt64(step), using: &random)
                heap.insert(key)
                model.append(key)
            case 3:
                let ticket = UInt32.random(in: 0..<70, using: &random)
                let index = model.firstIndex { $0.ticket == ticket }
                let wasHere = heap.remove(ticket)
                #expect(wasHere == (index != nil))
                if let index { model.remove(at: index) }
            default:
                let limit = UInt64.random(in: 0..<40, using: &random)
                let first = model.filter { $0.date <= limit }.min(by: <)
                let popped = heap.popFirst(upTo: limit)
                #expect(popped?.ticket == first?.ticket)
                model.removeAll { $0.ticket == first?.ticket }
            }
            #expect(heap.first?.ticket == model.min(by: <)?.ticket)
            #expect(heap.earliest == model.map(\.date).min() ?? .max)
            #expect(heap.isEmpty == model.isEmpty)
        }
    }

    @Test(
        "R46: a schedule knows the earliest fire date and the earliest deadline of any set of timers",
        arguments: 0..<50
    )
    func scheduleMatchesSortedArray(seed: Int) {
        var random = SplitMix64(seed: UInt64(seed))
        var schedule = TimerSchedule()
        var model: [(key: TimerKey, tolerance: UInt64)] = []
        for step in 0..<300 {
            switch model.isEmpty ? 0 : Int.random(in: 0..<4, using: &random) {
            case 0, 1:
                let key = TimerKey.random(ticket: UInt32(step), sequence: UInt64(step), using: &random)
                let tolerance: UInt64 = .random(in: 0..<2, using: &random) * .random(in: 0..<60, using: &random)
                schedule.insert(key, tolerance: tolerance)
                model.append((key, tolerance))
            case 2:
                let gone = model.remove(at: Int.random(in: model.indices, using: &random))
                let removals = [schedule.remove(gone.key.ticket), schedule.remove(gone.key.ticket)]
                #expect(removals == [true, false])
            default:
                let limit = UInt64.random(in: 0..<40, using: &random)
                let first = model.map(\.key).filter { $0.date <= limit }.min(by: <)
                let popped = schedule.popFirst(upTo: limit)
                #expect(popped?.ticket == first?.ticket)
                model.removeAll { $0.key.ticket == first?.ticket }
            }
            #expect(schedule.first?.ticket == model.map(\.key).min(by: <)?.ticket)
            #expect(schedule.earliestFire == model.map(\.key.date).min() ?? .max)
            #expect(schedule.earliestDeadline == model.map { $0.key.date + $0.tolerance }.min() ?? .max)
            #expect(schedule.isEmpty == model.isEmpty)
        }
    }

    @Test(
        "R41, R43, R49: passes find what is due in order, after any changes and steps of the wall clock",
        arguments: 0..<100
    )
    func queueMatchesModel(seed: Int) {
        var run = QueueRun(seed: UInt64(seed))
        for _ in 0..<300 { run.step() }
    }

    @Test("R43, R49: a due timer whose clock is set back before the pass reaches it fires at its date, and is not lost")
    func setBackInPass() async {
        let (isTaken, isScheduled, fires) = await onLoopThread { loop in
            let fires = Counter()
            let date = WallClockInstant.now.advanced(by: .seconds(3600))
            let timer = EventTimer(atWallClock: date) { _ in fires.increment() }
            let mode = LoopMode(name: "mode", index: 0)
            _ = try? timer.attach(to: mode, of: loop)
            defer { timer.invalidate() }
            // The pass begins two hours later than it reaches the timer.
            var late = ClockReading.now(withWall: true)
            late.wall += 7_200_000_000_000
            let taken = mode.withTimers { timers in
                _ = timers.collectDue(at: late)
                return timers.takeDue()
            }
            timer.fireIfDue(in: TimerPass(now: .now(withWall: true), mode: mode, loop: loop))
            return (taken === timer, mode.timerOutlook.wallFire == date.nanoseconds, fires.value)
        }
        #expect(isTaken)
        #expect(isScheduled)
        #expect(fires == 0)
    }

    @Test("R49: a conversion between the clocks keeps the extreme values and stops at zero")
    func translation() {
        let now = ClockReading(monotonic: 100, wall: 1_000)
        #expect(now.monotonic(ofWall: 1_050) == 150)
        #expect(now.monotonic(ofWall: 950) == 50)
        #expect(now.monotonic(ofWall: 0) == 0)
        #expect(now.monotonic(ofWall: .max) == .max)
        #expect(now.wall(ofMonotonic: 50) == 950)
        #expect(now.wall(ofMonotonic: .max - 1) == .max)
    }
}

extension TimerKey {
    fileprivate static func random(ticket: UInt32, sequence: UInt64, using random: inout SplitMix64) -> TimerKey {
        TimerKey(
            date: .random(in: 0..<40, using: &random),
            sequence: sequence,
            order: .random(in: 0..<3, using: &random),
            ticket: ticket
        )
    }
}

/// A queue and a plain list of its expected contents, changed in parallel.
private struct QueueRun {
    private struct Member {
        let timer: EventTimer
        let ticket: UInt32
        let order: Int32
        let sequence: Int
        /// Nil while withdrawn.
        var date: TimerDate?
        /// The time of the pass that found it due; nil if no pass did.
        var dueDate: UInt64?
    }

    private var random: SplitMix64
    private var queue = TimerQueue()
    private var model: [Member] = []
    private var added = 0
    private var now = ClockReading(monotonic: 10_000, wall: 5_000)

    init(seed: UInt64) { random = SplitMix64(seed: seed) }

    mutating func step() {
        now.monotonic += .random(in: 0..<5, using: &random)
        now.wall = .random(in: 0..<20, using: &random) == 0 ? .random(in: 4_000..<6_000, using: &random) : now.wall + 2
        switch model.isEmpty ? 0 : Int.random(in: 0..<8, using: &random) {
        case 0, 1, 2: insert()
        case 3: queue.remove(model.remove(at: anyIndex()).ticket)
        case 4:
            let index = anyIndex()
            model[index].date = anyDate()
            model[index].dueDate = nil
            place(index)
        case 5:
            let index = anyIndex()
            model[index].date = nil
            model[index].dueDate = nil
            queue.withdraw(model[index].ticket)
        case 6: collect()
        default: take()
        }
        checkOutlook()
    }

    private mutating func insert() {
        let order = Int32.random(in: 0..<3, using: &random)
        let timer = EventTimer(at: .now) { _ in }
        model.append(
            Member(timer: timer, ticket: queue.insert(timer), order: order, sequence: added, date: anyDate())
        )
        added += 1
        place(model.count - 1)
    }

    private mutating func place(_ index: Int) {
        guard let date = model[index].date else { return }
        queue.place(model[index].ticket, at: date, order: model[index].order)
    }

    private mutating func anyIndex() -> Int { .random(in: model.indices, using: &random) }

    private mutating func anyDate() -> TimerDate {
        let clock: TimerDate.Clock = Bool.random(using: &random) ? .monotonic : .wall
        let base = now.time(on: clock) - 20
        return TimerDate(
            clock: clock,
            nanoseconds: base + .random(in: 0..<60, using: &random),
            tolerance: .random(in: 0..<2, using: &random) * .random(in: 0..<30, using: &random)
        )
    }

    private mutating func collect() {
        _ = queue.collectDue(at: now)
        for index in model.indices {
            guard let date = model[index].date, date.nanoseconds <= now.time(on: date.clock) else { continue }
            model[index].dueDate = monotonic(date)
            model[index].date = nil
        }
    }

    private mutating func take() {
        let waiting = model.indices.filter { model[$0].dueDate != nil }
        let first = waiting.min { key(model[$0]) < key(model[$1]) }
        let taken = queue.takeDue()
        #expect(taken === first.map { model[$0].timer })
        if let first { model[first].dueDate = nil }
    }

    private func key(_ member: Member) -> (UInt64, Int32, Int) {
        (member.dueDate ?? .max, member.order, member.sequence)
    }

    private func monotonic(_ date: TimerDate) -> UInt64 {
        date.clock == .wall ? now.monotonic(ofWall: date.nanoseconds) : date.nanoseconds
    }

    private func checkOutlook() {
        let dates = model.compactMap(\.date)
        let waiting = model.compactMap(\.dueDate).min() ?? .max
        let outlook = queue.outlook
        let fires = dates.map { monotonic($0) } + [waiting]
        #expect(outlook.earliestFire(at: now) == fires.min())
        let deadlines = dates.map { date in
            var late = date
            late.nanoseconds += date.tolerance
            return monotonic(late)
        }
        #expect(outlook.earliestDeadline(at: now) == (deadlines + [waiting]).min())
        #expect(outlook.hasWallClockTimers == dates.contains { $0.clock == .wall })
        #expect(queue.timers.count == model.count)
    }
}
