import CFaults
import Dispatch
import Glibc
import RunLoopKit

// Descriptors, watches or memory run out at a certain moment, and become available again.

/// All descriptors are in use when a loop on a new thread first waits. They become available while it naps.
func exhausted() {
    let hoard = takeAllDescriptors()
    let worker = Worker()
    say("without: \(worker.answers())")
    for descriptor in hoard { close(descriptor) }
    _ = waitUntil { descriptors(of: "eventpoll").count == 1 }
    waitUntilAsleep(worker.loop)
    let waits = faults_waits()
    usleep(100_000)
    say("sleeps again: \(faults_waits() - waits <= 1)")
    say("with: \(worker.answers())")
    worker.end()
}

/// The same on main, which also needs the main queue's eventfd.
func exhaustedOnMain() {
    let loop = EventRunLoop.main
    let hoard = takeAllDescriptors()
    loop.add(
        EventTimer(after: .milliseconds(30)) { _ in
            say("timer")
            for descriptor in hoard { close(descriptor) }
            _ = Thread {
                _ = waitUntil { descriptors(of: "eventfd").count == 2 }
                DispatchQueue.main.async {
                    say("main queue")
                    loop.stop()
                }
            }
        }
    )
    loop.run()
}

/// No descriptor is free when a loop first waits, then one, then two, and so on.
func exhaustedInTheMiddle() {
    for left in 0..<4 {
        let hoard = takeAllDescriptors()
        for descriptor in hoard.prefix(left) { close(descriptor) }
        let worker = Worker()
        let answers = worker.answers()
        for descriptor in hoard.dropFirst(left) { close(descriptor) }
        say("\(left) left: \(answers), \(worker.answers())")
        worker.end()
    }
    say("left open: \(descriptors(of: "anon_inode").count)")
}

func takeAllDescriptors() -> [Int32] {
    var limit = rlimit(rlim_cur: 64, rlim_max: 64)
    unsafe setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    var hoard: [Int32] = []
    while true {
        let descriptor = dup(0)
        guard descriptor >= 0 else { return hoard }
        hoard.append(descriptor)
    }
}

/// A call fails from the loop's start on, for a while.
func injected(_ call: faults_call, _ error: Int32) {
    faults_inject(call, error, -1)
    let worker = Worker()
    say("without: \(worker.answers())")
    faults_inject(call, 0, -1)
    _ = waitUntil { descriptors(of: "eventpoll").count == 1 }
    say("with: \(worker.answers())")
    worker.end()
    say("left: \(descriptors(of: "anon_inode").count)")
}

/// The main queue's eventfd cannot be watched, for a while (the user's limit of watches is reached). The queue is served anyway.
func mainQueueUnwatched() {
    let loop = EventRunLoop.main
    loop.add(
        LoopObserver(activities: .entry, repeats: false) { _, _ in
            // The wake-up descriptor, the set, the main queue's eventfd: they get the next free numbers, in this
            // order.
            let free = (0..<3).map { _ in dup(0) }
            for number in free { close(number) }
            faults_inject(faults_epoll_add, ENOSPC, free[2])
        }
    )
    let thread = Thread {
        waitUntilAsleep(loop)
        let start = faults_waits()
        say("refused: \(waitUntil { faults_waits() > start + 1 })")
        let served = Counter()
        DispatchQueue.main.async { served.increment() }
        say("unwatched, served: \(waitUntil { served.value > 0 })")
        faults_inject(faults_epoll_add, 0, -1)
        usleep(50_000)
        let waits = faults_waits()
        usleep(100_000)
        say("sleeps again: \(faults_waits() - waits <= 1)")
        DispatchQueue.main.async {
            say("watched")
            loop.stop()
        }
    }
    loop.run()
    thread.join()
}

/// The main queue has work, and a common mode gets no set of its own. A run of the mode that only polls serves the queue anyway.
func mainQueuePolled() {
    let loop = EventRunLoop.main
    loop.addCommonMode("other")
    // In this mode's set, the main queue's eventfd is watched.
    loop.run(for: .zero)
    faults_inject(faults_epoll_create, ENFILE, -1)
    let served = Counter()
    DispatchQueue.main.async { served.increment() }
    for _ in 0..<10 { loop.run(mode: "other", for: .zero) }
    say("polled, served: \(served.value)")
}

/// A source that the kernel rejects is rejected completely; a source that it accepted before is kept in a new set.
func sourceUnwatched() {
    let loop = EventRunLoop.current
    var ends: [Int32] = [0, 0]
    guard unsafe pipe(&ends) == 0, unsafe write(ends[1], "x", 1) == 1 else { return say("no pipe") }
    let delivered = Counter()
    let source = DescriptorSource(descriptor: ends[0]) { source, events in
        say("readable: \(events == .readable)")
        delivered.increment()
    }
    faults_inject(faults_epoll_add, ENOSPC, ends[0])
    do throws(RunLoopError) {
        try loop.add(source, to: "other")
    } catch {
        say("refused: \(error.code == .outOfResources && error.errno == ENOSPC && !loop.contains(source, in: "other"))")
    }
    faults_inject(faults_epoll_add, 0, -1)
    try? loop.add(source, to: "other")
    say("\(loop.run(mode: "other", for: .seconds(10), returnAfterSourceHandled: true))")
    // The set is lost, and the new set cannot accept the source yet.
    for set in descriptors(of: "eventpoll") { close(set) }
    faults_inject(faults_epoll_add, ENOMEM, ends[0])
    say("\(loop.run(mode: "other", for: .milliseconds(30), returnAfterSourceHandled: true))")
    say("valid: \(source.isValid)")
    faults_inject(faults_epoll_add, 0, -1)
    say("\(loop.run(mode: "other", for: .seconds(10), returnAfterSourceHandled: true))")
}
