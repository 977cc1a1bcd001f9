import Glibc
import LoopTestSupport
import RunLoopKit
import TestSupport
import Testing

/// R49. The clock is not set in the tests' own process; a fixture does so with a simulated time.
@Suite(.timeLimit(.minutes(10)))
struct WallClockTests {
    @Test("R49: a timer for a wall-clock date fires at that date, and not before")
    func fires() async {
        let (fired, early) = await onLoopThread { loop in
            let early = Box(false)
            let fired = Counter()
            let date = WallClockInstant.now.advanced(by: .milliseconds(10))
            loop.add(
                EventTimer(atWallClock: date) { timer in
                    early.value = WallClockInstant.now < date || timer.nextWallClockFireDate != date
                    fired.increment()
                }
            )
            loop.run()
            return (fired.value, early.value)
        }
        #expect(fired == 1)
        #expect(!early)
    }

    @Test("R41, R49: timers of both clocks that are due together fire in the order of their dates")
    func order() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            var now = MonotonicInstant.now
            var wall = WallClockInstant.now
            // The dates of both clocks are a second apart: this thread may not wait for a processor for so long between the two lines.
            while elapsed(since: now) > .milliseconds(500) { (now, wall) = (.now, .now) }
            for second in [5, 3, 1] {
                loop.add(EventTimer(at: now.advanced(by: .seconds(-second))) { _ in trace.note("\(second)") })
            }
            for second in [4, 2] {
                loop.add(
                    EventTimer(atWallClock: wall.advanced(by: .seconds(-second))) { _ in trace.note("wall \(second)") }
                )
            }
            loop.add(EventTimer(atWallClock: WallClockInstant(nanoseconds: 0)) { _ in trace.note("1970") })
            loop.run(for: .zero)
            return trace.all
        }
        #expect(trace == ["1970", "5", "wall 4", "3", "wall 2", "1"])
    }

    @Test("R44, R49: a repeating timer stays on its grid in wall-clock time")
    func grid() async {
        let offsets = await onLoopThread { loop in
            let start = WallClockInstant.now.advanced(by: .milliseconds(-35))
            let dates = Box<[WallClockInstant]>([])
            loop.add(
                EventTimer(atWallClock: start, every: .milliseconds(10)) { timer in
                    dates.value.append(timer.nextWallClockFireDate)
                    if dates.value.count == 3 { loop.stop() }
                }
            )
            loop.run()
            return dates.value.map { start.duration(to: $0) }
        }
        #expect(offsets.first == .zero)
        #expect(offsets.allSatisfy { $0.components.attoseconds % 10_000_000_000_000_000 == 0 }, "\(offsets)")
        // 35 ms were missed before the first fire.
        #expect(offsets.count == 3 && offsets[1] >= .milliseconds(40) && offsets[2] > offsets[1], "\(offsets)")
    }

    @Test("R27, R49: a new wall-clock date takes effect on a sleeping loop; the timer keeps its clock")
    func moved() async {
        let (result, follows, held) = await onLoopThread { loop in
            let timer = EventTimer(atWallClock: .distantFuture) { _ in loop.stop() }
            loop.add(timer)
            let held = Box(false)
            let mover = TestThread {
                waitUntil { loop.isWaiting }
                timer.nextFireDate = .now.advanced(by: .seconds(3600))
                let lead = WallClockInstant.now.duration(to: timer.nextWallClockFireDate)
                held.value = lead > .seconds(3500) && lead <= .seconds(3600)
                timer.nextWallClockFireDate = .now
            }
            let result = loop.run(for: .seconds(60))
            mover.join()
            return (result, timer.followsWallClock, held.value)
        }
        #expect(result == .stopped)
        #expect(follows)
        #expect(held)
    }

    /// The loop must sleep before the first date.
    @Test(
        "R46, R49: tolerance applies to wall-clock dates as well",
        .repeatedWhenLate(by: .milliseconds(50))
    )
    func tolerance() async {
        let (wakeUps, trace, sleepsAfter) = await onLoopThread { loop in
            let (wakeUps, trace, sleepsAfter) = (Counter(), Trace(), Box<Duration?>(nil))
            let (start, now) = (MonotonicInstant.now, WallClockInstant.now)
            let lenient = EventTimer(atWallClock: now.advanced(by: .milliseconds(200))) { _ in trace.note("lenient") }
            lenient.tolerance = .seconds(60)
            loop.add(lenient)
            loop.add(EventTimer(atWallClock: now.advanced(by: .milliseconds(400))) { _ in trace.note("exact") })
            loop.add(LoopObserver(activities: .afterWaiting) { _, _ in wakeUps.increment() })
            let observer = LoopObserver(activities: .beforeWaiting, repeats: false) { _, _ in
                sleepsAfter.value = elapsed(since: start)
            }
            loop.add(observer)
            loop.run()
            return (wakeUps.value, trace.all, sleepsAfter.value)
        }
        LatenessWitness.note(sleepsAfter ?? .zero)
        #expect(wakeUps <= 1)
        #expect(trace == ["lenient", "exact"])
    }

    @Test("Timers at the ends of the wall clock do not trap")
    func farAway() async {
        let (result, next) = await onLoopThread { loop in
            loop.add(EventTimer(atWallClock: .distantFuture, every: .seconds(Int64.max)) { _ in })
            loop.add(EventTimer(atWallClock: .now.advanced(by: .seconds(Int64.max))) { _ in })
            let timer = EventTimer(at: .distantFuture) { _ in }
            loop.add(timer)
            return (loop.run(for: .milliseconds(1)), timer.nextWallClockFireDate)
        }
        #expect(result == .timedOut)
        #expect(next == .distantFuture)
        #expect(WallClockInstant(nanoseconds: 5).advanced(by: .seconds(-1)).nanoseconds == 0)
    }

    private static let libfaketime = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"

    @Test(
        "R49: a forward step fires missed timers once, a backward step delays; the loop sleeps meanwhile",
        .enabled(if: unsafe access(libfaketime, R_OK) == 0)
    )
    func steps() throws {
        let file = "/tmp/clock-steps.\(getpid())"
        defer { unsafe unlink(file) }
        let environment =
            "LD_PRELOAD=\(WallClockTests.libfaketime) FAKETIME_TIMESTAMP_FILE=\(file) FAKETIME_NO_CACHE=1"
            + " FAKETIME_DONT_FAKE_MONOTONIC=1 SCENARIO=clock-steps"
        let run = try Fixture.run("RunLoopFixture", environment: environment)
        #expect(
            run.lines == [
                "before: timedOut", "forward: fired", "after: stopped", "back: timedOut, fires 0, turns few",
                "near: fired", "forward again: fires 1", "asleep: fired", "asleep: stopped",
            ]
        )
    }

    @Test("R49: without free descriptors, wall-clock timers fire anyway")
    func outOfDescriptors() throws {
        #expect(try Fixture.run("RunLoopFixture", "no-clock-descriptor").lines == ["timer", "stopped"])
    }
}
