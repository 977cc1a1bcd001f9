import RunLoopKit
import StackCapture
import Testing

@testable import ProcessWatch

@Suite("Where a thread's loop waits")
struct LoopFinderTests {
    private static func number(_ name: String) -> Int {
        (0..<600).first { SystemCall(number: $0, arguments: []).name == name } ?? -1
    }

    private static let epoll = number("epoll_pwait")
    private static let poll = number("ppoll")
    private static let restart = number("restart_syscall")

    private func wait(_ call: Int = epoll, on descriptor: UInt64 = 5, sp: UInt64 = 0x7000, pc: UInt64 = 0x400)
        -> ThreadPosition
    {
        .calling(WaitPlace(call: call, argument: descriptor, stackPointer: sp, programCounter: pc))
    }

    private func search(_ positions: ThreadPosition..., isMainThread: Bool = false) -> LoopFinder {
        var search = LoopFinder(isMainThread: isMainThread)
        for position in positions { _ = search.note(position) }
        return search
    }

    /// Finds a loop, then sees its thread elsewhere once a second for this many seconds; the thread has run before
    /// each look unless `runs` is false.
    private func later(_ position: ThreadPosition, seconds: Int, runs: Bool = true, turningAt turn: Int? = nil)
        -> LoopFinder
    {
        var search = search(wait(), wait())
        for second in 0...seconds {
            if second == turn { search.hasTurned() }
            _ = search.note(position, second: second, slices: runs ? UInt64(second) : 0)
        }
        return search
    }

    @Test("A thread that waited where a loop would, and a busy main thread, are looked at as before, others seldom")
    func pace() {
        #expect(WatchedThread.pause(afterLooks: 39, mayHaveLoop: false, isBusyMain: false) == 0)
        #expect(WatchedThread.pause(afterLooks: 40, mayHaveLoop: false, isBusyMain: false) > 0)
        #expect(WatchedThread.pause(afterLooks: 4_000, mayHaveLoop: true, isBusyMain: false) == 0)
        #expect(WatchedThread.pause(afterLooks: 4_000, mayHaveLoop: false, isBusyMain: true) == 0)
    }

    @Test("A thread that sleeps where no loop waits is not asked for its place again until it has run")
    func away() {
        var search = LoopFinder(isMainThread: false)
        let before = Schedule(ran: 1, waited: 0, slices: 1)
        let after = Schedule(ran: 1, waited: 0, slices: 2)
        #expect(search.needsPosition(before))
        for position in [wait(Self.number("futex")), wait(Self.poll), .halted(stackPointer: 1, programCounter: 2)] {
            _ = search.note(position, slices: 1)
            #expect(!search.needsPosition(before) && search.needsPosition(after), "\(position)")
        }
        for position in [wait(), .running] {
            _ = search.note(position, slices: 1)
            #expect(search.needsPosition(before), "\(position)")
        }
    }

    @Test("A place seen once is not a loop; seen twice it is")
    func twice() {
        var search = LoopFinder(isMainThread: false)
        #expect(search.note(wait()) == nil && search.place == nil && !search.isRest(wait()))
        #expect(search.note(.running) == nil)
        #expect(search.note(wait()) == wait().wait)
        #expect(search.note(wait()) == nil && search.isRest(wait()) && search.descriptor == 5)
    }

    @Test("A main thread that was found twice where it polls is known to poll while it works; others and loops are not")
    func polls() {
        let (poll, work) = (wait(Self.poll), wait(Self.number("clock_nanosleep")))
        var client = LoopFinder(isMainThread: true)
        for position in [poll, work, poll, work] { _ = client.note(position, isOfLoop: false) }
        #expect(client.place == nil && client.polledBy == Self.poll)
        #expect(search(poll, work, isMainThread: true).polledBy == nil)
        #expect(search(poll, poll, work).polledBy == nil)
        let loop = search(poll, poll, work, isMainThread: true)
        #expect(loop.place != nil && loop.polledBy == nil)
    }

    @Test("A call that does not wait for events is ignored, however often it is seen")
    func otherCalls() {
        let names = ["read", "futex", "clock_nanosleep", "accept4", "recvfrom", "restart_syscall"]
        for name in names {
            let position = wait(Self.number(name))
            #expect(search(position, position, position, isMainThread: true).place == nil, "\(name)")
        }
        #expect(search(.running, .running, .halted(stackPointer: 1, programCounter: 2)).place == nil)
    }

    @Test("poll and select count only on the main thread: other threads use them for calls to servers")
    func lists() {
        for name in ["ppoll", "pselect6"] {
            let position = wait(Self.number(name))
            #expect(search(position, position).place == nil)
            #expect(search(position, position, isMainThread: true).place == position.wait)
        }
        // The list of descriptors is a new one in each call.
        var main = search(wait(Self.poll, on: 1), wait(Self.poll, on: 2), isMainThread: true)
        #expect(main.isRest(wait(Self.poll, on: 3)) && main.descriptor == nil)
        main.forget()
        #expect(main.place == nil)
    }

    @Test("Of two places the outer one is the loop's, whichever is seen first")
    func nested() {
        let (outer, inner) = (wait(sp: 0x7000), wait(on: 9, sp: 0x6000, pc: 0x440))
        let outerFirst = search(outer, outer, inner, inner, inner)
        #expect(outerFirst.place == outer.wait && !outerFirst.isRest(inner))
        let innerFirst = search(inner, inner, outer, outer)
        #expect(innerFirst.place == outer.wait && !innerFirst.isRest(inner))
    }

    @Test("An inner place that the thread returns to exclusively for five seconds becomes the loop's")
    func movedInwards() {
        let inner = wait(on: 9, sp: 0x6000, pc: 0x440)
        #expect(later(inner, seconds: 4).place == wait().wait)
        let moved = later(inner, seconds: 5)
        #expect(moved.place == inner.wait && moved.descriptor == 9 && moved.isRest(inner))
        // Not for one call that continues, and not for a loop that is nested in turn after turn.
        #expect(later(inner, seconds: 60, runs: false).place == wait().wait)
        #expect(later(inner, seconds: 5, turningAt: 3).place == wait().wait)
    }

    @Test("A loop seen at its own wait in between has not ended")
    func cameBack() {
        let inner = wait(on: 9, sp: 0x6000, pc: 0x440)
        var search = search(wait(), wait())
        for second in 0..<20 {
            _ = search.note(second % 4 == 3 ? wait() : inner, second: second, slices: UInt64(second))
        }
        #expect(search.place == wait().wait)
    }

    @Test("The same place with another descriptor is the same loop with a new set")
    func movedToNewSet() {
        var search = search(wait(), wait())
        #expect(search.note(wait(on: 6)) == wait(on: 6).wait)
        #expect(search.isRest(wait(on: 6)) && search.descriptor == 6)
    }

    @Test("A place further out that was seen only once does not become the loop's yet")
    func outerOnce() {
        let inner = wait(on: 9, sp: 0x6000, pc: 0x440)
        #expect(search(inner, inner, wait()).place == inner.wait)
    }

    @Test("A poll's list is checked at the 2nd, 4th, 8th and each 16th time; only a loop's list makes it a loop")
    func asked() {
        var search = LoopFinder(isMainThread: true)
        var asked: [Int] = []
        for time in 1...63 {
            let place = search.note(wait(Self.poll), isOfLoop: false) { asked.append(time) }
            #expect(place == nil)
        }
        #expect(asked == [2, 4, 8, 16, 32, 48] && search.place == nil)
        _ = search.note(wait(Self.poll))
        #expect(search.place == wait(Self.poll).wait)
    }

    @Test(
        "Another instruction with the same descriptor is the same loop, as in libc after a second thread starts"
    )
    func relearned() {
        var search = search(wait(), wait())
        let other = wait(sp: 0x6fd8, pc: 0x436)
        #expect(search.note(other) == other.wait)
        #expect(search.isRest(other) && search.descriptor == 5)
    }

    @Test("A wait restarted after a stop, under another name, is the same wait; at another place it is not")
    func restarted() {
        let search = search(wait(), wait())
        #expect(search.isRest(wait(Self.restart, on: 0)))
        #expect(!search.isRest(wait(Self.restart, sp: 0x6000)) && !search.isRest(wait(Self.restart, pc: 0x404)))
        #expect(!search.isRest(wait(on: 6)) && !search.isRest(wait(Self.poll)))
        #expect(!search.isRest(.running) && !search.isRest(.halted(stackPointer: 0x7000, programCounter: 0x400)))
    }

    @Test(
        "The kernel's line on a thread is parsed; other text is rejected, and that of a first thread that has ended",
        arguments: [
            ("running\n", ThreadPosition.running),
            ("-1 0x7ffe10 0x55aa\n", .halted(stackPointer: 0x7ffe10, programCounter: 0x55aa)),
            (
                "281 0x5 0x1 0x2 0xffffffffffffffff 0x0 0x8 0x7ffe10 0x55aa\n",
                .calling(WaitPlace(call: 281, argument: 5, stackPointer: 0x7ffe10, programCounter: 0x55aa))
            ),
            ("-1 0x0 0x0\n", nil),
            ("", nil), ("\n", nil), ("0x5", nil), ("-1", nil), ("-1 0x1", nil), ("281 5 0x1", nil),
            ("281 0x5 0x1 0x2 0x3 0x0 0x8 0x7ffe10", nil), ("99999999999999999999 0x1 0 0 0 0 0 0x1 0x2", nil),
            ("281 0x5 0x1 0x2 0x3 0x0 0x8 0x1ffffffffffffffff 0x1", nil), ("281 0xg 0x1 0x2 0x3 0x0 0x8 0x1 0x1", nil),
        ] as [(String, ThreadPosition?)]
    )
    func position(_ text: String, _ expected: ThreadPosition?) {
        #expect(ThreadPosition(Array(text.utf8)[...]) == expected)
    }

    @Test("The kernel's counts are parsed; other text is rejected")
    func schedule() {
        func read(_ text: String) -> Schedule? { Schedule(Array(text.utf8)[...]) }
        #expect(read("12 34 5\n") == Schedule(ran: 12, waited: 34, slices: 5))
        #expect(read("18446744073709551615 0 0") == Schedule(ran: .max, waited: 0, slices: 0))
        for text in ["", "1 2", "1 2 x", "-1 2 3", "18446744073709551616 0 0"] { #expect(read(text) == nil, "\(text)") }
    }

    @Test("A kernel that has no counts for a thread that runs does not count; one run without any time is a count")
    func counted() {
        for text in [nil, "", "0 0 0\n", "0 0 0"] { #expect(!Schedule.isCounted(in: text)) }
        for text in ["0 0 1\n", "12 34 5\n"] { #expect(Schedule.isCounted(in: text)) }
    }
}

extension LoopFinder {
    /// - Parameter isOfLoop: the answer if the list is checked.
    fileprivate mutating func note(
        _ position: ThreadPosition,
        second: Int = 0,
        slices: UInt64 = 0,
        isOfLoop: Bool = true,
        asked: () -> Void = {}
    ) -> WaitPlace? {
        let time = MonotonicInstant(nanoseconds: UInt64(second) * 1_000_000_000)
        let schedule = Schedule(ran: slices, waited: 0, slices: slices)
        return note(Reading(position: position, schedule: schedule, time: time)) { _ in
            asked()
            return isOfLoop
        }
    }
}
