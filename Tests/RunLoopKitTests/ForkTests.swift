import LoopTestSupport
import Testing

/// A process that forks and does not call exec. Each scenario is a separate program.
@Suite(.timeLimit(.minutes(10)))
struct ForkTests {
    private func scenario(_ name: String) throws -> [String] {
        let run = try Fixture.run("ForkFixture", name)
        #expect(run.status == 0)
        return run.lines
    }

    /// The output of a loop on which everything works: descriptor source, timer, timeout, wake-up by another thread,
    /// stop.
    private let works = ["source", "timer", "timedOut", "woken", "stopped", "thread: true"]

    @Test(
        "R1: the forking thread's loop works in the child; sources that the child removes stay in the parent"
    )
    func mainForks() throws {
        #expect(try scenario("main") == works + ["child: exit 0", "parent: stopped, 1"])
    }

    @Test("R34: a source of the forking thread's loop continues in both processes")
    func sourceInherited() throws {
        let served = ["delivered: true", "stopped"]
        #expect(try scenario("source-inherited") == served + ["child: exit 0"] + served)
    }

    @Test("R55: a child that invalidates its parent's ports leaves the parent its name and connections")
    func portsInherited() throws {
        let child = ["valid: false false", "child: exit 0"]
        let parent = ["message 1", "message 2", "in use: true", "tidied: true"]
        #expect(try scenario("ports") == ["connected: 1"] + child + parent)
    }

    @Test("R3: a worker of the parent counts as ended in the child, which does not wait for it; the parent's goes on")
    func workerHandle() throws {
        let child = ["ended: true, joined: true", "child: exit 0"]
        #expect(try scenario("worker-handle") == child + ["parent's: true, answer 1", "joined: true"])
    }

    @Test("R12: a fork in a callout returns twice, and both loops continue")
    func inCallout() throws {
        #expect(try scenario("in-callout") == ["in the child: 5", "child: exit 0", "in the parent: 5"])
    }

    @Test(
        "R3: other threads' loops refuse in the child, its own works, and the sleeping parent is not woken",
        arguments: ["worker-forks", "main-forks"]
    )
    func othersRefuse(_ scenario: String) throws {
        let parent = ["parent woken: 0", "parent's wake descriptor: true", "parent's source: true"]
        #expect(
            try self.scenario(scenario) == ["refused: true", "thread: true"] + works + ["child: exit 0"] + parent
        )
    }

    @Test("R1: running the parent's main loop in a worker's child is a programmer error with a message")
    func runParents() throws {
        let run = try Fixture.run("ForkFixture", "run-parents")
        // SIGILL or SIGTRAP, depending on the processor.
        #expect(["child: signal 4", "child: signal 5"].contains(run.lines.first))
        let parent = ["parent woken: 0", "parent's wake descriptor: true", "parent's source: true"]
        #expect(run.lines.dropFirst() == parent[...])
    }

    @Test(
        "R58: work for the main queue from before the fork runs in the parent, not in the child, which does not hang"
    )
    func mainQueue() throws {
        #expect(
            try scenario("main-queue") == ["parent's", "empty: finished"] + works + ["child: exit 0", "parent's"]
        )
    }

    @Test(
        "R58, R59: a daemon that forks twice and closes everything first has a working loop and main queue"
    )
    func daemon() throws {
        let served = ["main queue", "from another queue"]
        #expect(try scenario("daemon") == served + works + ["child: exit 0", "child: exit 0"])
    }

    @Test("R1: a child that closes everything, and whose files get the numbers, has a loop that touches none of them")
    func closeInChild() throws {
        #expect(try scenario("close-in-child") == works + ["files whole: true", "child: exit 0"] + works)
    }

    @Test("R1: threads of the child and its loop's thread contend for the loop's locks without failure")
    func contention() throws {
        #expect(try scenario("contention") == ["blocks: 20000", "child: exit 0"])
    }

    @Test("In a fork's child a task pool has only the job of the forking thread, which continues in both processes")
    func taskPool() throws {
        let child = [
            "child: 1 run, also its own, 0 wait, 3 begun", "next job: 1 run, also its own, 0 wait, 4 begun",
            "child's end: 0 run, not its own, 0 wait, 4 begun", "child: exit 0",
        ]
        let parent = [
            "parent: 3 run, also its own, 2 wait, 3 begun", "parent's end: 2 run, not its own, 2 wait, 3 begun",
        ]
        #expect(try scenario("task-pool") == child + parent)
    }

    @Test("A child's new thread with the stack of a parent's that held a lock ends with a message about the fork")
    func lockHeld() throws {
        let program = try Fixture.directory() + "/ForkFixture"
        let run = try Fixture.run(command: "{ timeout 450 '\(program)' lock-held 2>&1; }")
        #expect(run.lines.first == "same thread pointer: true")
        #expect(run.lines.contains { $0.contains("A thread of the parent held it at the fork") })
        // SIGILL or SIGTRAP, depending on the processor.
        #expect(["child: signal 4", "child: signal 5"].contains(run.lines.last))
    }

    @Test("R1: a child's child has a working loop, too")
    func grandchild() throws {
        #expect(try scenario("grandchild") == works + ["child: exit 0", "child: exit 0"])
    }
}
