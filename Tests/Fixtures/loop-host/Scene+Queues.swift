import CLoopHooks
import Dispatch
import Foundation
import Glibc
import StallMonitor
import StallMonitorLoops

// Queues, and Foundation's main loop.

extension Scene {
    func playQueues(_ directory: String) {
        let names = [
            "async", "sync", "timer", "backlog", "brief", "suspended", "waits-in-turn", "async-and-wait", "targeted",
        ]
        let queues = names.map { DispatchQueue(label: $0) }
        let concurrent = DispatchQueue(label: "concurrent", attributes: .concurrent)
        let inactive = DispatchQueue(label: "activated", attributes: .initiallyInactive)
        let monitor = LoopHost.start(
            directory,
            watching: .init(queues + [concurrent, .main, inactive])
        )
        usleep(100_000)
        for queue in queues { queue.sync {} }
        let done = DispatchGroup()
        queues[0].async(group: done, execute: sleepOnQueue)
        onThread(done) { queues[1].sync(execute: sleepInSync) }
        for _ in 0..<60 { queues[3].async(group: done) { usleep(15_000) } }
        for _ in 0..<6 { queues[4].async(group: done) { usleep(20_000) } }
        // It suspends itself, with work left and a probe in its queue.
        let suspended = queues[5]
        suspended.async(group: done) {
            usleep(60_000)
            suspended.suspend()
        }
        suspended.async(group: done) {}
        usleep(1_200_000)
        suspended.resume()
        done.wait()
        // It is still watched after all of that, whenever its watcher has gone to sleep.
        for gap in [0, 15_000, 30_000, 60_000] as [UInt32] {
            usleep(gap)
            queues[6].async(group: done, execute: sleepBriefly)
            done.wait()
        }
        // By then the watcher sleeps, and no work is submitted to the queue.
        let timer = DispatchSource.makeTimerSource(queue: queues[2])
        timer.setEventHandler {
            sleepInTimer()
            timer.cancel()
            done.leave()
        }
        done.enter()
        timer.schedule(deadline: .now() + .milliseconds(300))
        timer.activate()
        done.wait()
        // By then the watcher sleeps. Only the call itself shows the work.
        usleep(300_000)
        asyncAndWait(queues[7]) { sleepInAsyncAndWait() }
        // The same for work of a queue that targets one that targets it.
        usleep(300_000)
        let above = DispatchQueue(label: "above", target: DispatchQueue(label: "between", target: queues[8]))
        above.async(group: done, execute: sleepAbove)
        done.wait()
        // By the time that it may work, its watcher has gone to sleep.
        inactive.async(group: done, execute: sleepOnQueue)
        usleep(300_000)
        inactive.activate()
        done.wait()
        usleep(300_000)
        LoopHost.stop(monitor)
    }

    /// The queues' addresses are invalid: they are never dereferenced.
    func playQueueFork() {
        let places = unsafe (1...Int(QUEUE_HOOKS_CAPACITY)).compactMap {
            unsafe UnsafeMutableRawPointer(bitPattern: $0 * 64)
        }
        func added() -> Int { unsafe places.count { unsafe queue_hooks_add($0) } }
        say("parent adds \(added())")
        let child = forkedChild()
        if child == 0 {
            say("child adds \(added())")
            _exit(0)
        }
        say("child \(waitForChild(child))")
    }

    /// Called as C programs do: Swift's queues have no method for it.
    private func asyncAndWait(_ queue: DispatchQueue, _ body: @escaping @convention(c) () -> Void) {
        typealias Call =
            @convention(c) (UnsafeMutableRawPointer, UnsafeMutableRawPointer?, @convention(c) () -> Void) -> Void
        queue_hooks_ask()
        _ = queue.qos
        guard let place = unsafe queue_hooks_answer(), let symbol = unsafe dlsym(nil, "dispatch_async_and_wait_f")
        else {
            return say("no dispatch_async_and_wait_f")
        }
        unsafe unsafeBitCast(symbol, to: Call.self)(place, nil, body)
    }

    func playFoundation(_ directory: String) {
        let monitor = LoopHost.start(directory, watching: .foundationMain)
        // Turns, so that it is found.
        let turns = Timer(timeInterval: 0.05, repeats: true) { _ in }
        let stall = Timer(fire: Date(timeIntervalSinceNow: 0.5), interval: 0, repeats: false) { _ in sleepInFoundation()
        }
        RunLoop.main.add(turns, forMode: .default)
        RunLoop.main.add(stall, forMode: .default)
        // The loop turns until the end: while this thread waited for the report, it would be stalled.
        RunLoop.main.run(until: Date(timeIntervalSinceNow: 3))
        monitor.stop()
    }

    private func onThread(_ done: DispatchGroup, _ body: @escaping @Sendable () -> Void) {
        done.enter()
        Thread.detachNewThread {
            body()
            done.leave()
        }
    }
}

extension WatchSelection {
    fileprivate init(_ queues: [DispatchQueue]) {
        self = queues.reduce([]) { [$0, .queue($1)] }
    }
}

@inline(never) func sleepOnQueue() { slept.add(Int(usleep(700_000))) }
@inline(never) func sleepBriefly() { slept.add(Int(usleep(400_000))) }
@inline(never) func sleepInSync() { slept.add(Int(usleep(700_000))) }
@inline(never) func sleepInAsyncAndWait() { slept.add(Int(usleep(700_000))) }
@inline(never) func sleepAbove() { slept.add(Int(usleep(700_000))) }
@inline(never) func sleepInTimer() { slept.add(Int(usleep(700_000))) }
@inline(never) func sleepInFoundation() { slept.add(Int(usleep(700_000))) }
