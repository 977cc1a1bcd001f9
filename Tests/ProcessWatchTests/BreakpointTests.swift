import CProcessWatch
import Glibc
import RunLoopKit
import StallReports
import Testing

@testable import ProcessWatch

@Suite("Breakpoints that cannot be set")
struct BreakpointSupplyTests {
    @Test(
        "The message says why, what follows from it, and what to do",
        arguments: [
            (EACCES, "kernel.perf_event_paranoid"), (EPERM, "CAP_PERFMON"), (EPERM, "seccomp"), (ENOSPC, "a debugger"),
            (EOPNOTSUPP, "no hardware breakpoints"),
        ]
    )
    func problems(_ error: Int32, _ remedy: String) throws {
        let problem = try #require(BreakpointSupply(error: error).problem)
        #expect(problem.contains(remedy) && problem.contains("only an uninterrupted system call"), "\(problem)")
        #expect(!BreakpointSupply(error: error).isThere)
    }

    @Test("If they can be set there is no message")
    func none() { #expect(BreakpointSupply(error: 0).problem == nil && BreakpointSupply(error: 0).isThere) }
}

@Suite("What a breakpoint hit")
struct BreakpointTests {
    /// The kernel's ring buffer as perf_event_open(2) has it, one page after its head, filled with our own records.
    ///
    /// Safe: its memory is passed only to calls that return before it is freed.
    @safe private final class Ring {
        private static let (head, tail) = (1024, 1032)
        private let memory: UnsafeMutableRawPointer
        private let size = Int(getpagesize())
        private var breakpoint: process_watch_breakpoint

        /// - Parameter position: where the first record begins; the buffer wraps at its end.
        init(_ records: [[UInt8]], at position: Int = 0) {
            unsafe memory = UnsafeMutableRawPointer.allocate(byteCount: 2 * size, alignment: 4096)
            unsafe memory.initializeMemory(as: UInt8.self, repeating: 0, count: 2 * size)
            var at = position
            for byte in records.joined() {
                unsafe memory.storeBytes(of: byte, toByteOffset: size + at % size, as: UInt8.self)
                at += 1
            }
            unsafe memory.storeBytes(of: UInt64(at), toByteOffset: Self.head, as: UInt64.self)
            unsafe memory.storeBytes(of: UInt64(position), toByteOffset: Self.tail, as: UInt64.self)
            unsafe breakpoint = process_watch_breakpoint(descriptor: -1, ring: memory)
        }

        deinit { unsafe memory.deallocate() }

        func take() -> process_watch_hit? {
            var hit = process_watch_hit()
            return unsafe process_watch_breakpoint_take(&breakpoint, &hit) ? hit : nil
        }
    }

    private func record(_ type: UInt32, _ words: [UInt64]) -> [UInt8] {
        let length = UInt64(8 + words.count * 8)
        let header = UInt64(type) | length << 48
        return ([header] + words).flatMap { word in (0..<8).map { UInt8(truncatingIfNeeded: word >> ($0 * 8)) } }
    }

    private static let (lost, sample): (UInt32, UInt32) = (2, 9)

    @Test(
        "A sample is read once, even if the buffer wraps inside it",
        arguments: [0, 4056, 4076, 4090]
    )
    func whole(_ position: Int) {
        let ring = Ring([record(Self.sample, [77, 2, 5, 0x7000])], at: position)
        let hit = ring.take()
        #expect(hit?.time_ns == 77 && hit?.first_argument == 5 && hit?.stack_pointer == 0x7000)
        #expect(hit?.has_registers == true && ring.take() == nil)
    }

    @Test("A sample without registers, or a lost one, is an unknown hit, not none")
    func withoutRegisters() throws {
        for records in [
            [record(Self.sample, [77, 0])], [record(Self.lost, [1, 1])], [record(Self.sample, [77, 0, 0, 0])],
        ] {
            let hit = try #require(Ring(records).take())
            #expect(!hit.has_registers)
            #expect(Breakpoint.Target(stackPointer: 0, descriptor: 0).meaning(of: hit) == .other)
        }
        #expect(Ring([]).take() == nil && Ring([record(3, [1])]).take() == nil)
    }

    @Test("A hit is matched by descriptor if its register keeps the argument, otherwise by stack pointer")
    func meaning() {
        let hit = process_watch_hit(time_ns: 9, stack_pointer: 0x7000, first_argument: 5, has_registers: true)
        func meaning(_ stackPointer: UInt64, _ descriptor: Int32?, _ keeps: Bool) -> LoopRule.Hit {
            Breakpoint.Target(stackPointer: stackPointer, descriptor: descriptor, keepsArgument: keeps).meaning(of: hit)
        }
        let own = LoopRule.Hit.own(MonotonicInstant(nanoseconds: 9))
        #expect(meaning(0x1, 5, true) == own && meaning(0x7000, 6, true) == .other)
        #expect(meaning(0x7000, 6, false) == own && meaning(0x1, 5, false) == .other)
        #expect(meaning(0x7000, nil, true) == own && meaning(0x1, nil, true) == .other)
    }

    @Test("The time of a hit, which the kernel takes outside of time namespaces, is moved into the watcher's")
    func timeNamespace() {
        let hit = process_watch_hit(time_ns: 9, stack_pointer: 0x7000, first_argument: 5, has_registers: true)
        func time(_ offsets: String) -> LoopRule.Hit {
            Breakpoint.Target(stackPointer: 0x7000, descriptor: nil)
                .meaning(of: hit, in: TimeNamespace(offsets: offsets))
        }
        #expect(time("monotonic 100000 7") == .own(MonotonicInstant(nanoseconds: 100_000_000_000_016)))
        #expect(time("monotonic -1 999999997") == .own(MonotonicInstant(nanoseconds: 6)))
        #expect(time("boottime 5 0") == .own(MonotonicInstant(nanoseconds: 9)))
    }

    @Test("Of several equivalent breakpoints, the earliest hit of the loop's own counts")
    func several() {
        let (early, late) = (MonotonicInstant(nanoseconds: 5), MonotonicInstant(nanoseconds: 6))
        #expect(LoopRule.Hit.first(of: []) == nil && LoopRule.Hit.first(of: [nil, nil]) == nil)
        #expect(LoopRule.Hit.first(of: [nil, .other]) == .other)
        #expect(LoopRule.Hit.first(of: [.other, .own(late), .own(early)]) == .own(early))
    }
}

@Suite("When a look is due, and how late it is")
struct LookClockTests {
    private static func at(_ milliseconds: Int) -> MonotonicInstant {
        MonotonicInstant(nanoseconds: UInt64(1000 + milliseconds) * 1_000_000)
    }

    private func clock() -> LookClock { LookClock(tick: .milliseconds(50), firstAt: Self.at(0)) }

    @Test("A look on time is not late; the first look never is")
    func inTime() {
        var clock = clock()
        #expect(clock.begin(at: Self.at(700)) == .zero)
        clock.end(at: Self.at(701), maturity: nil)
        #expect(clock.due == Self.at(706))
        #expect(clock.begin(at: Self.at(706)) == .zero)
    }

    @Test("A look that itself took long makes the next one late: the time without a look counts")
    func longLook() {
        var clock = clock()
        _ = clock.begin(at: Self.at(0))
        clock.end(at: Self.at(400), maturity: nil)
        #expect(clock.due == Self.at(405))
        #expect(clock.begin(at: Self.at(405)) == .milliseconds(355))
        clock.end(at: Self.at(406), maturity: nil)
        #expect(clock.begin(at: clock.due) == .zero)
    }

    @Test(
        "A long look delays the next by nothing if the watcher worked throughout, else by the rest"
    )
    func longWork() {
        var clock = clock()
        _ = clock.begin(at: Self.at(0))
        clock.end(at: Self.at(400), maturity: nil)
        var other = clock
        #expect(clock.begin(at: Self.at(405), worked: .milliseconds(400)) == .zero)
        #expect(other.begin(at: Self.at(405), worked: .milliseconds(300)) == .milliseconds(100))
    }

    @Test("Up to a fifth of a tick late counts as on time")
    func slack() {
        var clock = clock()
        _ = clock.begin(at: Self.at(0))
        clock.end(at: Self.at(1), maturity: nil)
        var other = clock
        #expect(clock.begin(at: Self.at(60)) == .zero && other.begin(at: Self.at(61)) == .milliseconds(11))
    }

    @Test("A look is moved forward to when the stall would be confirmed; an early look does not move the next")
    func maturity() {
        var clock = clock()
        _ = clock.begin(at: Self.at(0))
        clock.end(at: Self.at(1), maturity: Self.at(20))
        #expect(clock.due == Self.at(20))
        #expect(clock.begin(at: Self.at(10)) == .zero)
        clock.end(at: Self.at(11), maturity: Self.at(12))
        #expect(clock.due == Self.at(20))
        #expect(clock.begin(at: Self.at(33)) == .milliseconds(13))
    }
}

@Suite("Signals of the watcher", .serialized)
struct WatchSignalTests {
    @Test("A child that stops or continues sends no signal: SA_NOCLDSTOP")
    func stops() throws {
        let numbers = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD]
        let before = numbers.map { number in
            var action = sigaction()
            unsafe sigaction(number, nil, &action)
            return action
        }
        var mask = sigset_t()
        unsafe pthread_sigmask(SIG_SETMASK, nil, &mask)
        defer { unsafe pthread_sigmask(SIG_SETMASK, &mask, nil) }
        let signals = try WatchSignals()
        var installed = sigaction()
        unsafe sigaction(SIGCHLD, nil, &installed)
        for (number, action) in zip(numbers, before) {
            var action = action
            unsafe sigaction(number, &action, nil)
        }
        #expect(installed.sa_flags & SA_NOCLDSTOP != 0 && signals.descriptor >= 0)
    }
}
