import CRunLoopShims
import Glibc
import RunLoopKit

// The wall clock is set while timers wait for it (R49). libfaketime fakes the clock: it reads the offset from a file.

/// A program with libfaketime loaded does not find its arguments:
/// that library moves the environment, from which Swift derives them.
var preloadedScenario: String? { unsafe getenv("SCENARIO").map { unsafe String(cString: $0) } }

/// Sets the wall clock this number of hours away from the true time.
func setClock(hours: Int) {
    guard let path = unsafe getenv("FAKETIME_TIMESTAMP_FILE"), let file = unsafe fopen(path, "w") else {
        say("no clock to set")
        exit(1)
    }
    _ = unsafe fputs(hours < 0 ? "\(hours)h\n" : "+\(hours)h\n", file)
    _ = unsafe fclose(file)
}

func clockSteps() {
    setClock(hours: 0)
    stepForward()
    stepBack()
    stepInSleep()
}

func timer(inHours hours: Int, _ word: String) -> EventTimer {
    EventTimer(atWallClock: .now.advanced(by: .seconds(hours * 3600))) { _ in
        say(word)
        EventRunLoop.main.stop()
    }
}

/// An awake loop detects the step in its next turn.
func stepForward() {
    let loop = EventRunLoop.main
    loop.add(timer(inHours: 1, "forward: fired"))
    let ticker = EventTimer(every: .milliseconds(1)) { _ in }
    loop.add(ticker)
    say("before: \(loop.run(for: .milliseconds(20)))")
    setClock(hours: 2)
    say("after: \(loop.run(for: .seconds(20)))")
    ticker.invalidate()
}

/// A date that was near is distant after the clock is set back: the loop waits for it, and sleeps during that time.
func stepBack() {
    let loop = EventRunLoop.main
    let counts = Counts()
    loop.add(timer(inHours: 0, "near: fired"))
    let repeating = EventTimer(atWallClock: .now.advanced(by: .milliseconds(20)), every: .milliseconds(20)) { _ in
        counts.timers += 1
    }
    loop.add(repeating)
    setClock(hours: 1)
    let observer = LoopObserver(activities: .beforeTimers) { _, _ in counts.drains += 1 }
    loop.add(observer)
    say(
        "back: \(loop.run(for: .milliseconds(200))), fires \(counts.timers), turns \(counts.drains < 10 ? "few" : "many")"
    )
    setClock(hours: 3)
    loop.run(for: .milliseconds(1))
    // All missed dates cause one fire, and the grid continues from there.
    say("forward again: fires \(counts.timers)")
    observer.invalidate()
    repeating.invalidate()
}

/// The kernel notifies a sleeping loop. It does not know of the faked step, so a thread makes the descriptor ready instead.
func stepInSleep() {
    let loop = EventRunLoop.main
    loop.add(timer(inHours: 1, "asleep: fired"))
    var thread = pthread_t()
    _ = unsafe pthread_create(
        &thread,
        nil,
        { _ in
            while !EventRunLoop.main.isWaiting || clockDescriptor() == nil { usleep(1000) }
            setClock(hours: 5)
            if let fd = clockDescriptor() { expire(fd) }
            return nil
        },
        nil
    )
    say("asleep: \(loop.run(for: .seconds(20)))")
    pthread_join(thread, nil)
}

/// The timerfd that is armed to detect steps: of CLOCK_REALTIME, with TFD_TIMER_ABSTIME and TFD_TIMER_CANCEL_ON_SET.
func clockDescriptor() -> Int32? {
    (3..<64).first { fd in
        let facts = contents(of: "/proc/self/fdinfo/\(fd)")
        return facts.contains("clockid: 0") && facts.contains("settime flags: 03")
    }
}

func contents(of path: String) -> String {
    guard let file = unsafe fopen(path, "r") else { return "" }
    defer { unsafe fclose(file) }
    var text: [UInt8] = []
    var byte = unsafe getc(file)
    while byte != EOF {
        text.append(UInt8(truncatingIfNeeded: byte))
        byte = unsafe getc(file)
    }
    return String(decoding: text, as: UTF8.self)
}

/// timerfd_settime(2) as in sys/timerfd.h, which the module of the C library does not include. Expires immediately.
func expire(_ fd: Int32) {
    var soon = itimerspec(it_interval: timespec(), it_value: timespec(tv_sec: 0, tv_nsec: 1))
    _ = unsafe setTimer(fd, 0, &soon, nil)
}

@_silgen_name("timerfd_settime")
func setTimer(
    _ fd: Int32,
    _ flags: Int32,
    _ new: UnsafePointer<itimerspec>,
    _ old: UnsafeMutablePointer<itimerspec>?
) -> Int32

/// With a full descriptor table, a loop that already sleeps continues to serve dates of the wall clock.
func noClockDescriptor() {
    let loop = EventRunLoop.main
    loop.run(for: .nanoseconds(1))
    var limit = rlimit(rlim_cur: 16, rlim_max: 16)
    unsafe setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    while dup(0) >= 0 {}
    loop.add(
        EventTimer(atWallClock: .now.advanced(by: .milliseconds(20))) { _ in
            say("timer")
            loop.stop()
        }
    )
    say("\(loop.run(for: .seconds(60)))")
}
