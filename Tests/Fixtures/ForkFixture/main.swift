import CFaults
import CRunLoopShims
import Dispatch
import Glibc
import Locking
import RunLoopKit
import RunLoopPorts
import Synchronization

// A process forks and does not exec. Each scenario prints what parent and child observed, the child first; the tests compare.

func say(_ text: String) {
    print(text)
    fflush(nil)
}

final class Counter: Sendable {
    private let count = Atomic<Int>(0)

    var value: Int { count.load(ordering: .sequentiallyConsistent) }

    @discardableResult
    func increment() -> Int { count.add(1, ordering: .sequentiallyConsistent).newValue }
}

@discardableResult
func startThread(_ body: @escaping @Sendable () -> Void) -> pthread_t {
    final class Work: Sendable {
        let body: @Sendable () -> Void
        init(body: @escaping @Sendable () -> Void) { self.body = body }
    }
    var thread = pthread_t()
    let work = unsafe Unmanaged.passRetained(Work(body: body)).toOpaque()
    let failure = unsafe pthread_create(
        &thread,
        nil,
        { argument in
            guard let argument = unsafe argument else { return nil }
            unsafe Unmanaged<Work>.fromOpaque(argument).takeRetainedValue().body()
            return nil
        },
        work
    )
    precondition(failure == 0, "pthread_create: errno \(failure)")
    return thread
}

/// Runs `body` in a child and waits for its end, which must happen within 100 seconds.
func inChild(_ body: () -> Void) {
    let child = faults_fork()
    if child == 0 {
        alarm(100)
        body()
        fflush(nil)
        _exit(0)
    }
    wait(for: child)
}

func wait(for child: pid_t) {
    var status: Int32 = 0
    while unsafe waitpid(child, &status, 0) < 0, errno == EINTR {}
    say("child: \(status & 0x7F == 0 ? "exit \(status >> 8)" : "signal \(status & 0x7F)")")
}

/// A pool of three workers, all busy, forks in a job of its third.
func taskPool() {
    let (pool, begun) = (TaskPoolHeartbeat(label: "pool", width: 3), Counter())
    for _ in 0..<2 {
        startThread {
            let job = pool.willRun()
            begun.increment()
            while begun.value > 0 { pause() }
            pool.didRun(job)
        }
    }
    while begun.value < 2 { sched_yield() }
    let tell = { (who: String) in
        let own = pool.runningJobs?.contains { $0.threadID == run_loop_current_tid() }
        say(
            "\(who): \(pool.runningCount) run, \(own == true ? "also" : "not") its own, \(pool.waitingCount) wait, \(pool.begunCount) begun"
        )
    }
    let job = pool.willRun()
    for _ in 0..<5 { pool.didEnqueue() }
    inChild {
        tell("child")
        pool.didRun(job)
        pool.run { tell("next job") }
        tell("child's end")
    }
    tell("parent")
    pool.didRun(job)
    tell("parent's end")
}

/// Each child of `body` has a parent that sleeps in its loop with a source, a distant timer and a wake-up descriptor.
/// At the end the parent must still have all three, and must not have been woken once.
func undisturbed(onMain: Bool, _ body: @escaping @Sendable (EventRunLoop, DescriptorSource) -> Void) {
    var ends: [Int32] = [0, 0]
    guard unsafe pipe(&ends) == 0 else { return say("no pipe") }
    let (reader, writer) = (ends[0], ends[1])
    let loop = Mutex<EventRunLoop?>(nil)
    let source = DescriptorSource(descriptor: reader) { _, events in
        say("parent's source: \(events == .readable)")
        EventRunLoop.current.stop()
    }
    let sleeper: @Sendable () -> Void = {
        loop.withLock { $0 = .current }
        try? EventRunLoop.current.add(source)
        EventRunLoop.current.add(EventTimer(after: .seconds(3600)) { _ in })
        EventRunLoop.current.run()
    }
    let other: @Sendable () -> Void = {
        while loop.withLock({ $0 })?.isWaiting != true { usleep(1000) }
        usleep(20_000)
        guard let sleeping = loop.withLock({ $0 }) else { return }
        let waits = faults_waits()
        inChild { body(sleeping, source) }
        say("parent woken: \(faults_waits() - waits)")
        let answered = Counter()
        sleeping.perform { answered.increment() }
        while answered.value == 0 { usleep(1000) }
        say("parent's wake descriptor: true")
        _ = unsafe write(writer, "x", 1)
    }
    let thread = startThread(onMain ? other : sleeper)
    (onMain ? sleeper : other)()
    pthread_join(thread, nil)
}

/// Uses every operation of a loop in a child.
func useLoop(_ loop: EventRunLoop) {
    var ends: [Int32] = [0, 0]
    guard unsafe pipe(&ends) == 0, unsafe write(ends[1], "x", 1) == 1 else { return say("no pipe") }
    let fires = Counter()
    let source = DescriptorSource(descriptor: ends[0]) { source, _ in
        say("source")
        source.invalidate()
        loop.add(
            EventTimer(after: .milliseconds(5)) { _ in
                say("timer")
                fires.increment()
            }
        )
    }
    do throws(RunLoopError) { try loop.add(source) } catch { say("refused: \(error)") }
    let keepAlive = EventSource { _ in }
    loop.add(keepAlive)
    var result = loop.run(for: .milliseconds(200))
    // On a machine that is late by the whole run, the timer fires in the next one.
    for _ in 0..<50 where fires.value == 0 { result = loop.run(for: .milliseconds(200)) }
    say("\(result)")
    let thread = startThread {
        while !loop.isWaiting { usleep(1000) }
        usleep(10_000)
        loop.perform {
            say("woken")
            loop.stop()
        }
    }
    say("\(loop.run(for: .seconds(10)))")
    pthread_join(thread, nil)
    keepAlive.invalidate()
    say("thread: \(loop.thread?.id == run_loop_current_tid())")
}

/// The forking thread is main; its loop has slept, with a source in its set.
func mainForks() {
    let loop = EventRunLoop.main
    var ends: [Int32] = [0, 0]
    guard unsafe pipe(&ends) == 0 else { return say("no pipe") }
    let delivered = Counter()
    let source = DescriptorSource(descriptor: ends[0]) { _, _ in
        delivered.increment()
        loop.stop()
    }
    try? loop.add(source)
    loop.run(for: .milliseconds(1))
    inChild {
        useLoop(loop)
        // Its copy of the parent's source: removing it must leave the parent's source in place.
        source.invalidate()
    }
    _ = unsafe write(ends[1], "x", 1)
    say("parent: \(loop.run(for: .seconds(10))), \(delivered.value)")
}

/// The parent's source continues to work in the child.
func sourceInherited() {
    let loop = EventRunLoop.main
    var ends: [Int32] = [0, 0]
    guard unsafe pipe(&ends) == 0 else { return say("no pipe") }
    try? loop.add(
        DescriptorSource(descriptor: ends[0]) { source, events in
            say("delivered: \(events == .readable)")
            var byte: UInt8 = 0
            _ = unsafe read(source.descriptor, &byte, 1)
            loop.stop()
        }
    )
    loop.run(for: .milliseconds(1))
    inChild {
        _ = unsafe write(ends[1], "x", 1)
        say("\(loop.run(for: .seconds(10)))")
    }
    _ = unsafe write(ends[1], "x", 1)
    say("\(loop.run(for: .seconds(10)))")
}

/// A fork in a callout: both processes return from it, and both loops continue.
func forkInCallout() {
    let loop = EventRunLoop.main
    let child = Mutex<pid_t>(-1)
    let fires = Counter()
    loop.add(
        EventTimer(every: .milliseconds(5)) { _ in
            if fires.increment() == 2 { child.withLock { $0 = faults_fork() } }
            if fires.value == 5 { loop.stop() }
        }
    )
    loop.run()
    let pid = child.withLock { $0 }
    if pid == 0 {
        say("in the child: \(fires.value)")
        _exit(0)
    }
    wait(for: pid)
    say("in the parent: \(fires.value)")
}

/// One of the child's two loops belongs to a thread of the parent: it accepts nothing, and the parent's loop sleeps on.
func refused(_ loop: EventRunLoop, _ source: DescriptorSource) {
    loop.perform { say("a block ran on the parent's loop") }
    loop.wakeUp()
    loop.stop()
    loop.add(EventTimer(after: .zero) { _ in })
    loop.addCommonMode("child's")
    do throws(RunLoopError) {
        try loop.add(DescriptorSource(descriptor: 0) { _, _ in })
    } catch {
        say("refused: \(error.code == .loopEnded && !loop.commonModes.contains("child's"))")
    }
    say("thread: \(loop.thread == nil)")
    source.invalidate()
    useLoop(.current)
}

/// The parent's loop served the main queue before the fork: it is not served in the child, and nothing hangs.
func mainQueueAfter() {
    let loop = EventRunLoop.main
    DispatchQueue.main.async { say("parent's") }
    loop.run(for: .seconds(10), returnAfterSourceHandled: true)
    inChild {
        say("empty: \(loop.run(for: .seconds(10)))")
        useLoop(loop)
    }
    DispatchQueue.main.async { say("parent's") }
    loop.run(for: .seconds(10), returnAfterSourceHandled: true)
}

/// A daemon: it accesses its loop, forks before it runs the loop, and closes everything.
func daemon() {
    let loop = EventRunLoop.main
    let keepAlive = EventSource { _ in }
    loop.add(keepAlive)
    inChild {
        inChild {
            faults_close_from(3)
            DispatchQueue.main.async { say("main queue") }
            loop.run(for: .seconds(10), returnAfterSourceHandled: true)
            DispatchQueue.global().async {
                DispatchQueue.main.async {
                    say("from another queue")
                    loop.stop()
                }
            }
            loop.run()
            useLoop(loop)
        }
    }
}

/// The child closes everything, and other files get the numbers of the parent's set and wake-up descriptor.
func closeInChild() {
    let loop = EventRunLoop.main
    loop.run(for: .milliseconds(1))
    inChild {
        faults_close_from(3)
        var path = Array("/tmp/fork-XXXXXX".utf8CString)
        let file = unsafe mkstemp(&path)
        unsafe unlink(path)
        for number in Int32(4)..<20 { dup2(file, number) }
        useLoop(loop)
        var status = stat()
        let isWhole = (Int32(4)..<20).allSatisfy { unsafe fstat($0, &status) == 0 && status.st_size == 0 }
        say("files whole: \(isWhole)")
    }
    useLoop(loop)
}

/// Four threads of the child and its loop's thread continuously contend for the same locks.
func contention() {
    let loop = EventRunLoop.main
    loop.perform {}
    loop.run(for: .zero)
    inChild {
        let done = Counter()
        let keepAlive = EventSource { _ in }
        loop.add(keepAlive)
        for _ in 0..<4 {
            startThread {
                for _ in 0..<5_000 {
                    loop.perform { if done.increment() == 20_000 { loop.stop() } }
                    let timer = EventTimer(after: .seconds(60)) { _ in }
                    loop.add(timer)
                    timer.invalidate()
                }
            }
        }
        loop.run(for: .seconds(90))
        say("blocks: \(done.value)")
    }
}

/// A worker of the parent has no thread in the child, which does not wait for it.
func workerHandle() throws {
    var worker: WorkerThread? = try WorkerThread(name: "parent's")
    inChild {
        worker?.stop()
        say("ended: \(worker?.hasEnded == true), joined: \(worker?.join() == true)")
        worker = nil
    }
    let answer = try worker?.loop.performAndWait { 1 }
    say("parent's: \(worker?.hasEnded == false), answer \(answer ?? 0)")
    worker?.stop()
    say("joined: \(worker?.join() == true)")
}

/// The child invalidates its copies of the parent's ports: the parent's name, listener and connections are kept.
func portsInherited() throws {
    var path = Array("/tmp/fork-XXXXXX".utf8CString)
    guard unsafe mkdtemp(&path) != nil else { return say("no directory") }
    let text = String(decoding: path.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    let (name, directory) = (try PortName("port"), PortDirectory(text))
    let loop = EventRunLoop.main
    let port = try LocalPort(name, in: directory) { message in
        say("message \(message.id)")
        loop.stop()
    }
    try loop.add(port)
    let remote = try RemotePort(name, in: directory)
    loop.run(for: .zero)
    say("connected: \(port.connectionCount)")
    inChild {
        remote.invalidate()
        port.invalidate()
        say("valid: \(remote.isValid) \(port.isValid)")
    }
    try remote.send(PortMessage(id: 1))
    loop.run(for: .seconds(10))
    try RemotePort(name, in: directory).send(PortMessage(id: 2))
    loop.run(for: .seconds(10))
    do { _ = try LocalPort(name, in: directory) { _ in } } catch { say("in use: \(error.code == .portNameInUse)") }
    port.invalidate()
    say("tidied: \(unsafe rmdir(text) == 0)")
}

/// A thread of the parent holds a lock at the fork. A new thread of the child gets its stack, and takes the lock.
func lockHeldAtFork() {
    final class Held: Sendable {
        let lock = ForkSafeMutex(0)
        let holder = Atomic<UInt>(0)
    }
    let held = Held()
    startThread {
        held.lock.withLock { _ in
            held.holder.store(UInt(run_loop_own_thread_pointer()), ordering: .sequentiallyConsistent)
            while true { pause() }
        }
    }
    while held.holder.load(ordering: .sequentiallyConsistent) == 0 { sched_yield() }
    inChild {
        startThread {
            let isSame = held.holder.load(ordering: .sequentiallyConsistent) == UInt(run_loop_own_thread_pointer())
            say("same thread pointer: \(isSame)")
            if isSame { held.lock.withLock { _ in } }
            _exit(1)
        }
        while true { pause() }
    }
}

switch CommandLine.arguments.dropFirst().first {
case "contention": contention()
case "lock-held": lockHeldAtFork()
case "main": mainForks()
case "source-inherited": sourceInherited()
case "in-callout": forkInCallout()
case "ports": try portsInherited()
case "worker-handle": try workerHandle()
case "main-queue": mainQueueAfter()
case "daemon": daemon()
case "close-in-child": closeInChild()
case "task-pool": taskPool()
case "grandchild": inChild { inChild { useLoop(.main) } }
case "worker-forks": undisturbed(onMain: true) { loop, source in refused(loop, source) }
case "main-forks": undisturbed(onMain: false) { loop, source in refused(loop, source) }
case "run-parents": undisturbed(onMain: true) { loop, _ in loop.run(for: .seconds(10)) }
default:
    say("unknown scenario")
    exit(64)
}
