import CRunLoopShims
import Dispatch
import Glibc
import RunLoopKit
import RunLoopPorts
import Synchronization

// Scenarios that need a separate main thread. Each prints what it observed; the tests compare.

/// Whether the caller runs on the main thread, according to the kernel.
func whereAmI() -> String { run_loop_current_tid() == getpid() ? "main" : "elsewhere" }

func say(_ text: String) {
    print(text)
    fflush(nil)
}

/// R58, R59: the main queue and the main actor are served by the main loop.
func mainQueue() {
    DispatchQueue.global().async {
        DispatchQueue.main.async { say("async: \(whereAmI())") }
        DispatchQueue.main.sync { say("sync: \(whereAmI())") }
        DispatchQueue.main.asyncAfter(deadline: .now() + .milliseconds(5)) {
            say("asyncAfter: \(whereAmI())")
            Task { @MainActor in
                say("task: \(whereAmI())")
                try? await Task.sleep(for: .milliseconds(5))
                say("after sleep: \(whereAmI())")
                dispatchPrecondition(condition: .onQueue(.main))
                EventRunLoop.main.stop()
            }
        }
    }
    EventRunLoop.main.run()
    dispatchPrecondition(condition: .onQueue(.main))
    MainActor.assumeIsolated { say("after run: \(whereAmI())") }
}

/// R58: other modes do not serve the main queue; the work waits for a common one.
func otherMode() {
    let keepAlive = EventSource { _ in }
    EventRunLoop.main.add(keepAlive, to: "other")
    DispatchQueue.main.async { say("drained") }
    say("other: \(EventRunLoop.main.run(mode: "other", for: .milliseconds(10)))")
    say("default: \(EventRunLoop.main.run(for: .zero))")
    DispatchQueue.main.async { say("drained") }
    EventRunLoop.main.addCommonMode("other")
    say("other: \(EventRunLoop.main.run(mode: "other", for: .seconds(60), returnAfterSourceHandled: true))")
}

/// R10, R58: inside a drain the mode is empty, and a nested run does not serve the queue.
func nestedInDrain() {
    let loop = EventRunLoop.main
    DispatchQueue.main.async {
        say("nested, empty: \(loop.run(for: .milliseconds(10)))")
        let keepAlive = EventSource { _ in }
        loop.add(keepAlive)
        DispatchQueue.main.async {
            say("second")
            loop.stop()
        }
        say("nested, busy: \(loop.run(for: .milliseconds(10)))")
        say("first ends")
        keepAlive.invalidate()
    }
    loop.run()
    say("done")
}

/// R10, R19: a common mode of the main loop is never empty, and a drain is a source handled.
func emptyMain() {
    say("empty: \(EventRunLoop.main.run(for: .milliseconds(5)))")
    DispatchQueue.main.async {}
    say("drain: \(EventRunLoop.main.run(for: .seconds(60), returnAfterSourceHandled: true))")
}

/// R16, R36: a busy queue, a busy descriptor and a busy timer do not starve each other.
func fairness() {
    let loop = EventRunLoop.main
    var ends: [Int32] = [0, 0]
    guard unsafe pipe(&ends) == 0, unsafe write(ends[1], "x", 1) == 1 else { return say("no pipe") }
    let counts = Counts()
    // The pipe is never read, so it is always ready.
    try? loop.add(DescriptorSource(descriptor: ends[0]) { _, _ in counts.descriptors += 1 })
    // Always due. Its count ends the run, not a time: on a busy machine a short one has few turns.
    loop.add(
        EventTimer(at: .now, every: .nanoseconds(1)) { _ in
            counts.timers += 1
            if counts.timers == 1_000 { loop.stop() }
        }
    )
    counts.fillQueue()
    loop.run(for: .seconds(20))
    let least = min(counts.descriptors, counts.timers, counts.drains)
    let most = max(counts.descriptors, counts.timers, counts.drains)
    say(least > 10 && most < 4 * least ? "fair" : "unfair: \(counts.descriptors) \(counts.timers) \(counts.drains)")
}

/// R16, R36: runs of one turn each do not starve the main queue either, nor does it starve the descriptor.
func fairnessOfShortRuns() {
    let loop = EventRunLoop.main
    var ends: [Int32] = [0, 0]
    guard unsafe pipe(&ends) == 0, unsafe write(ends[1], "x", 1) == 1 else { return say("no pipe") }
    let counts = Counts()
    // The pipe is never read, so it is always ready.
    try? loop.add(DescriptorSource(descriptor: ends[0]) { _, _ in counts.descriptors += 1 })
    counts.fillQueue()
    for _ in 0..<1_000 { loop.run(for: .zero) }
    say(min(counts.descriptors, counts.drains) > 50 ? "polls: fair" : "polls: \(counts.descriptors) \(counts.drains)")
    (counts.descriptors, counts.drains) = (0, 0)
    for _ in 0..<1_000 { loop.run(returnAfterSourceHandled: true) }
    say(min(counts.descriptors, counts.drains) > 50 ? "waits: fair" : "waits: \(counts.descriptors) \(counts.drains)")
}

/// R16: the maximum number of turns that the main queue waits, first with a
/// source that signals itself, then with 1000 descriptors that are always ready.
func busyMain() {
    let loop = EventRunLoop.main
    let counts = Counts()
    let source = EventSource { source in
        source.signal()
        counts.turn()
    }
    loop.add(source)
    source.signal()
    loop.run()
    say("beside a source: \(counts.longestWait)")
    source.invalidate()
    var ends: [Int32] = [0, 0]
    guard unsafe pipe(&ends) == 0, unsafe write(ends[1], "x", 1) == 1 else { return say("no pipe") }
    var limit = rlimit(rlim_cur: 2048, rlim_max: 2048)
    unsafe setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    counts.drains = 0
    counts.longestWait = 0
    for _ in 0..<1000 { try? loop.add(DescriptorSource(descriptor: dup(ends[0])) { _, _ in counts.turn() }) }
    loop.run()
    say("beside descriptors: \(counts.longestWait)")
}

/// Main thread only.
final class Counts: @unchecked Sendable {
    var descriptors = 0
    var timers = 0
    var drains = 0

    var turns = 0
    var longestWait = 0

    /// Counts a turn. Every 101st turn enqueues work on the queue that
    /// records the number of turns it has waited. Stops the loop after 50.
    func turn() {
        turns += 1
        guard turns % 101 == 0 else { return }
        DispatchQueue.main.async { [given = turns] in
            self.longestWait = max(self.longestWait, self.turns - given)
            self.drains += 1
            if self.drains == 50 { EventRunLoop.main.stop() }
        }
    }

    func fillQueue() {
        DispatchQueue.main.async {
            self.drains += 1
            self.fillQueue()
        }
    }
}

/// Another thread accesses the main loop before main has run it: its thread and stack are known anyway.
func threadFacts() {
    var here = 0
    let address = unsafe withUnsafePointer(to: &here) { UInt(bitPattern: $0) }
    let known = DispatchSemaphore(value: 0)
    DispatchQueue.global().async {
        let thread = EventRunLoop.main.thread
        say("asked: \(whereAmI())")
        say("id: \(thread?.id == getpid())")
        say("stack: \(thread?.stack.contains(address) ?? false)")
        say("label: \(EventRunLoop.main.label)")
        known.signal()
    }
    known.wait()
}

/// Sleeps forever; the test counts system calls, or reads the stack.
func idle() {
    say("idle")
    EventRunLoop.main.run()
}

let blocksRun = Atomic<Int>(0)

/// 1000 times, another thread passes a block to the sleeping main loop, each after the one before has run.
func wakes() {
    var thread = pthread_t()
    _ = unsafe pthread_create(
        &thread,
        nil,
        { _ in
            for round in 1...1000 {
                while !EventRunLoop.main.isWaiting {}
                EventRunLoop.main.perform { blocksRun.add(1, ordering: .relaxed) }
                while blocksRun.load(ordering: .relaxed) < round {}
            }
            EventRunLoop.main.perform { EventRunLoop.main.stop() }
            return nil
        },
        nil
    )
    EventRunLoop.main.run()
    pthread_join(thread, nil)
}

/// Measures turns with a self-signalled source, on the main thread or on another; prints the median ns per turn over rounds.
func turns(onMain: Bool) {
    if onMain { return measureTurns(.main, 200_000) }
    var thread = pthread_t()
    _ = unsafe pthread_create(
        &thread,
        nil,
        { _ in
            measureTurns(.current, 200_000)
            return nil
        },
        nil
    )
    pthread_join(thread, nil)
}

func measureTurns(_ loop: EventRunLoop, _ count: Int) {
    var rounds: [Double] = []
    for _ in 0..<15 {
        let left = Left(count)
        let source = EventSource { source in
            left.count -= 1
            if left.count > 0 { source.signal() } else { EventRunLoop.current.stop() }
        }
        loop.add(source)
        source.signal()
        let start = MonotonicInstant.now
        loop.run()
        let time = MonotonicInstant.now.nanoseconds - start.nanoseconds
        rounds.append(Double(time) / Double(count))
        source.invalidate()
    }
    say("ns per turn: \(rounds.sorted()[7])")
}

/// Used only by the measuring thread.
final class Left: @unchecked Sendable {
    var count: Int
    init(_ count: Int) { self.count = count }
}

/// R64: the loop's frame below each kind of callout, and below the wait.
func frames() {
    let loop = EventRunLoop.main
    var ends: [Int32] = [0, 0]
    guard unsafe pipe(&ends) == 0, unsafe write(ends[1], "x", 1) == 1 else { return say("no pipe") }
    loop.add(LoopObserver(activities: .entry, repeats: false) { _, _ in say("observer: \(loopFrame())") })
    loop.perform { say("block: \(loopFrame())") }
    let source = EventSource { _ in say("source0: \(loopFrame())") }
    loop.add(source)
    source.signal()
    loop.run(for: .zero)
    let descriptor = DescriptorSource(descriptor: ends[0]) { source, _ in
        say("descriptor: \(loopFrame())")
        source.invalidate()
    }
    try? loop.add(descriptor)
    loop.run(for: .seconds(60), returnAfterSourceHandled: true)
    loop.add(EventTimer(at: .now) { _ in say("timer: \(loopFrame())") })
    loop.run(for: .zero)
    DispatchQueue.main.async { say("main queue: \(loopFrame())") }
    loop.run(for: .seconds(60), returnAfterSourceHandled: true)
    Task(executorPreference: loop) { say("task: \(loopFrame())") }
    loop.run(for: .zero)
    let port = LocalPort { _ in say("message: \(loopFrame())") }
    try? loop.add(port)
    try? RemotePort(to: port).send(PortMessage())
    loop.run(for: .seconds(60), returnAfterSourceHandled: true)
    signal(SIGALRM) { _ in
        guard isThere("event_run_loop_wait", EventRunLoop.main.isWaiting) else { return }
        say("wait: \(loopFrame())")
        EventRunLoop.main.stop()
    }
    alarm(1)
    loop.run()
}

/// From execinfo.h, which the module of the C library does not include.
@_silgen_name("backtrace")
func backtrace(_ frames: UnsafeMutablePointer<UnsafeMutableRawPointer?>, _ capacity: Int32) -> Int32

/// The innermost frame on the caller's stack that belongs to the loop.
func loopFrame() -> String {
    typealias Callout = @convention(c) (run_loop_callout, UnsafeMutableRawPointer) -> Void
    func start(_ function: Callout) -> UInt { unsafe UInt(bitPattern: unsafeBitCast(function, to: Int.self)) }
    let drain: @convention(c) () -> Void = event_run_loop_is_servicing_the_main_dispatch_queue
    let wait: @convention(c) (Int32, UnsafeMutablePointer<epoll_event>, Int32, Int64) -> Int32 =
        unsafe event_run_loop_wait
    let requestWait: @convention(c) (UnsafeMutableRawPointer, UInt32, UInt64) -> Bool =
        unsafe event_run_loop_wait_for_a_perform_request
    let starts = unsafe [
        "event_run_loop_is_calling_out_to_an_observer": start(event_run_loop_is_calling_out_to_an_observer),
        "event_run_loop_is_calling_out_to_a_block": start(event_run_loop_is_calling_out_to_a_block),
        "event_run_loop_is_calling_out_to_a_source0": start(event_run_loop_is_calling_out_to_a_source0),
        "event_run_loop_is_calling_out_to_a_descriptor_source":
            start(event_run_loop_is_calling_out_to_a_descriptor_source),
        "event_run_loop_is_calling_out_to_a_timer": start(event_run_loop_is_calling_out_to_a_timer),
        "event_run_loop_is_calling_out_to_a_perform_request":
            start(event_run_loop_is_calling_out_to_a_perform_request),
        "event_run_loop_wait_for_a_perform_request": UInt(bitPattern: unsafeBitCast(requestWait, to: Int.self)),
        "event_run_loop_is_running_a_task": start(event_run_loop_is_running_a_task),
        "event_run_loop_is_calling_out_to_a_message_handler":
            start(event_run_loop_is_calling_out_to_a_message_handler),
        "event_run_loop_is_servicing_the_main_dispatch_queue": UInt(bitPattern: unsafeBitCast(drain, to: Int.self)),
        "event_run_loop_wait": UInt(bitPattern: unsafeBitCast(wait, to: Int.self)),
    ]
    return unsafe withUnsafeTemporaryAllocation(of: UnsafeMutableRawPointer?.self, capacity: 64) { frames in
        guard let base = frames.baseAddress else { return "none" }
        let count = unsafe backtrace(base, 64)
        for index in 0..<Int(count) {
            let address = unsafe UInt(bitPattern: frames[index])
            // The nearest function that begins shortly before the address: these functions are short.
            let before = starts.filter { $0.value < address && address - $0.value < 512 }
            if let frame = before.max(by: { $0.value < $1.value }) { return frame.key }
        }
        return "none"
    }
}

private let looks = Atomic<Int>(0)

/// For the handler of SIGALRM. On a busy machine the thread may not have announced its wait yet, or be on the way from there to the wait:
/// then a later signal looks again. The tenth look at an announced wait says what it finds.
func isThere(_ wait: String, _ isAnnounced: Bool) -> Bool {
    if isAnnounced, loopFrame() == wait || looks.add(1, ordering: .relaxed).newValue == 10 { return true }
    alarm(1)
    return false
}

func wakeMainToStop() -> UnsafeMutableRawPointer? {
    EventRunLoop.main.perform {
        say("woken by another thread")
        EventRunLoop.main.stop()
    }
    return nil
}

/// With a full descriptor table, a loop continues with everything except descriptors.
func noDescriptors() {
    let loop = EventRunLoop.current
    var limit = rlimit(rlim_cur: 16, rlim_max: 16)
    unsafe setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    while dup(0) >= 0 {}
    do {
        try loop.add(DescriptorSource(descriptor: 0) { _, _ in })
    } catch {
        say("refused: \(error.code == .outOfResources)")
    }
    loop.perform { say("block") }
    loop.add(
        EventTimer(after: .milliseconds(20)) { _ in
            say("timer")
            // Not with libdispatch, which traps without descriptors.
            var thread = pthread_t()
            _ = unsafe pthread_create(&thread, nil, { _ in unsafe wakeMainToStop() }, nil)
            pthread_detach(thread)
        }
    )
    say("\(loop.run(for: .seconds(60)))")
}

/// A mode with a source for a descriptor cannot take the common modes' source for it.
func commonModeRefuses() throws {
    let loop = EventRunLoop.current
    let common = DescriptorSource(descriptor: 0) { _, _ in }
    try loop.add(common, to: .common)
    try loop.add(DescriptorSource(descriptor: 0) { _, _ in }, to: "late")
    loop.addCommonMode("late")
    say("left out: \(!loop.contains(common, in: "late") && loop.contains(common))")
}

/// A mode with a source for the descriptor of a port's connection cannot take the port's.
func commonModeRefusesPort() throws {
    let loop = EventRunLoop.current
    let port = LocalPort { _ in }
    try loop.add(port, to: .common)
    // The connection's two ends get the least numbers that are free.
    let numbers = (0..<2).map { _ in dup(0) }
    for number in numbers { close(number) }
    let remote = try RemotePort(to: port)
    for number in numbers { try loop.add(DescriptorSource(descriptor: number) { _, _ in }, to: "late") }
    loop.addCommonMode("late")
    say("connections: \(port.connectionCount), in the mode: \(loop.contains(port, in: "late"))")
    withExtendedLifetime(remote) {}
}

/// R2: the descriptors that remain of threads with loops.
func threads() {
    burst()
    let before = openDescriptors()
    for _ in 0..<10 { burst() }
    say("left behind: \(openDescriptors() - before)")
}

/// 50 threads, ten at a time, each with a loop that has slept in two modes.
func burst() {
    for _ in 0..<5 {
        let threads = (0..<10).map { _ in
            var thread = pthread_t()
            _ = unsafe pthread_create(
                &thread,
                nil,
                { _ in
                    let loop = EventRunLoop.current
                    for mode in [EventRunLoop.Mode.default, "other"] {
                        loop.add(EventTimer(every: .seconds(60)) { _ in }, to: mode)
                        loop.run(mode: mode, for: .nanoseconds(1))
                    }
                    return nil
                },
                nil
            )
            return thread
        }
        for thread in threads { pthread_join(thread, nil) }
    }
}

/// The number of the process's open descriptors, including the one used to count them.
func openDescriptors() -> Int {
    guard let directory = unsafe opendir("/proc/self/fd") else { return -1 }
    defer { unsafe closedir(directory) }
    var count = 0
    while unsafe readdir(directory) != nil { count += 1 }
    return count
}

switch CommandLine.arguments.dropFirst().first ?? preloadedScenario {
case "main-queue": mainQueue()
case "other-mode": otherMode()
case "nested-in-drain": nestedInDrain()
case "empty-main": emptyMain()
case "fairness": fairness()
case "fairness-of-short-runs": fairnessOfShortRuns()
case "busy-main": busyMain()
case "thread-facts": threadFacts()
case "frames": frames()
case "request-frames": requestFrames()
case "no-threads": noThreads()
case "workers": workers()
case "worker-stack": workerStack()
case "threads": threads()
case "no-descriptors": noDescriptors()
case "common-mode-refuses": try commonModeRefuses()
case "common-mode-refuses-port": try commonModeRefusesPort()
case "clock-steps": clockSteps()
case "no-clock-descriptor": noClockDescriptor()
case "idle": idle()
case "wakes": wakes()
case "turns": turns(onMain: true)
case "turns-elsewhere": turns(onMain: false)
case "foreign": foreignScenario()
default:
    say("unknown scenario")
    exit(64)
}
