import Foundation
import Glibc
import RunLoopKit
import StallReports
import Testing

@testable import StallDiagnosis
@testable import StallMonitor

@Suite("Time that the watchdog missed")
struct SelfCheckTests {
    @Test(
        "A time in which the process did not run is named by its evidence",
        arguments: [
            (frozen: 900, traced: false, accounted: true, kind: PauseKind.frozen),
            (frozen: 900, traced: true, accounted: true, kind: .frozen),
            (frozen: 100, traced: true, accounted: true, kind: .traced),
            (frozen: 0, traced: false, accounted: true, kind: .stopped),
            (frozen: 0, traced: false, accounted: false, kind: .late),
        ]
    )
    func kinds(frozen: Int, traced: Bool, accounted: Bool, kind: PauseKind) {
        let told = SelfCheck.kind(
            of: .seconds(1),
            isAccounted: accounted,
            frozen: .milliseconds(frozen),
            isTraced: traced
        )
        #expect(told == kind)
    }

    @Test("Waking on time misses nothing; time that nothing accounts for is missed")
    func misses() {
        let now = MonotonicInstant.now
        var selfCheck = SelfCheck(at: now)
        #expect(selfCheck.wake(due: now, at: now + .milliseconds(10), tick: .milliseconds(50)).isEmpty)
        #expect(selfCheck.missed == .zero)
        selfCheck.rest(at: now)
        let absences = selfCheck.wake(due: now, at: now + .seconds(100), tick: .milliseconds(50))
        #expect(absences.map(\.kind) == [.stopped])
        #expect(selfCheck.missed > .seconds(90) && selfCheck.missed <= .seconds(100))
        // Also between two loops of one look.
        #expect(selfCheck.step(at: now + .seconds(100.1), tick: .milliseconds(50)).isEmpty)
        // A capture that waits for its threads is no stop; a stop that comes during one is.
        #expect(selfCheck.step(at: now + .seconds(110), tick: .milliseconds(50), captured: .seconds(9.9)).isEmpty)
        // The test's own thread may have waited for a processor for seconds, which is accounted for.
        let long = selfCheck.step(at: now + .seconds(200), tick: .milliseconds(50), captured: .seconds(9))
        #expect(long.map(\.kind) == [.stopped])
    }

    @Test("A time of several ticks that nothing accounts for is missed")
    func missesTicks() {
        let now = MonotonicInstant.now
        var selfCheck = SelfCheck(at: now)
        // This thread may really wait for a processor meanwhile, and that accounts for the time. Not each time.
        let kinds = (0..<100).lazy.map { _ in
            selfCheck.rest(at: now)
            return selfCheck.wake(due: now, at: now + .seconds(1), tick: .milliseconds(50)).map(\.kind)
        }
        #expect(kinds.contains([.stopped]))
    }

    @Test("For a parked watchdog, missed time begins with the departure that woke it")
    func unparked() {
        let now = MonotonicInstant.now
        var selfCheck = SelfCheck(at: now)
        let (later, departure) = (now + .seconds(1_000), now + .seconds(990))
        #expect(selfCheck.unpark(departure: nil, at: now + .seconds(500), tick: .milliseconds(50)).absences.isEmpty)
        #expect(selfCheck.missed == .zero)
        #expect(
            selfCheck.unpark(departure: departure, at: later, tick: .milliseconds(50)).absences.map(\.kind) == [
                .stopped
            ]
        )
        #expect(selfCheck.missed > .seconds(5) && selfCheck.missed <= .seconds(10))
    }

    @Test("A freeze while the watchdog was parked is not the reason for a later delay; one after that is")
    func freezeWhileParked() throws {
        let directory = TemporaryDirectory()
        func noteFrozen(seconds: Int) throws {
            let text = "frozen_usec \(seconds * 1_000_000)\n"
            try text.write(toFile: directory.path + "/cgroup.stat.local", atomically: true, encoding: .utf8)
        }
        var files = SupplyFiles()
        files.freezer.unified = directory.path
        try noteFrozen(seconds: 0)
        let (now, tick) = (MonotonicInstant.now, Duration.milliseconds(50))
        var selfCheck = SelfCheck(at: now, SupplyLocation(found: files))
        try noteFrozen(seconds: 3_600)
        let woken = selfCheck.unpark(departure: now, at: now + .milliseconds(1), tick: tick)
        #expect(woken.absences.isEmpty)
        #expect(selfCheck.wake(due: now, at: now + .seconds(100), tick: tick).map(\.kind) == [.stopped])
        try noteFrozen(seconds: 3_700)
        #expect(selfCheck.wake(due: now + .seconds(100), at: now + .seconds(200), tick: tick).map(\.kind) == [.frozen])
        // The watchdog had read the clock when the process was frozen, and not yet the count.
        let (woke, thawed) = (MonotonicInstant.now.advanced(by: .seconds(-10)), MonotonicInstant.now)
        selfCheck = SelfCheck(at: woke, SupplyLocation(found: files))
        try noteFrozen(seconds: 3_710)
        #expect(selfCheck.unpark(departure: woke, at: woke, tick: tick).absences.isEmpty)
        #expect(selfCheck.wake(due: woke, at: thawed, tick: tick).map(\.kind) == [.frozen])
    }

    @Test("Time in which the watchdog computed, or waited for a CPU, was not missed")
    func accounted() throws {
        let before = try #require(OwnAccount(text: Array("1000 2000 7\n".utf8)))
        let after = try #require(OwnAccount(text: Array("1500 90002000 9\n".utf8)))
        #expect(after.accounted(since: before) == .nanoseconds(90_000_500))
        #expect(OwnAccount(text: Array("no numbers".utf8)) == nil)
        #expect(OwnAccount(text: Array("".utf8)) == nil)
        #expect(OwnAccount(text: Array("0 0 0\n".utf8)) == nil, "a kernel that does not count")
        #expect(OwnAccount(text: Array("0 0 1\n".utf8)) == .zero, "a new thread")
    }

    @Test("A thread's accounted time grows by what it computes")
    func ownAccount() throws {
        let before = try #require(OwnAccount.read())
        // By the thread's own clock: time that a hypervisor takes meanwhile is not accounted.
        let done = ThreadClock.nanoseconds + 60_000_000
        while ThreadClock.nanoseconds < done { _ = stallByComputing(1) }
        let after = try #require(OwnAccount.read())
        #expect(after.accounted(since: before) >= .milliseconds(20))
    }
}

@Suite("Clocks that jump")
struct ClockOffsetsTests {
    private let before = ClockOffsets(monotonic: 0, suspended: 5_000_000_000, wall: 1_000_000_000_000)

    @Test("If boot time advances faster than monotonic time, the machine was suspended")
    func suspension() {
        var after = before
        #expect(after.suspension(since: before) == nil)
        after.suspended += 60_000_000_000
        #expect(after.suspension(since: before) == .seconds(60))
        // The wall clock gains with it and was not set.
        #expect(after.step(since: before) == nil)
    }

    @Test("Setting the wall clock is a step, in either direction; slewing it is not")
    func step() {
        var after = before
        after.monotonic += 3_600_000_000_000
        after.wall += 1_800_000_000
        #expect(after.step(since: before) == nil)
        after.wall += 3_600_000_000_000
        #expect(after.step(since: before) == .milliseconds(3_601_800))
        after.wall = before.wall - 60_000_000_000
        #expect(after.step(since: before) == .seconds(-60))
    }

    @Test("Real clocks do not jump")
    func realClocks() throws {
        let first = try #require((0..<100).lazy.compactMap { _ in ClockOffsets.read() }.first)
        let second = try #require((0..<100).lazy.compactMap { _ in ClockOffsets.read() }.first)
        #expect(second.suspension(since: first) == nil && second.step(since: first) == nil)
    }
}

@Suite("Whether a thread could move")
struct ThreadStopTests {
    private func status(_ state: String, tracer: Int) -> ThreadStatus? {
        ThreadStatus(
            status: "Name:\tState: R\nUmask:\t0022\nState:\t\(state)\nTgid:\t7\nTracerPid:\t\(tracer)\nUid:\t0\n"
        )
    }

    @Test("State and tracer are read from the kernel's text")
    func parsing() throws {
        #expect(try #require(status("t (tracing stop)", tracer: 4711)).tracer == 4711)
        #expect(try #require(status("t (tracing stop)", tracer: 4711)).state == "t")
        #expect(ThreadStatus(status: "") == nil)
        let own = try #require(ThreadStatus.read(threadID: getpid()))
        #expect("RSD".contains(own.state))
    }

    @Test("A stopped, traced or frozen thread is not stalled; a traced one is if stalls under a tracer count")
    func kinds() throws {
        let free = try #require(status("S (sleeping)", tracer: 0))
        let traced = try #require(status("R (running)", tracer: 9))
        let halted = try #require(status("t (tracing stop)", tracer: 9))
        let haltedFromOutside = try #require(status("t (tracing stop)", tracer: 0))
        let stopped = try #require(status("T (stopped)", tracer: 0))
        #expect(ThreadStop.kind(free, countsTraced: false) { false } == nil)
        #expect(ThreadStop.kind(free, countsTraced: false) { true } == .frozen)
        #expect(ThreadStop.kind(traced, countsTraced: false) { false } == .traced)
        #expect(ThreadStop.kind(traced, countsTraced: true) { false } == nil)
        #expect(ThreadStop.kind(halted, countsTraced: true) { false } == .traced)
        #expect(
            ThreadStop.kind(haltedFromOutside, countsTraced: false) { false } == .traced,
            "its tracer is outside of the container"
        )
        #expect(ThreadStop.kind(stopped, countsTraced: false) { false } == .stopped)
    }
}

@Suite("Where a process's freezer is")
struct ControlGroupTests {
    private let hybrid = """
        30 24 0:26 / /sys/fs/cgroup/freezer rw,relatime shared:12 - cgroup cgroup rw,freezer
        31 24 0:27 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
        32 24 0:28 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
        """

    @Test("Both hierarchies' directories are found among the mounts")
    func directories() {
        let group = ControlGroup(membership: "6:freezer:/a/b\n1:cpu,cpuacct:/x\n0::/shop.service\n", mounts: hybrid)
        #expect(group.freezer == "/sys/fs/cgroup/freezer/a/b")
        #expect(group.unified == "/sys/fs/cgroup/unified/shop.service")
    }

    @Test("In a container the mounted root is the group itself, or a part of its path")
    func container() {
        let own = ControlGroup(membership: "0::/\n", mounts: "9 8 0:1 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n")
        #expect(own.unified == "/sys/fs/cgroup")
        let bound = ControlGroup(
            membership: "0::/docker/abc/inner\n",
            mounts: "9 8 0:1 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
        )
        #expect(bound.unified == "/sys/fs/cgroup/inner")
    }

    @Test("An unmounted freezer is absent, and any text is tolerated")
    func nothing() {
        #expect(ControlGroup(membership: "0::/a\n", mounts: "") == ControlGroup(membership: "", mounts: hybrid))
        #expect(ControlGroup(membership: "::::\n\n:\n", mounts: " - \n1 2 - 3\n - cgroup2\n").unified == nil)
        #expect(keyedNumbers("populated 1\nfrozen 1\n")["frozen"] == 1)
        #expect(keyedNumbers("frozen_usec 5\n")["frozen"] == nil)
    }
}
