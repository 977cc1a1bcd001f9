import Dispatch
import Glibc
import RunLoopKit
import RunLoopPorts
import Synchronization

/// Operations that a loop repeats until the meter has counted enough. Each scenario runs in a separate process.
let scenarios: [(name: String, run: @Sendable (Meter) -> Void)] = [
    ("source-turn", { meter in onThread { turnBySource(meter) } }),
    ("source-turn-main", { turnBySource($0) }),
    ("observed-turn", { meter in onThread { turnWithObserver(meter) } }),
    ("watched-turn", { meter in onThread { turnWithWatcher(meter) } }),
    ("block", { meter in onThread { turnByBlock(meter) } }),
    ("timer-fire", { meter in onThread { fire(meter) } }),
    ("one-shot", { meter in onThread { addOneShots(meter) } }),
    ("descriptor-delivery", { meter in onThread { deliver(meter, descriptors: 1) } }),
    ("descriptor-delivery-of-100", { meter in onThread { deliver(meter, descriptors: 100) } }),
    ("main-queue-drain", { drainMainQueue($0) }),
    ("wake-up-by-itself", { meter in onThread { wakeItself(meter) } }),
    ("wake-up-awake", { wakeAwake($0) }),
    ("wake-up-asleep", { meter in onThread { wakeAsleep(meter) } }),
    ("wake-up-asleep-main", { wakeAsleep($0) }),
    ("polled-run", { meter in onThread { poll(meter) } }),
    ("polled-run-main", { poll($0) }),
    ("port-request", { meter in onThread { request(meter) } }),
]

private func turnBySource(_ meter: Meter) {
    let loop = EventRunLoop.current
    let source = EventSource { source in
        if meter.tick() { loop.stop() } else { source.signal() }
    }
    loop.add(source)
    source.signal()
    while !meter.isOver { loop.run() }
}

private func turnWithObserver(_ meter: Meter) {
    let seen = Atomic<Int>(0)
    EventRunLoop.current.add(LoopObserver { _, _ in seen.add(1, ordering: .relaxed) })
    turnBySource(meter)
}

private final class Watcher: LoopWatcher {
    func loopDidLeaveRest() {}
}

private func turnWithWatcher(_ meter: Meter) {
    _ = EventRunLoop.current.heartbeat.attach(Watcher())
    turnBySource(meter)
}

/// The closure is created once: its cost is not part of the measurement.
private func turnByBlock(_ meter: Meter) {
    let loop = EventRunLoop.current
    let block = RepeatedBlock { if meter.tick() { loop.stop() } }
    loop.add(EventSource { _ in })
    block.enqueue(on: loop)
    while !meter.isOver { loop.run() }
}

/// Unchecked: complete before a loop accesses it, and not changed afterwards.
private final class RepeatedBlock: @unchecked Sendable {
    private var block: @Sendable () -> Void = {}

    init(_ body: @escaping @Sendable () -> Void) {
        block = { [unowned self] in
            enqueue(on: .current)
            body()
        }
    }

    func enqueue(on loop: EventRunLoop) { loop.perform(block) }
}

private func fire(_ meter: Meter) {
    let loop = EventRunLoop.current
    // Always due.
    loop.add(EventTimer(at: .now, every: .nanoseconds(1)) { _ in if meter.tick() { loop.stop() } })
    while !meter.isOver { loop.run() }
}

/// Each adds the next: a timer object, its closure, its entry in the heap.
private func addOneShots(_ meter: Meter) {
    let loop = EventRunLoop.current
    loop.add(EventSource { _ in })
    @Sendable func addNext() {
        loop.add(EventTimer(at: .now) { _ in if meter.tick() { loop.stop() } else { addNext() } })
    }
    addNext()
    while !meter.isOver { loop.run() }
}

/// The pipes are never read, so they are always ready.
private func deliver(_ meter: Meter, descriptors: Int) {
    let loop = EventRunLoop.current
    for _ in 0..<descriptors {
        var ends: [Int32] = [0, 0]
        guard unsafe pipe(&ends) == 0, unsafe write(ends[1], "x", 1) == 1 else { return }
        try? loop.add(DescriptorSource(descriptor: ends[0]) { _, _ in if meter.tick() { loop.stop() } })
    }
    while !meter.isOver { loop.run() }
}

/// A block of the main queue that enqueues the next. The count includes libdispatch's allocations for it.
private func drainMainQueue(_ meter: Meter) {
    @Sendable func next() {
        if meter.tick() { return EventRunLoop.main.stop() }
        DispatchQueue.main.async { next() }
    }
    DispatchQueue.main.async { next() }
    EventRunLoop.main.run()
}

private func wakeItself(_ meter: Meter) {
    let loop = EventRunLoop.current
    loop.add(EventSource { _ in })
    loop.perform { while !meter.tick() { loop.wakeUp() } }
    loop.run(for: .zero)
}

/// The main thread wakes a loop that is continuously in a callout.
private func wakeAwake(_ meter: Meter) {
    let loop = Mutex<EventRunLoop?>(nil)
    let isOver = Atomic<Bool>(false)
    let thread = start {
        let own = EventRunLoop.current
        own.add(EventSource { _ in })
        own.perform {
            loop.withLock { $0 = own }
            while !isOver.load(ordering: .acquiring) {}
        }
        own.run(for: .zero)
    }
    var other: EventRunLoop?
    while other == nil { other = loop.withLock { $0 } }
    while !meter.tick() { other?.wakeUp() }
    isOver.store(true, ordering: .releasing)
    pthread_join(thread, nil)
}

/// Another thread repeatedly passes a block to the sleeping loop, each after the one before has run.
private func wakeAsleep(_ meter: Meter) {
    let loop = EventRunLoop.current
    let blocksRun = Atomic<Int>(0)
    let block: @Sendable () -> Void = {
        if meter.tick() { loop.stop() }
        blocksRun.add(1, ordering: .releasing)
    }
    loop.add(EventSource { _ in })
    let thread = start {
        for round in 1...Meter.all {
            while !loop.isWaiting {}
            loop.perform(block)
            while blocksRun.load(ordering: .acquiring) < round {}
        }
    }
    while !meter.isOver { loop.run() }
    pthread_join(thread, nil)
}

private func poll(_ meter: Meter) {
    let loop = EventRunLoop.current
    loop.add(EventSource { _ in })
    while !meter.tick() { loop.run(for: .zero) }
}

/// Requests to a port on another thread's loop, each after the reply to the one before. The port stays in the loop that asks.
private func request(_ meter: Meter) {
    let port = LocalPort { try? $0.reply(PortMessage()) }
    guard let worker = try? WorkerThread(name: "answers"), (try? worker.loop.add(port)) != nil,
        let remote = try? RemotePort(to: port), (try? EventRunLoop.current.add(remote)) != nil
    else { return }
    let message = PortMessage()
    while !meter.tick() { guard (try? remote.request(message)) != nil else { return } }
    worker.stop()
    worker.join()
}

// MARK: - Threads

func onThread(_ body: @escaping @Sendable () -> Void) { pthread_join(start(body), nil) }

private func start(_ body: @escaping @Sendable () -> Void) -> pthread_t {
    var thread = pthread_t()
    let work = unsafe Unmanaged.passRetained(Work(body)).toOpaque()
    _ = unsafe pthread_create(
        &thread,
        nil,
        { argument in
            guard let argument = unsafe argument else { return nil }
            unsafe Unmanaged<Work>.fromOpaque(argument).takeRetainedValue().body()
            return nil
        },
        work
    )
    return thread
}

private final class Work: Sendable {
    let body: @Sendable () -> Void
    init(_ body: @escaping @Sendable () -> Void) { self.body = body }
}
