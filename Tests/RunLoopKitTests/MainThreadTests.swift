import Glibc
import LoopTestSupport
import Testing

/// R10, R16, R58 to R60, on the main thread of a separate program.
@Suite(.timeLimit(.minutes(10)))
struct MainThreadTests {
    @Test("R58, R59: the main queue and the main actor are served on the main thread by the main loop")
    func mainQueue() throws {
        let run = try Fixture.run("RunLoopFixture", "main-queue")
        #expect(
            run.lines == [
                "async: main", "sync: main", "asyncAfter: main", "task: main", "after sleep: main", "after run: main",
            ]
        )
        #expect(run.status == 0)
    }

    @Test("R58: a mode that is not common does not serve the main queue; one that became common does")
    func otherMode() throws {
        let run = try Fixture.run("RunLoopFixture", "other-mode")
        #expect(run.lines == ["other: timedOut", "drained", "default: timedOut", "drained", "other: handledSource"])
    }

    @Test("R10, R58: inside a drain the mode is empty; a nested run leaves the queue's further work for later")
    func nestedInDrain() throws {
        let run = try Fixture.run("RunLoopFixture", "nested-in-drain")
        #expect(
            run.lines == ["nested, empty: finished", "nested, busy: timedOut", "first ends", "second", "done"]
        )
    }

    @Test("R10, R19: the main loop's common mode is never empty, and a drain counts as a handled source")
    func neverEmpty() throws {
        let run = try Fixture.run("RunLoopFixture", "empty-main")
        #expect(run.lines == ["empty: timedOut", "drain: handledSource"])
    }

    @Test("R16, R36: a busy main queue, a busy descriptor and a busy timer share the turns")
    func fairness() throws {
        #expect(try Fixture.run("RunLoopFixture", "fairness").lines == ["fair"])
    }

    @Test("R16, R36: a busy main queue and a busy descriptor share the runs, too, if each run is a single turn")
    func fairnessOfShortRuns() throws {
        #expect(try Fixture.run("RunLoopFixture", "fairness-of-short-runs").lines == ["polls: fair", "waits: fair"])
    }

    @Test("Other threads know the main loop's thread before it runs, with a stack that contains its frames")
    func threadFacts() throws {
        let expected = ["asked: elsewhere", "id: true", "stack: true", "label: main"]
        #expect(try Fixture.run("RunLoopFixture", "thread-facts").lines == expected)
        #expect(try Fixture.run("RunLoopFixture", "thread-facts", unlimitedStack: true).lines == expected)
    }

    @Test("R60: a program with an async main keeps its main thread, and ends when main returns")
    func asyncMain() throws {
        let run = try Fixture.run("AsyncMainFixture")
        #expect(
            run.lines == [
                "main begins: main thread", "after sleep: main thread", "MainActor.run: main thread",
                "from a detached task: main thread", "DispatchQueue.main: main thread",
                "block of the main loop: main thread", "mode: default", "after stop: main thread",
            ]
        )
        #expect(run.status == 0)
    }

    @Test("R64: each kind of callout, and the wait, has its own function name on the stack")
    func frames() throws {
        let run = try Fixture.run("RunLoopFixture", "frames")
        #expect(
            run.lines == [
                "observer: event_run_loop_is_calling_out_to_an_observer",
                "block: event_run_loop_is_calling_out_to_a_block",
                "source0: event_run_loop_is_calling_out_to_a_source0",
                "descriptor: event_run_loop_is_calling_out_to_a_descriptor_source",
                "timer: event_run_loop_is_calling_out_to_a_timer",
                "main queue: event_run_loop_is_servicing_the_main_dispatch_queue",
                "task: event_run_loop_is_running_a_task",
                "message: event_run_loop_is_calling_out_to_a_message_handler",
                "wait: event_run_loop_wait",
            ]
        )
    }

    @Test("R64: so have a perform request and a thread that waits for one; a signal does not end that wait")
    func requestFrames() throws {
        let run = try Fixture.run("RunLoopFixture", "request-frames")
        #expect(
            run.lines == [
                "request: event_run_loop_is_calling_out_to_a_perform_request",
                "wait for a request: event_run_loop_wait_for_a_perform_request",
                "done",
            ]
        )
    }

    @Test(
        "R59, R60, R61: thousands of hops among main actor, main queue, sleeps and loops end on the right threads"
    )
    func hops() throws {
        let run = try Fixture.run("ConcurrencyFixture", "hops")
        #expect(run.lines == ["hops: 12800", "astray: 0", "main turns while busy: true"])
        #expect(run.status == 0)
    }

    @Test(
        "R61: an actor pinned to the main loop shares the main actor's executor; so does a task that prefers the loop"
    )
    func mainExecutor() throws {
        let run = try Fixture.run("ConcurrencyFixture", "main-executor")
        #expect(
            run.lines == [
                "pinned: main thread, main actor: true", "preferring: main thread", "after sleep: main thread",
                "nested: main queue", "after it: outer value", "then: the other job", "in a timer: 1",
            ]
        )
        #expect(run.status == 0)
    }

    @Test("R61: assuming a pinned actor's isolation on another thread traps", arguments: ["assume", "precondition"])
    func wrongThread(check: String) throws {
        let run = try Fixture.run("ConcurrencyFixture", "\(check)-elsewhere")
        #expect(run.lines == ["about to"])
        #expect(run.status != 0)
    }

    @Test("A client in Swift 6 mode, with warnings as errors, uses the whole API from actors, tasks and threads")
    func client() throws {
        let run = try Fixture.run("ClientFixture")
        let parts = ["main actor", "tasks", "worker", "performs", "timers and traces", "ports"]
        #expect(run.lines == parts.map { $0 + ": done" })
        #expect(run.status == 0)
    }

    @Test("A process without free descriptors runs its loops anyway, and warns once")
    func outOfDescriptors() throws {
        let run = try Fixture.run("RunLoopFixture", "no-descriptors")
        #expect(run.lines == ["refused: true", "block", "timer", "woken by another thread", "stopped"])
        #expect(run.status == 0)
    }
}
