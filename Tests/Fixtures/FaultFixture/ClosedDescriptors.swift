import CFaults
import CRunLoopShims
import Dispatch
import Glibc
import RunLoopKit

// A program closes descriptors that it does not own.

/// The loop runs, on main, when all descriptors are closed. Timers, wake-ups and the main queue continue.
func closedWhileAwake() {
    let loop = EventRunLoop.main
    let fires = Counter()
    loop.add(
        EventTimer(every: .milliseconds(2)) { timer in
            if fires.increment() == 3 { faults_close_from(3) }
            if fires.value == 10 {
                say("timer")
                timer.invalidate()
                _ = Thread {
                    waitUntilAsleep(loop)
                    loop.perform { say("block") }
                    waitUntilAsleep(loop)
                    DispatchQueue.main.async {
                        say("main queue")
                        loop.stop()
                    }
                }
            }
        }
    )
    loop.run()
    say("sets: \(descriptors(of: "eventpoll").count)")
}

/// Loops sleep when all descriptors are closed and other files get their numbers. The next wake-up succeeds, and no descriptor of
/// another owner is written to or closed.
func closedWhileAsleep() {
    let workers = (0..<8).map { _ in Worker() }
    faults_close_from(3)
    let files = (0..<32).map { _ in makeFile() }
    say("first: \(workers.count { $0.answers() })")
    let rounds = (0..<100).count { _ in workers.allSatisfy { $0.answers() } }
    say("rounds: \(rounds)")
    for worker in workers { worker.end() }
    say("whole: \(files.count { size(of: $0) == 0 })")
    say("sets: \(descriptors(of: "eventpoll").count), wake descriptors: \(descriptors(of: "eventfd").count)")
}

/// As before, for a thread of the library's own, which blocks most signals.
func closedWhileWorkerSleeps() {
    // What this thread blocks, the worker blocks, too.
    var none = sigset_t()
    unsafe sigemptyset(&none)
    unsafe pthread_sigmask(SIG_SETMASK, &none, nil)
    guard let worker = try? WorkerThread(name: "worker") else { return say("no thread") }
    waitUntilAsleep(worker.loop)
    faults_close_from(3)
    let answer = Counter()
    worker.loop.perform { answer.increment() }
    say("answered: \(waitUntil { answer.value > 0 })")
    worker.stop()
    say("ended: \(worker.join(timeout: .seconds(60)))")
}

/// As before, but the numbers are free: the loops take each other's numbers.
func swappedNumbers() {
    let workers = (0..<8).map { _ in Worker() }
    for _ in 0..<20 {
        for worker in workers { waitUntilAsleep(worker.loop) }
        faults_close_from(3)
        for worker in workers.shuffled() {
            guard worker.answers() else { return say("a wake-up was lost") }
        }
    }
    for worker in workers where !worker.answers() { say("a wake-up was lost") }
    // A worker answers before it has made the descriptors for its next sleep.
    for worker in workers { waitUntilAsleep(worker.loop) }
    say("sets: \(descriptors(of: "eventpoll").count), wake descriptors: \(descriptors(of: "eventfd").count)")
    for worker in workers { worker.end() }
    say("left: \(descriptors(of: "anon_inode").count)")
}

/// Only one of the loop's descriptors is closed; once while it sleeps and once while it is awake.
func closedAlone(_ kind: String) {
    let worker = Worker()
    let file = makeFile()
    for isAsleep in [true, false] {
        guard let victim = descriptors(of: kind).first else { return say("none") }
        if isAsleep {
            dup2(file, victim)
        } else {
            worker.loop.perform { dup2(file, victim) }
        }
        say("\(worker.answers()), \(worker.answers())")
        waitUntilAsleep(worker.loop)
        say("others': \(size(of: victim))")
        close(victim)
    }
    worker.end()
    say("left: \(descriptors(of: "anon_inode").count)")
}

/// A source's descriptor gets the number of the loop's wake descriptor, as when a program closes one of its own twice. The loop wakes, and the
/// source is served.
func wakeDescriptorTaken() {
    let (worker, received) = (Worker(), Counter())
    var ends: [Int32] = [0, 0]
    guard let number = descriptors(of: "eventfd").first, unsafe pipe(&ends) == 0, dup2(ends[0], number) == number
    else { return say("no pipe") }
    let source = DescriptorSource(descriptor: number) { source, events in
        if events == .readable { received.increment() }
        source.invalidate()
    }
    try? worker.loop.add(source)
    say("\(worker.answers()), \(worker.answers())")
    _ = unsafe write(ends[1], "x", 1)
    say("received: \(waitUntil { received.value == 1 })")
    worker.end()
}

/// The set of one mode is closed, so the loop makes another descriptor that reports steps of the wall clock. The other mode's set
/// still has the first one.
func closedBesideClock() {
    let loop = EventRunLoop.current
    for mode: EventRunLoop.Mode in ["first", "second"] {
        loop.add(EventTimer(atWallClock: .now.advanced(by: .seconds(3600))) { _ in }, to: mode)
    }
    loop.run(mode: "first", for: .milliseconds(1))
    let before = descriptors(of: "eventpoll")
    loop.run(mode: "second", for: .milliseconds(1))
    guard let clock = descriptors(of: "timerfd").first,
        let set = descriptors(of: "eventpoll").first(where: { !before.contains($0) })
    else { return say("none") }
    close(set)
    // The first run finds that the set is closed, the second one has a new one.
    for _ in 0..<2 { loop.run(mode: "second", for: .milliseconds(1)) }
    say("clocks: \(descriptors(of: "timerfd").count)")
    // Ready, as after a step.
    var soon = itimerspec(it_interval: timespec(), it_value: timespec(tv_sec: 0, tv_nsec: 1))
    _ = unsafe setTimer(clock, 0, &soon, nil)
    let waits = faults_waits()
    loop.run(mode: "first", for: .milliseconds(100))
    say("no spin: \(faults_waits() - waits <= 10)")
}

/// The set, made for a source, is closed before the loop adds the main queue and the wall clock to it.
func closedBeforeAdding() {
    let loop = EventRunLoop.main
    var ends: [Int32] = [0, 0]
    guard unsafe pipe(&ends) == 0 else { return say("no pipe") }
    try? loop.add(DescriptorSource(descriptor: ends[0]) { _, _ in })
    loop.add(EventTimer(atWallClock: .now.advanced(by: .seconds(3600))) { _ in })
    guard let set = descriptors(of: "eventpoll").first else { return say("none") }
    close(set)
    loop.run(for: .milliseconds(1))
    // The wake descriptor, the source, the main queue, the clock.
    say("members: \(descriptors(of: "eventpoll").map { members(ofSet: $0) })")
    DispatchQueue.main.async {
        say("served")
        loop.stop()
    }
    loop.run(for: .seconds(60))
}

/// timerfd_settime(2) as in sys/timerfd.h, which the module of the C library does not include.
@_silgen_name("timerfd_settime")
private func setTimer(
    _ fd: Int32,
    _ flags: Int32,
    _ new: UnsafePointer<itimerspec>,
    _ old: UnsafeMutablePointer<itimerspec>?
) -> Int32

/// The numbers of the loop's set and wake-up descriptor are taken by another set and eventfd.
func takenBySets() {
    let worker = Worker()
    let numbers = descriptors(of: "anon_inode").sorted()
    worker.loop.perform {
        faults_close_from(3)
        // An epoll set with a member at each number that the loop may use.
        for number in numbers { dup2(makeSet(), number) }
    }
    say("\(worker.answers()), \(worker.answers())")
    waitUntilAsleep(worker.loop)
    say("members: \(numbers.map { members(ofSet: $0) })")
    worker.end()
    say("members: \(numbers.map { members(ofSet: $0) })")
}

/// At 100 and above, so that it does not use a number that the test needs.
private func makeSet() -> Int32 {
    let (set, member) = (epoll_create1(0), faults_make_ready_descriptor())
    let (highSet, highMember) = (fcntl(set, F_DUPFD, 100), fcntl(member, F_DUPFD, 100))
    close(set)
    close(member)
    var event = unsafe epoll_event(events: EPOLLIN.rawValue, data: epoll_data_t(u64: 7))
    unsafe epoll_ctl(highSet, EPOLL_CTL_ADD, highMember, &event)
    return highSet
}

private func members(ofSet set: Int32) -> Int {
    guard let file = unsafe fopen("/proc/self/fdinfo/\(set)", "r") else { return -1 }
    defer { unsafe fclose(file) }
    var count = 0
    var text = [CChar](repeating: 0, count: 256)
    while unsafe fgets(&text, 256, file) != nil {
        if text.starts(with: "tfd:".utf8CString.dropLast()) { count += 1 }
    }
    return count
}

/// Sources whose descriptors were closed together with all others, one number taken by another file: each source is notified.
func sourcesTold() {
    let loop = EventRunLoop.current
    let told = Counter()
    var ends: [Int32] = [0, 0]
    for _ in 0..<3 {
        guard unsafe pipe(&ends) == 0 else { return say("no pipe") }
        let source = DescriptorSource(descriptor: ends[0]) { _, events in
            if events == .closed { told.increment() }
        }
        try? loop.add(source, to: "other")
    }
    let number = ends[0]
    loop.run(mode: "other", for: .milliseconds(1))
    faults_close_from(3)
    guard unsafe pipe(&ends) == 0, dup2(ends[0], number) == number else { return say("no pipe") }
    say("\(loop.run(mode: "other", for: .seconds(10)))")
    say("told: \(told.value)")
    // The first change after the loss finds the set closed.
    faults_close_from(3)
    guard unsafe pipe(&ends) == 0, unsafe write(ends[1], "x", 1) == 1 else { return say("no pipe") }
    try? loop.add(
        DescriptorSource(descriptor: ends[0]) { source, events in say("new: \(events == .readable)") },
        to: "other"
    )
    say("\(loop.run(mode: "other", for: .seconds(10), returnAfterSourceHandled: true))")
}

/// The loop's own descriptors get the numbers of descriptors that were closed under their sources. The sources are notified, and the
/// loop keeps its descriptors.
func numbersTakenByLoop() {
    Thread { takenByWakeDescriptor() }.join()
    let (loop, told) = (EventRunLoop.main, Counter())
    guard let first = closedSource(on: loop, told) else { return say("no pipe") }
    // The main queue's eventfd takes the number.
    loop.run(for: .zero)
    first.invalidate()
    guard let second = closedSource(on: loop, told) else { return say("no pipe") }
    // The descriptor that reports steps of the wall clock takes the number.
    loop.add(EventTimer(atWallClock: .now.advanced(by: .seconds(3600))) { _ in })
    loop.run(for: .zero)
    second.invalidate()
    say("told: \(told.value)")
    say("members: \(descriptors(of: "eventpoll").map { members(ofSet: $0) })")
    DispatchQueue.main.async {
        say("served")
        loop.stop()
    }
    loop.run(for: .seconds(60))
}

/// All descriptors are closed, and a source had the least number.
private func takenByWakeDescriptor() {
    let (loop, told) = (EventRunLoop.current, Counter())
    guard closedSource(on: loop, told) != nil else { return say("no pipe") }
    faults_close_from(3)
    loop.run(for: .seconds(60), returnAfterSourceHandled: true)
    say("told: \(told.value)")
    say("members: \(descriptors(of: "eventpoll").map { members(ofSet: $0) })")
}

/// A source whose descriptor is closed, and has the least number that is free.
private func closedSource(on loop: EventRunLoop, _ told: Counter) -> DescriptorSource? {
    var ends: [Int32] = [0, 0]
    guard unsafe pipe(&ends) == 0 else { return nil }
    let source = DescriptorSource(descriptor: ends[0]) { _, events in
        if events == .closed { told.increment() }
    }
    try? loop.add(source)
    close(ends[0])
    return source
}

/// The number of the main queue's eventfd belongs to another file now. The queue is served anyway.
func mainQueueTaken() {
    let loop = EventRunLoop.main
    loop.run(for: .milliseconds(1))
    let numbers = descriptors(of: "eventfd")
    faults_close_from(3)
    for number in numbers { dup2(2, number) }
    _ = Thread {
        waitUntilAsleep(loop)
        DispatchQueue.main.async {
            say("served")
            loop.stop()
        }
    }
    loop.run()
}

/// A sandbox refuses fcntl(2), with which a loop checks that its descriptors still exist: they do.
func sandboxed() {
    let (loop, worker) = (EventRunLoop.main, Worker())
    let watched = ["eventpoll", "eventfd"]
    say("before: \(worker.answers())")
    let numbers = watched.map { descriptors(of: $0).sorted() }
    guard faults_forbid_fcntl() else { return say("no seccomp here") }
    say("rounds: \((0..<100).count { _ in worker.answers() })")
    say("same: \(watched.map { descriptors(of: $0).sorted() } == numbers)")
    DispatchQueue.main.async {
        say("main queue")
        loop.stop()
    }
    loop.run()
    worker.end()
}
