import CEventLoops
import Dispatch
import Foundation
import Glibc
import RunLoopKit
import StallMonitor
import StallMonitorLoops

/// What the loops do.
enum Scene: String, CaseIterable {
    /// Loops of each kind, each stalled once; and some that are not.
    case stalls
    /// Loops that are created, ended and created again.
    case comings
    /// Some are selected, others are not.
    case chosen
    /// A loop's thread forks; the child has its own monitor, continues that loop and creates another.
    case fork
    /// More threads with a loop than the monitor's capacity.
    case crowd
    /// Threads that take turns at one epoll set.
    case shared
    /// A thread that leaves its loop, and a loop whose epoll set gets the number of the one that it has closed.
    case reused
    /// A loop started by a library's constructor.
    case early
    /// A fork in a process that watches the maximum number of queues.
    case queueFork
    /// Forks beside threads that ask for a value of the process.
    case valueFork
    /// The waits that the program calls, compared with those of the C library.
    case compare
    /// Loops, and a queue, without work.
    case idle
    /// Serial queues, stalled or not.
    case queues
    /// Foundation's main loop.
    case foundation

    func play(directory: String) {
        switch self {
        case .stalls: playStalls(directory)
        case .comings: playComings(directory)
        case .chosen: playChosen(directory)
        case .fork: playFork(directory)
        case .crowd: playCrowd(directory)
        case .shared: playShared(directory)
        case .reused: playReused(directory)
        case .early: playEarly(directory)
        case .queueFork: playQueueFork()
        case .valueFork: playValueFork()
        case .compare: playCompare(directory)
        case .idle: playIdle(directory)
        case .queues: playQueues(directory)
        case .foundation: playFoundation(directory)
        }
    }
}

extension Scene {
    private func playStalls(_ directory: String) {
        let monitor = LoopHost.start(directory, probes: 3)
        let (polling, selecting) = (Loop("poll", EVENT_POLL), Loop("select", EVENT_SELECT))
        let timed = Loop("timed", EVENT_TIMED)
        let stalled: [(Loop, @Sendable () -> Void)] = [
            (Loop("epoll", EVENT_EPOLL), sleepInEpoll), (Loop("pwait2", EVENT_PWAIT2), sleepInPwait2),
            (polling, { sleepInPoll(polling) }), (selecting, { sleepInSelect(selecting) }),
            (Loop("nested", EVENT_EPOLL), waitInNestedLoop),
            (Loop("client", EVENT_POLL), askPeer), (Loop("many", EVENT_MANY), sleepAmongMany),
            (Loop("asking", EVENT_ASKING), sleepInAsking), (Loop("heights", EVENT_HEIGHTS), sleepInHeights),
            (timed, sleepInTimed),
        ]
        let refused = Loop("refused", EVENT_REFUSED)
        // A client on a thread without a loop, which sends requests from one place, and then sleeps.
        let asker = Thread {
            for _ in 0..<5 { event_ask(5) }
            sleepInPoll()
        }
        asker.name = "asker"
        asker.start()
        let (idle, brief, resting) = (Loop("idle"), Loop("brief"), Loop("resting", EVENT_HEIGHTS))
        // The last of these waits is not the outermost.
        for loop in [resting, timed] { for _ in 0..<4 { loop.runToEnd {} } }
        let worker = runLoopWithNestedLoops()
        defer { worker?.stop() }
        waitForChildOnQueue()
        // By now each is known; otherwise its stall is not seen.
        usleep(300_000)
        for (loop, job) in stalled { loop.run(job) }
        for _ in 0..<3 { brief.runToEnd { usleep(100_000) } }
        for (loop, _) in stalled { loop.runToEnd {} }
        usleep(300_000)
        LoopHost.stop(monitor)
        for loop in stalled.map(\.0) + [idle, brief, resting, refused] { loop.end() }
    }

    private func playComings(_ directory: String) {
        let early = Loop("worker")
        let monitor = LoopHost.start(directory)
        let second = Loop("worker")
        usleep(200_000)
        early.end()
        say("cancelled \(unsafe event_cancel_loop("cancelled"))")
        usleep(200_000)
        // Its label is free again.
        let third = Loop("worker")
        usleep(200_000)
        third.run(sleepInEpoll)
        third.runToEnd {}
        usleep(300_000)
        LoopHost.stop(monitor)
        second.end()
        third.end()
    }

    private func playChosen(_ directory: String) {
        let monitor = LoopHost.start(directory, watching: .everyLoop { $0.hasPrefix("wanted") })
        let loops = ["wanted-1", "other", "wanted-2"].map { Loop($0) }
        usleep(200_000)
        for loop in loops { loop.run(sleepInEpoll) }
        for loop in loops { loop.runToEnd {} }
        usleep(300_000)
        LoopHost.stop(monitor)
        for loop in loops { loop.end() }
    }

    private func playFork(_ directory: String) {
        // The child uses it again.
        let selection = WatchSelection.everyLoop
        let monitor = LoopHost.start(directory, watching: selection)
        let loop = Loop("parents")
        usleep(200_000)
        // The monitor's threads have used everything once and rest: see forkedChild().
        loop.runToEnd { usleep(120_000) }
        _ = Wakes.untilRest()
        loop.runToEnd {
            let child = forkedChild()
            guard child != 0 else { return playChild(directory, monitor, selection, loop) }
            // Its loop is blocked meanwhile, and leaves what they share to the child.
            say("child \(waitForChild(child))")
        }
        usleep(300_000)
        LoopHost.stop(monitor)
        loop.end()
    }

    private func playValueFork() {
        let value = PerProcess { getpid() }
        let started = DispatchSemaphore(value: 0)
        for _ in 0..<2 {
            Thread.detachNewThread {
                // By then it has used everything once: see forkedChild().
                for _ in 0..<1_000 { _ = value.current }
                started.signal()
                while true { _ = value.current }
            }
        }
        for _ in 0..<2 { started.wait() }
        for _ in 0..<100 {
            let child = forkedChild()
            if child == 0 {
                alarm(30)
                _exit(value.current == getpid() ? 0 : 1)
            }
            let status = waitForChild(child)
            guard status == 0 else { return say("child \(status)") }
        }
        say("children have their own")
    }

    /// On the only thread of the child, which has a loop: it continues to turn.
    private func playChild(_ directory: String, _ monitor: StallMonitor, _ selection: WatchSelection, _ loop: Loop) {
        alarm(30)
        // It takes the parent's monitor off the main loop.
        monitor.stop()
        let own = LoopHost.start(directory + "-child", watching: selection)
        Thread.detachNewThread {
            let another = Loop("childs")
            usleep(200_000)
            loop.run(sleepInPoll)
            another.run(sleepInEpoll)
            loop.runToEnd {}
            another.runToEnd {}
            usleep(300_000)
            own.stop()
            say("child done")
            _exit(0)
        }
    }

    private func playCrowd(_ directory: String) {
        let monitor = LoopHost.start(directory)
        // The capacity is 1,024. The first threads stay until they are known, the second ones end at
        // once.
        for time in [500, 0] as [Int32] { say("crowd \(event_crowd(1_100, time, false))") }
        // All of them have ended: there is room again.
        let late = Loop("late")
        usleep(500_000)
        late.run(sleepInEpoll)
        late.runToEnd {}
        usleep(300_000)
        LoopHost.stop(monitor)
        late.end()
    }

    /// A pool of threads at one set, one of which works for long; and a separate loop.
    private func playShared(_ directory: String) {
        let monitor = LoopHost.start(directory)
        let alone = Loop("alone")
        for time in [600, 0] as [Int32] { say("pool \(event_crowd(3, time, true))") }
        alone.run(sleepInEpoll)
        alone.runToEnd {}
        usleep(300_000)
        LoopHost.stop(monitor)
        alone.end()
    }

    private func playReused(_ directory: String) {
        let monitor = LoopHost.start(directory)
        let left = Loop("left")
        usleep(200_000)
        left.run { slept.add(Int(usleep(2_000_000))) }
        left.awaitJob()
        let next = Loop("next", inPlaceOf: left)
        usleep(200_000)
        next.run(sleepInEpoll)
        next.runToEnd {}
        left.end()
        usleep(300_000)
        LoopHost.stop(monitor)
        next.end()
    }

    private func playEarly(_ directory: String) {
        let monitor = LoopHost.start(directory)
        guard let early = Loop.early else { return say("no early loop") }
        early.runToEnd {}
        usleep(200_000)
        early.run(sleepInEpoll)
        early.runToEnd {}
        usleep(300_000)
        LoopHost.stop(monitor)
        early.end()
    }

    private func playCompare(_ directory: String) {
        let monitor = LoopHost.start(directory)
        for rounds in [1, 2, 12] {
            let count = unsafe event_compare_waits(Int32(rounds)) { say(unsafe String(cString: $0)) }
            say("compared \(count)")
        }
        monitor.stop()
    }

    private func playIdle(_ directory: String) {
        let queue = DispatchQueue(label: "queue")
        let monitor = LoopHost.start(directory, watching: [.everyLoop, .queue(queue)])
        queue.sync {}
        let loops = (1...16).map { Loop("idle-\($0)") }
        for loop in loops { loop.runToEnd {} }
        // The monitor may look for a while after all of that.
        say("wakes \(Wakes.untilRest())")
        // They are watched.
        loops[0].run(sleepInEpoll)
        loops[0].runToEnd {}
        usleep(300_000)
        LoopHost.stop(monitor)
        for loop in loops { loop.end() }
    }
}

// Separate functions, because the reports must name them. Each does some work after its long call: a tail call would
// remove it from the stack.

@inline(never) func sleepInEpoll() { slept.add(Int(usleep(700_000))) }
@inline(never) func sleepInPwait2() { slept.add(Int(usleep(700_000))) }
@inline(never) func sleepInPoll() { slept.add(Int(usleep(700_000))) }

// Clients connect meanwhile.

@inline(never)
func sleepInPoll(_ loop: Loop) {
    loop.connectClients(3)
    slept.add(Int(usleep(700_000)))
}

@inline(never)
func sleepInSelect(_ loop: Loop) {
    loop.connectClients(2)
    slept.add(Int(usleep(700_000)))
}

@inline(never) func sleepAmongMany() { slept.add(Int(usleep(700_000))) }
@inline(never) func sleepInHeights() { slept.add(Int(usleep(700_000))) }
@inline(never) func sleepInTimed() { slept.add(Int(usleep(700_000))) }
@inline(never) func sleepInAsking() { slept.add(Int(usleep(700_000))) }

@inline(never)
func waitForChild(_ child: pid_t) -> Int32 {
    var status: Int32 = -1
    while unsafe waitpid(child, &status, 0) < 0, errno == EINTR {}
    return status
}

@inline(never)
func waitInNestedLoop() {
    event_nested_loop(70, 10)
    slept.add(1)
}

@inline(never)
func askPeer() {
    event_ask(700)
    slept.add(1)
}

/// Swift offers no fork: its runtime guarantees nothing in a child that does not exec. The runtime creates a generic
/// type at its first use, under a lock that stays locked in the child if another thread holds it during the fork.
/// What the child uses here works anyway, as long as no other thread uses a type for the first time just then.
func forkedChild() -> pid_t {
    typealias Fork = @convention(c) () -> pid_t
    guard let symbol = unsafe dlsym(nil, "fork") else { return -1 }
    return unsafe unsafeBitCast(symbol, to: Fork.self)()
}
