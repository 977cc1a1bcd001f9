import Glibc
import LoopTestSupport
import TestSupport
import Testing

/// The loop's behaviour in a misused process. Each case is a separate process, because limits, signals and clocks are per
/// process.
@Suite(.timeLimit(.minutes(10)))
struct FaultTests {
    private func scenario(_ name: String, environment: String = "") throws -> [String] {
        let run = try Fixture.run("FaultFixture", name, environment: environment)
        #expect(run.status == 0)
        return run.lines
    }

    // MARK: Closed descriptors

    @Test("R25, R37: a loop whose descriptors are closed while awake opens new ones and serves all its sources")
    func closedAwake() throws {
        #expect(try scenario("closed-awake") == ["timer", "block", "main queue", "sets: 1"])
    }

    @Test(
        "R25: loops whose descriptors are closed and reused by files in their sleep wake, and touch no file"
    )
    func closedAsleep() throws {
        let nothingLeft = "sets: 0, wake descriptors: 0"
        #expect(try scenario("closed-asleep") == ["first: 8", "rounds: 100", "whole: 32", nothingLeft])
    }

    @Test("R25: a worker thread whose loop's descriptors are closed in its sleep wakes and ends")
    func closedAsleepInWorker() throws {
        #expect(try scenario("closed-worker") == ["answered: true", "ended: true"])
    }

    @Test("R25: loops that get each other's descriptor numbers are not confused")
    func swapped() throws {
        #expect(try scenario("swapped") == ["sets: 8, wake descriptors: 8", "left: 0"])
    }

    @Test(
        "R25: a loop that loses only its epoll set or wake-up descriptor wakes and never reuses the number"
    )
    func closedAlone() throws {
        let whole = ["true, true", "others': 0", "true, true", "others': 0"]
        #expect(try scenario("closed-set") == whole + ["left: 0"])
        // A set without its wake descriptor no longer has our mark, and is left open for safety.
        #expect(try scenario("closed-wake-descriptor") == whole + ["left: 2"])
    }

    @Test("R25, R34: a source that has got the number of the closed wake descriptor is served, and the loop wakes")
    func wakeDescriptorTaken() throws {
        #expect(try scenario("wake-descriptor-taken") == ["true, true", "received: true"])
    }

    @Test("R25, R49: after one mode's set was closed, a step of the wall clock makes no other mode spin")
    func closedBesideClock() throws {
        #expect(try scenario("closed-beside-clock") == ["clocks: 2", "no spin: true"])
    }

    @Test("R25, R49, R58: a loop that finds its set closed as it adds to it says so, and speaks of no shortage")
    func closedBeforeAdding() throws {
        let program = try Fixture.directory() + "/FaultFixture"
        let run = try Fixture.run(command: "{ timeout 450 '\(program)' closed-before-adding 2>&1; }")
        let warning = "RunLoopKit: a loop's descriptors were closed: it makes new ones"
        #expect(run.lines == [warning, "members: [4]", "served"])
    }

    @Test("R25: epoll sets of other code that have got a loop's numbers keep their members")
    func takenBySets() throws {
        #expect(try scenario("taken-by-sets") == ["true, true", "members: [1, 1]", "members: [1, 1]"])
    }

    @Test(
        "R37: sources closed with the loop's own descriptors get the event, even if files reuse the numbers"
    )
    func sourcesTold() throws {
        #expect(try scenario("sources-told") == ["finished", "told: 3", "new: true", "handledSource"])
    }

    @Test("R37, R49, R58: a loop whose own descriptors get closed ones' numbers keeps them; the sources are told")
    func numbersTaken() throws {
        let lines = ["told: 1", "members: [1]", "told: 2", "members: [3]", "served"]
        #expect(try scenario("numbers-taken") == lines)
    }

    @Test("R58: the main queue is served even if its eventfd has become another file")
    func mainQueueTaken() throws {
        #expect(try scenario("main-queue-taken") == ["served"])
    }

    private static let canBeSandboxed =
        (try? Fixture.run("FaultFixture", "no-fcntl").lines.contains("no seccomp here")) == false

    @Test(
        "R25: a sandbox that refuses fcntl(2) costs a loop none of its descriptors",
        .enabled(if: canBeSandboxed, "seccomp(2) does not work here")
    )
    func sandboxed() throws {
        #expect(try scenario("no-fcntl") == ["before: true", "rounds: 100", "same: true", "main queue"])
    }

    @Test(
        "R25: in a sandbox that refuses epoll_pwait2(2) a loop sleeps until a timer is due, and does not ask again and again",
        .enabled(if: canBeSandboxed, "seccomp(2) does not work here")
    )
    func withoutExactWaits() throws {
        #expect(try scenario("no-exact-waits") == ["fires: 50, no spin: true"])
    }

    // MARK: Shortages

    @Test("A loop without free descriptors runs without them and opens them later")
    func exhausted() throws {
        #expect(try scenario("exhausted") == ["without: true", "sleeps again: true", "with: true"])
        #expect(try scenario("exhausted-main") == ["timer", "main queue"])
        let each = (0..<4).map { "\($0) left: true, true" }
        #expect(try scenario("exhausted-middle") == each + ["left open: 0"])
    }

    @Test(
        "A loop continues without eventfd (ENOMEM), epoll set (ENFILE) or watch (ENOSPC), and recovers them later",
        arguments: ["no-eventfd", "no-epoll", "no-watch"]
    )
    func injected(_ call: String) throws {
        #expect(try scenario(call) == ["without: true", "with: true", "left: 0"])
    }

    @Test("R58: a main queue that cannot be watched is served anyway, and is watched once that is possible")
    func mainQueueUnwatched() throws {
        // The fault is selected by the number that the eventfd will have. If another file gets that number, nothing was tested.
        var seen: [String] = []
        for _ in 0..<3 where seen.first != "refused: true" { seen = try scenario("main-queue-unwatched") }
        #expect(seen == ["refused: true", "unwatched, served: true", "sleeps again: true", "watched"])
    }

    @Test("R18, R58: a mode without a set serves the main queue also in runs that only poll")
    func mainQueuePolled() throws { #expect(try scenario("main-queue-polled") == ["polled, served: 1"]) }

    @Test("R34: a source that the kernel refuses is added nowhere; one that a new set cannot take yet is not lost")
    func sourceUnwatched() throws {
        let lines = ["refused: true", "readable: true", "handledSource", "timedOut", "valid: true"]
        #expect(try scenario("source-unwatched") == lines + ["readable: true", "handledSource"])
    }

    // MARK: Signals, clocks, suspension

    @Test(
        "R17, R49: thousands of signals a second end no run early, lose no timer and cause no turns",
        .repeatedWhenLate(by: .milliseconds(20))
    )
    func signals() throws {
        let lines = ["the late timer", "timedOut, in time: true", "signals: true, turns: true, fires: true"]
        #expect(try scenario("signals") == lines)
    }

    @Test(
        "R44: the fires that a stopped process misses become one on the grid; a run that slept through has timed out",
        .repeatedWhenLate(by: .milliseconds(20))
    )
    func suspended() throws {
        let lines = ["stopped: true, timedOut, turns: 1", "stopped: true, timedOut, in time: true"]
        #expect(try scenario("suspended") == lines + ["no burst: true, on the grid: true"])
    }

    @Test(
        "R49: steps of the wall clock by hours, there and back, neither move a timer nor cause spinning",
        .enabled(if: hasFaketime),
        .repeatedWhenLate(by: .milliseconds(20))
    )
    func wallClockSteps() throws {
        let steps = ["+5h", "-3h", "+0"].map { "\($0): stepped: true, stopped, fires: true, no spin: true" }
        #expect(try faked(monotonicToo: false) == steps)
    }

    @Test(
        "R49: even a jump of the monotonic clock, which no kernel makes, causes no spinning or hanging",
        .enabled(if: hasFaketime)
    )
    func monotonicSteps() throws {
        let lines = try faked(monotonicToo: true)
        #expect(lines.count == 3)
        for line in lines { #expect(line.hasSuffix("no spin: true") && line.contains("stepped: true")) }
    }

    private func faked(monotonicToo: Bool) throws -> [String] {
        var file = Array("/tmp/run-loop-clock-XXXXXX".utf8CString)
        let descriptor = unsafe mkstemp(&file)
        try #require(descriptor >= 0)
        _ = unsafe write(descriptor, "+0\n", 3)
        close(descriptor)
        defer { unsafe unlink(file) }
        let path = String(decoding: file.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        // By env(1): the library sets a variable in the first process that loads it, and a Swift program then lacks its arguments.
        // That process also names the library's shared memory by its number, and does not remove it when it becomes the program;
        // a later process with this number would end at its start.
        let environment = """
            sh -c 'LD_PRELOAD=\(faketime) FAKETIME_NO_CACHE=1 FAKETIME_TIMESTAMP_FILE=\(path) \
            FAKETIME_DONT_FAKE_MONOTONIC=\(monotonicToo ? 0 : 1) env "$@" & \
            wait $!; status=$?; rm -f /dev/shm/*faketime_*_$!; exit $status' sh
            """
        return try scenario("clock-steps", environment: environment)
    }

    // MARK: Scale

    /// The number of descriptors that a process can ask for.
    private static var descriptorLimit: UInt {
        var limit = rlimit()
        return unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 ? limit.rlim_max : 0
    }

    @Test(
        "R36: ten thousand descriptors on one loop: all are served, one is found among idle ones, none is left behind",
        .enabled(if: FaultTests.descriptorLimit > 10_100, "this machine permits too few descriptors")
    )
    func manyDescriptors() throws {
        let lines = try scenario("many-descriptors")
        #expect(
            lines == [
                "all: stopped, 10000", "one: handledSource, 10001", "none: timedOut, 10001",
                "finished: finished, left: 0",
            ]
        )
    }

    @Test(
        "R1, R2: a thousand loops at a time, with two descriptors each, are woken, end and leave nothing behind",
        .enabled(if: FaultTests.descriptorLimit > 2_100, "this machine permits too few descriptors")
    )
    func manyLoops() throws {
        #expect(
            try scenario("many-loops") == [
                "descriptors each: 2", "answered: 1000", "descriptors left: 0, memory: back",
            ]
        )
    }
}

private let faketime = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
private let hasFaketime = unsafe access(faketime, R_OK) == 0
