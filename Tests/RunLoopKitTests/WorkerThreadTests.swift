import Glibc
import LoopTestSupport
import RunLoopKit
import TestSupport
import Testing

/// A thread that exists to run its loop.
@Suite(.timeLimit(.minutes(10)))
struct WorkerThreadTests {
    @Test("A worker has its name and its own loop, and lives while there is nothing to do")
    func start() async throws {
        let worker = try WorkerThread(name: "fifteen bytes !")
        let seen = await onLoopThread { _ in
            waitUntil { worker.loop.isWaiting }
            let label = try? worker.loop.performAndWait { EventRunLoop.current.label }
            let isOwn = try? worker.loop.performAndWait { EventRunLoop.current === worker.loop }
            return (label, isOwn, worker.hasEnded, worker.join(timeout: .milliseconds(5)))
        }
        #expect(
            seen.0 == "fifteen bytes !" && worker.loop.label == "fifteen bytes !" && worker.name == "fifteen bytes !"
        )
        #expect(seen.1 == true && !seen.2 && !seen.3)
        worker.stop()
    }

    @Test(
        "A name that is too long for the kernel is cut to whole characters, and the worker uses the rest",
        arguments: [
            ("worker-12", "worker-12"), ("connection-worker-12", "connection-work"),
            ("fourteen bytes€", "fourteen bytes"),
            ("twelve bytes€…", "twelve bytes€"), ("", ""),
        ]
    )
    func longName(asked: String, kept: String) async throws {
        let worker = try WorkerThread(name: asked)
        #expect(worker.name == kept && worker.loop.label == kept)
        worker.stop()
    }

    @Test("A worker can be given work in each of the loop's ways")
    func work() async throws {
        let worker = try WorkerThread(name: "work")
        let trace = Trace()
        await onLoopThread { _ in
            let loop = worker.loop
            loop.perform { trace.note("block") }
            loop.performAsSource { trace.note("request") }
            loop.perform(after: .zero) { trace.note("delayed") }
            let source = EventSource { _ in trace.note("source") }
            loop.add(source)
            source.signalAndWake()
            loop.add(EventTimer(after: .zero) { _ in trace.note("timer") })
            waitUntil { trace.all.count == 5 }
            try? loop.performAndWait { trace.note("wait") }
            worker.stop()
            worker.join()
        }
        #expect(Set(trace.all.prefix(5)) == ["block", "request", "delayed", "source", "timer"])
        #expect(trace.all.last == "wait")
    }

    @Test(
        "R2: a stopped worker finishes its turn, ends its loop and is joined; repeated calls do nothing"
    )
    func stop() async throws {
        let worker = try WorkerThread(name: "stop")
        let trace = Trace()
        let source = EventSource(onCancel: { _, _ in trace.note("cancelled") }, { _ in })
        worker.loop.add(source)
        await onLoopThread { _ in
            let hasBegun = Counter()
            let gate = Counter()
            worker.loop.perform {
                hasBegun.increment()
                waitUntil { gate.value == 1 }
                trace.note("turn over")
            }
            waitUntil { hasBegun.value == 1 }
            worker.stop()
            worker.stop()
            if worker.join(timeout: .milliseconds(2)) { trace.note("too early") }
            gate.increment()
            for _ in 1...3 { trace.note("\(worker.join())") }
            worker.stop()
        }
        #expect(trace.all == ["turn over", "cancelled", "true", "true", "true"])
        #expect(worker.hasEnded && worker.loop.heartbeat.hasEnded)
    }

    @Test("A stop with a drain does what was queued by then; one without releases it")
    func drain() async throws {
        for draining in [true, false] {
            let worker = try WorkerThread(name: "drain")
            let trace = Trace()
            await onLoopThread { _ in
                let (hasBegun, gate) = (Counter(), Counter())
                worker.loop.performAsSource {
                    hasBegun.increment()
                    waitUntil { gate.value == 1 }
                }
                waitUntil { hasBegun.value == 1 }
                // During a turn's requests: this one is left for the next turn.
                worker.loop.performAsSource {
                    trace.note("request")
                    worker.loop.performAsSource { trace.note("next turn's") }
                }
                worker.stop(draining: draining)
                gate.increment()
                worker.join()
            }
            #expect(trace.all == (draining ? ["request"] : []))
        }
    }

    @Test("A stop at the moment when the last pass begins does not take that pass away")
    func stopsAtLastPass() async throws {
        let worker = try WorkerThread(name: "last pass")
        let trace = Trace()
        await onLoopThread { _ in
            worker.loop.performAsSource {
                // This ends the run of this callback. The next run is the last pass.
                worker.stop(draining: true)
                worker.loop.add(LoopObserver(activities: .entry) { _, _ in worker.stop(draining: true) })
                worker.loop.performAsSource { trace.note("request") }
            }
            worker.join()
        }
        #expect(trace.all == ["request"])
    }

    @Test("R2: a worker whose thread ends inside a callback has ended, and is joined")
    func endsInCallback() async throws {
        let worker = try WorkerThread(name: "callback")
        let wasJoined = await onLoopThread { _ in
            worker.loop.perform { pthread_exit(nil) }
            return worker.join(timeout: .seconds(60))
        }
        #expect(wasJoined && worker.hasEnded && worker.loop.thread == nil)
    }

    @Test("A worker can stop itself, and can release the last reference to its handle")
    func fromItself() async throws {
        let worker = Box<WorkerThread?>(try WorkerThread(name: "itself"))
        let loop = try #require(worker.value?.loop)
        loop.perform {
            worker.value?.stop()
            worker.value = nil
        }
        await onLoopThread { _ in waitUntil { loop.heartbeat.hasEnded } }
        #expect(worker.value == nil)
    }

    @Test("When the last reference is released, the worker stops by itself")
    func released() async throws {
        let loop = try WorkerThread(name: "released").loop
        await onLoopThread { _ in waitUntil { loop.heartbeat.hasEnded } }
        #expect(loop.thread == nil)
    }

    @Test(
        "R22: a stop of the loop ends its run, not the worker; a stop of the worker ends its nested runs, too"
    )
    func nested() async throws {
        let worker = try WorkerThread(name: "nested")
        let trace = Trace()
        await onLoopThread { _ in
            worker.loop.stop()
            try? worker.loop.performAndWait { trace.note("still there") }
            let depth = Counter()
            for mode in [EventRunLoop.Mode.default, "other"] {
                worker.loop.performAsSource(in: [.default, "other"]) {
                    let loop = EventRunLoop.current
                    let source = occupy(loop, mode)
                    depth.increment()
                    trace.note("\(loop.run(mode: mode))")
                    source.invalidate()
                }
            }
            waitUntil { depth.value == 2 && worker.loop.isWaiting }
            worker.stop()
            worker.join()
        }
        #expect(trace.all == ["still there", "stopped", "stopped"])
    }

    @Test("R23: a stop of a worker ends all runs of common modes, also if one is nested in another of the same mode")
    func nestedInCommonMode() async throws {
        let worker = try WorkerThread(name: "nested")
        let trace = Trace()
        await onLoopThread { _ in
            worker.loop.addCommonMode("other")
            let depth = Counter()
            for _ in 0..<2 {
                worker.loop.performAsSource {
                    let loop = EventRunLoop.current
                    let source = occupy(loop, "other")
                    depth.increment()
                    trace.note("\(loop.run(mode: "other"))")
                    source.invalidate()
                }
            }
            waitUntil { depth.value == 2 && worker.loop.isWaiting }
            worker.stop()
            #expect(worker.join(timeout: .seconds(60)))
        }
        #expect(trace.all == ["stopped", "stopped"])
    }

    @Test(
        "A worker leaves the process's signals to other threads, except SIGPROF, SIGURG and those a thread causes itself"
    )
    func signals() async {
        let masks = await onLoopThread { _ -> (starter: Set<Int32>, worker: Set<Int32>) in
            // The tests' own threads block many signals, and a mask is inherited.
            var none = sigset_t()
            unsafe sigemptyset(&none)
            unsafe pthread_sigmask(SIG_SETMASK, &none, nil)
            let worker = try? WorkerThread(name: "signals")
            let inherited = try? worker?.loop.performAndWait { blockedSignals() }
            return (blockedSignals(), inherited ?? [])
        }
        #expect(masks.starter == [])
        #expect(masks.worker.isSuperset(of: [SIGHUP, SIGINT, SIGTERM, SIGCHLD, SIGUSR1, SIGALRM, SIGWINCH]))
        let open = [SIGPROF, SIGURG, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS, SIGPIPE]
        #expect(masks.worker.isDisjoint(with: open))
    }

    @Test("A worker does not block SIGURG, which wakes it without descriptors, even if its starter blocks all signals")
    func urgentSignal() async {
        let worker = await onLoopThread { _ -> Set<Int32>? in
            var all = sigset_t()
            unsafe sigfillset(&all)
            unsafe pthread_sigmask(SIG_SETMASK, &all, nil)
            let worker = try? WorkerThread(name: "urgent")
            let inherited = try? worker?.loop.performAndWait { blockedSignals() }
            worker?.stop()
            worker?.join()
            return inherited
        }
        #expect(worker?.contains(SIGURG) == false)
    }

    @Test("Many workers that are started, used and stopped in every way end and leave nothing behind")
    func storm() async throws {
        let held = Box<[WeakTrace]>([])
        await onLoopThread { _ in
            for round in 0..<150 {
                guard let worker = try? WorkerThread(name: "storm \(round)") else {
                    Issue.record("no thread")
                    return
                }
                let trace = Trace()
                held.value.append(WeakTrace(trace))
                worker.loop.perform { trace.note("ran") }
                worker.loop.perform(after: .seconds(60)) { trace.note("never") }
                switch round % 5 {
                case 0: worker.stop()
                case 1: worker.loop.perform { worker.stop() }
                case 2:
                    worker.stop()
                    worker.join()
                case 3:
                    let others = (0..<3).map { _ in
                        TestThread {
                            worker.stop(draining: true)
                            worker.join()
                        }
                    }
                    for other in others { other.join() }
                default: break
                }
            }
            waitUntil { held.value.allSatisfy { $0.trace == nil } }
        }
        #expect(held.value.count == 150)
    }

    @Test("A worker that cannot start throws a typed error with the system's reason")
    func notStarted() throws {
        let run = try Fixture.run("RunLoopFixture", "no-threads")
        #expect(run.lines == ["refused: true true", "started"])
    }

    @Test("A worker's stack is large enough even if threads have 64 KiB by default")
    func smallStack() throws {
        let program = try Fixture.directory() + "/RunLoopFixture"
        let run = try Fixture.run(command: "ulimit -s 64; timeout 60 '\(program)' worker-stack")
        #expect(run.lines == ["room: true"])
        #expect(run.status == 0)
    }

    @Test("R2: workers leave no descriptor and no thread behind, whether joined or released")
    func leavesNothing() throws {
        let run = try Fixture.run("RunLoopFixture", "workers")
        #expect(run.lines == ["left behind: 0 descriptors, 0 threads"])
    }
}

/// The signals that the calling thread blocks.
private func blockedSignals() -> Set<Int32> {
    var mask = sigset_t()
    unsafe pthread_sigmask(SIG_BLOCK, nil, &mask)
    return Set((1...31).filter { unsafe sigismember(&mask, $0) == 1 })
}
