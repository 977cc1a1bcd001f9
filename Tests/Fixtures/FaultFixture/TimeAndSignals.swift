import CFaults
import Glibc
import RunLoopKit
import Synchronization

// The clock steps, many signals arrive, or the process is stopped.

private let signals = Counter()

/// Ten thousand signals a second, with a handler that interrupts
/// system calls. A run is neither shorter nor busier because of them.
func signalStorm() {
    let loop = EventRunLoop.current
    var action = sigaction()
    unsafe action.__sigaction_handler.sa_handler = { _ in signals.increment() }
    unsafe sigaction(SIGUSR1, &action, nil)
    let thread = pthread_self()
    let isOver = Counter()
    let storm = Thread {
        while isOver.value == 0 {
            pthread_kill(thread, SIGUSR1)
            usleep(50)
        }
    }
    let turns = Counter()
    loop.add(LoopObserver(activities: .beforeWaiting) { _, _ in turns.increment() }, to: "other")
    let fires = Counter()
    let late = EventTimer(after: .milliseconds(250)) { _ in say("the late timer") }
    loop.add(late, to: "other")
    loop.add(EventTimer(every: .milliseconds(5)) { _ in fires.increment() }, to: "other")
    let start = MonotonicInstant.now
    let result = loop.run(mode: "other", for: .milliseconds(300))
    say("\(result), in time: \(start.duration(to: .now) >= .milliseconds(300))")
    isOver.increment()
    storm.join()
    say("signals: \(signals.value > 20), turns: \(turns.value <= fires.value + 3), fires: \(fires.value >= 3)")
}

/// The process is stopped for longer than the run, in the middle of a wait, and for many intervals of a timer. The process that stops it may
/// be late: then once more.
func suspended() {
    for attempt in 1...5 where sleepsThrough(isLast: attempt == 5) { break }
    for attempt in 1...5 where missesFires(isLast: attempt == 5) { break }
}

/// Says what it has observed, and returns true, if it was stopped during the run.
private func sleepsThrough(isLast: Bool) -> Bool {
    let loop = EventRunLoop.current
    let source = EventSource { _ in }
    loop.add(source, to: "other")
    let turns = Counter()
    let observer = LoopObserver(activities: .beforeWaiting) { _, _ in turns.increment() }
    loop.add(observer, to: "other")
    stopMyself(for: "0.4", after: "0.05")
    let start = MonotonicInstant.now
    let result = loop.run(mode: "other", for: .milliseconds(300))
    let isStopped = start.duration(to: .now) >= .milliseconds(400)
    source.invalidate()
    observer.invalidate()
    guard isStopped || isLast else { return false }
    say("stopped: \(isStopped), \(result), turns: \(turns.value)")
    return true
}

/// The same.
private func missesFires(isLast: Bool) -> Bool {
    let loop = EventRunLoop.current
    let onGrid = Counter()
    let interval = Duration.milliseconds(10)
    let first = MonotonicInstant.now.advanced(by: interval)
    let times = Mutex<[MonotonicInstant]>([])
    let timer = EventTimer(at: first, every: interval) { timer in
        times.withLock { $0.append(.now) }
        let phase = timer.nextFireDate.nanoseconds - first.nanoseconds
        if phase.isMultiple(of: 10_000_000) { onGrid.increment() }
    }
    loop.add(timer, to: "other")
    stopMyself(for: "0.4", after: "0.05")
    let start = MonotonicInstant.now
    let result = loop.run(mode: "other", for: .milliseconds(600))
    let time = start.duration(to: .now)
    timer.invalidate()
    let fires = times.withLock { $0 }
    let gap = zip(fires, fires.dropFirst()).map { $0.duration(to: $1) }.max() ?? .zero
    let isStopped = gap >= .milliseconds(300)
    guard isStopped || isLast else { return false }
    say("stopped: \(isStopped), \(result), in time: \(time >= .milliseconds(600))")
    // Those that pass while it is stopped cause one fire; of the other intervals each causes one at most.
    let isBurst = interval * fires.count > time - gap + interval * 3
    say("no burst: \(!isBurst), on the grid: \(fires.count == onGrid.value)")
    return true
}

/// Stopped by another process, which also continues it: a stopped process cannot continue itself.
private func stopMyself(for time: String, after delay: String) {
    let me = getpid()
    unsafe system("(sleep \(delay); kill -STOP \(me); sleep \(time); kill -CONT \(me)) &")
}

/// A sandbox refuses epoll_pwait2(2): waits end on whole milliseconds, and timers may not.
func withoutExactWaits() {
    guard faults_forbid_exact_waits() else { return say("no seccomp here") }
    let (loop, fires) = (EventRunLoop.current, Counter())
    let timer = EventTimer(every: .microseconds(1500)) { _ in
        if fires.increment() == 50 { loop.stop() }
    }
    loop.add(timer, to: "other")
    let before = faults_waits()
    _ = loop.run(mode: "other", for: .seconds(600))
    say("fires: \(fires.value), no spin: \(faults_waits() - before <= 5 * fires.value)")
}

/// With libfaketime: the clocks jump while the loop waits. The environment decides which clock is faked.
func clockSteps() {
    guard let path = unsafe getenv("FAKETIME_TIMESTAMP_FILE") else { return say("not faked") }
    let file = unsafe String(cString: path)
    let loop = EventRunLoop.current
    let fires = Counter()
    loop.add(EventTimer(every: .milliseconds(20)) { _ in fires.increment() }, to: "other")
    for step in ["+5h", "-3h", "+0"] {
        let stepper = Thread {
            usleep(60_000)
            setClock(step, in: file)
        }
        let (firesBefore, waitsBefore) = (fires.value, faults_waits())
        let before = time(nil)
        // Limited by the loop's clock; if that is set back by hours, another thread ends the run.
        let rescuer = Thread {
            usleep(400_000)
            loop.stop()
        }
        let result = loop.run(mode: "other", for: .seconds(3600))
        stepper.join()
        rescuer.join()
        let stepped = abs(time(nil) - before) > 3000
        let (fired, waits) = (fires.value - firesBefore, Int(faults_waits() - waitsBefore))
        say("\(step): stepped: \(stepped), \(result), fires: \(fired >= 2), no spin: \(waits <= 2 * fired + 20)")
    }
}

func setClock(_ step: String, in file: String) {
    guard let output = unsafe fopen(file, "w") else { return }
    unsafe fputs(step + "\n", output)
    unsafe fclose(output)
}
