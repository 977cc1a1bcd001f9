import Foundation
import StallReports
import TestSupport
import Testing

@testable import ProcessWatch

@Suite("watch of what cannot be watched", .serialized, .timeLimit(.minutes(10)))
struct WatchRefusalTests {
    private let fixture: ReportsFixture

    init() throws { fixture = try ReportsFixture(inMemory: true) }

    private func watch(_ arguments: String...) throws -> CommandRun {
        try CommandRun(arguments: ["watch", "--reports", fixture.path] + arguments)
    }

    @Test(
        "it says in one line why, and exits with 1",
        arguments: [
            ("2147483646", "there is no such process"), ("2", "this is a thread of the kernel"),
            ("$$", "this is the calling process itself"),
        ]
    )
    func refusals(_ process: String, _ sentence: String) throws {
        let command = "exec '\(CommandRun.executable.path)' watch --reports \(fixture.path) \(process)"
        let run = try CommandRun(tool: "/bin/sh", ["-c", command])
        #expect(run.status == 1 && run.output == "")
        #expect(run.errors.contains(": \(sentence)") && run.errors.split(separator: "\n").count == 1, "\(run.errors)")
    }

    @Test("Of several processes those that are there are watched; it says why the others are not, and exits with 1")
    func oneOfSeveral() throws {
        let target = try LoopTarget()
        let watch = try WatchRunning(["2147483646", "\(target.pid)", "2"], directory: fixture.path)
        try watch.waitForLoops(1)
        #expect(watch.notes.contains { $0.contains("process 2147483646: there is no such process") }, "\(watch.notes)")
        #expect(watch.notes.contains { $0.contains("process 2: this is a thread of the kernel") }, "\(watch.notes)")
        target.send(SIGKILL)
        #expect(try watch.status() == 1, "\(watch.notes)")
        let none = try self.watch("2147483646", "2")
        #expect(none.status == 1 && none.errors.split(separator: "\n").count == 2, "\(none.errors)")
    }

    @Test("A process that has ended and one of which only the first thread has ended are distinguished")
    func zombie() throws {
        let parent = try TargetProcess("zombie")
        let run = try watch(parent.announced)
        #expect(run.status == 1 && run.errors.contains(": the process has ended already"), "\(run.errors)")
        #expect(run.errors.split(separator: "\n").count == 1)
    }

    @Test("An impossible report directory gives one line and 1, before anything is started")
    func noDirectory() throws {
        let started = "\(fixture.path)/started"
        let run = try CommandRun("watch", "--reports", "/dev/null", "--", "/bin/sh", "-c", "echo > \(started)")
        #expect(run.status == 1 && run.errors.contains("/dev/null"), "\(run.errors)")
        #expect(run.errors.split(separator: "\n").count == 1, "\(run.errors)")
        #expect(!FileManager.default.fileExists(atPath: started))
    }

    @Test(
        "Where no directory can be made, it says so, and why",
        arguments: ["/proc/none", "/proc/none/reports", "/dev/null/x"]
    )
    func noPlace(_ path: String) throws {
        let run = try CommandRun("watch", "--reports", path, "--", "/bin/true")
        #expect(run.status == 1 && run.errors.contains(": the report directory cannot be made: "), "\(run.errors)")
        #expect(run.errors.contains("; give another one with --reports"), "\(run.errors)")
    }

    @Test("No process with the name: one line, and 1")
    func noName() throws {
        let run = try watch("--name", "no-such-program-*")
        #expect(run.status == 1 && run.errors.split(separator: "\n").count == 1, "\(run.errors)")
        #expect(run.errors.contains("there is no process named no-such-program-*"))
    }

    @Test(
        "invalid arguments are wrong usage",
        arguments: [
            ["0"], ["-1"], ["x"], [], ["4711", "--name", "x"], ["--name", ""], ["4711", "--threshold", "1ms"],
            ["4711", "--threshold", "2h"], ["99999999999"], ["--"], ["4711", "--reports", ""],
        ]
    )
    func usage(_ arguments: [String]) throws {
        let run = try CommandRun(arguments: ["watch"] + arguments)
        #expect(run.status == 64, "\(run.errors)")
    }

    @Test("It says whether there is too little or too much to watch")
    func ways() throws {
        #expect(try CommandRun("watch").errors.contains("give one of: numbers of processes, "))
        let both = try watch("1", "--", "/bin/true")
        #expect(both.status == 64 && both.errors.contains("give only one of: numbers of processes, "), "\(both.errors)")
    }

    @Test(
        "Another user's process is distinguished from one that refuses tracing",
        .enabled(
            if: getuid() == 0 && FileManager.default.isExecutableFile(atPath: "/usr/bin/setpriv"),
            "needs root and setpriv"
        )
    )
    func permission() throws {
        let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"]
        let own = try LoopTarget()
        let directory = "/tmp/no-reports-\(UUID())"
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let command = [CommandRun.executable.path, "watch", "--reports", directory]
        let other = try CommandRun(tool: "/usr/bin/setpriv", nobody + command + ["\(own.pid)"])
        #expect(other.status == 1, "\(other.errors)")
        #expect(other.errors.contains(": the process belongs to another user: "), "\(other.errors)")
        #expect(other.errors.split(separator: "\n").count == 1)
        let name = TargetProcess.executable.lastPathComponent
        let named = try CommandRun(tool: "/usr/bin/setpriv", nobody + command + ["--name", name])
        #expect(named.status == 1, "\(named.errors)")
        #expect(named.errors.split(separator: "\n").count { $0.contains("process \(own.pid): ") } == 1)
        let setpriv = URL(filePath: "/usr/bin/setpriv")
        let started = nobody + [TargetProcess.executable.path, "protected"]
        let hidden = try TargetProcess(arguments: started, executable: setpriv)
        let refused = try CommandRun(tool: "/usr/bin/setpriv", nobody + command + ["\(hidden.processID)"])
        #expect(refused.status == 1, "\(refused.errors)")
        #expect(refused.errors.contains(": the process has or had privileges "), "\(refused.errors)")
        #expect(refused.errors.split(separator: "\n").count == 1)
    }

    @Test(
        "Where reports may not be written, it says so, and how to name another place",
        .enabled(
            if: getuid() == 0 && FileManager.default.isExecutableFile(atPath: "/usr/bin/setpriv"),
            "needs root and setpriv"
        )
    )
    func noPermission() throws {
        try FileManager.default.createDirectory(
            atPath: fixture.path,
            withIntermediateDirectories: false,
            attributes: [.posixPermissions: 0o700]
        )
        let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"]
        for path in [fixture.path, fixture.path + "/below"] {
            let command = [CommandRun.executable.path, "watch", "--reports", path, "--", "/bin/true"]
            let run = try CommandRun(tool: "/usr/bin/setpriv", nobody + command)
            #expect(run.status == 1 && run.errors.split(separator: "\n").count == 1, "\(run.errors)")
            #expect(run.errors.contains(": reports may not be written there: Permission denied; "), "\(run.errors)")
            #expect(run.errors.contains("give another one with --reports"), "\(run.errors)")
        }
    }

    @Test("A command that ends at once is no failure, and is told without the kernel's terms")
    func endsAtOnce() throws {
        let run = try watch("--", "/bin/true")
        #expect(run.status == 0 && !run.errors.contains("zombie") && !run.errors.contains("exit code"), "\(run.errors)")
        let isWatched = run.errors.contains("watching process")
        #expect(isWatched || run.errors.contains("/bin/true ended before it could be watched"), "\(run.errors)")
    }

    @Test("A process without a loop is watched; the output says what its threads are doing")
    func noLoop() throws {
        let target = try TargetProcess("threads", "3")
        let watch = try WatchRunning(["\(target.processID)", "--threshold", "50ms"], directory: fixture.path)
        try watch.waitForNote("no event loop was found")
        #expect(watch.notes.last?.hasSuffix("pause (4)") == true, "\(watch.notes)")
        #expect(try watch.finish().isEmpty)
    }

    @Test(
        "A main thread that polls like a client, as GLib with a timer, is judged if the user says that it has a loop",
        .repeatedWhenLate(by: .milliseconds(40))
    )
    func mainLoop() throws {
        let target = try LoopTarget("timed")
        let arguments = ["\(target.pid)", "--threshold", "50ms"]
        let doubtful = try WatchRunning(arguments, directory: fixture.path)
        // At first it may not have been seen polling often enough; it is said again then.
        try doubtful.waitForNote("; if the main thread runs an event loop")
        // It wakes ten times a second: just then it may have waited for a processor, which counts as running.
        #expect(
            doubtful.notes.last?.contains(/no event loop was found .*: (poll|running); if the main thread runs/)
                == true,
            "\(doubtful.notes)"
        )
        #expect(doubtful.notes.last?.hasSuffix("--main-loop judges it") == true)
        #expect(try doubtful.finish().isEmpty)
        let watch = try WatchRunning(arguments + ["--main-loop"], directory: fixture.path)
        try watch.waitForLoops(1)
        _ = try target.stall("sleep 600")
        #expect(try watch.finish().contains { $0.durationNs > 300_000_000 })
    }

    @Test("Threads that take turns at one epoll set have no loop, whenever they come; that is said once")
    func shared() throws {
        let python = URL(filePath: try #require(Python.asyncio, "there is no Python"))
        let target = try RunningCommand("-u", "-c", Self.sharedSets, executable: python)
        #expect(try target.line() == "READY")
        let watch = try WatchRunning(["\(target.pid)"], directory: fixture.path)
        try watch.waitForNote("2 threads of process \(target.pid) take turns at descriptor")
        try target.send("third\n")
        let (third, own) = (try #require(try target.line()), try #require(try target.line()))
        try watch.waitForNote("found a loop of process \(target.pid): thread \(own) ")
        _ = try watch.finish()
        #expect(!watch.notes.contains { $0.contains("thread \(third) ") }, "\(watch.notes)")
        #expect(watch.notes.count { $0.contains("take turns") } == 1)
    }

    /// Two threads that wait for one set. At the first line a third one comes, and later a thread with a set of its own. The numbers of these
    /// two are printed.
    private static let sharedSets = """
        import select, sys, threading, time
        def serve(events):
            while True: events.poll(0.02)
        def start(events):
            thread = threading.Thread(target=serve, args=(events,), daemon=True)
            thread.start()
            return thread.native_id
        common = select.epoll()
        for _ in range(2): start(common)
        print("READY")
        sys.stdin.readline()
        print(start(common))
        time.sleep(5)
        print(start(select.epoll()))
        sys.stdin.readline()
        """

    @Test(
        "Of threads that took turns at one io_uring and have ended, no file stays open",
        .enabled(if: hasRings, "the kernel, or a container's filter of system calls, has no io_uring for us")
    )
    func endedSharers() throws {
        let python = URL(filePath: try #require(Python.asyncio, "there is no Python"))
        let target = try RunningCommand("-u", "-c", Self.sharedRing, executable: python)
        let threads = try #require(try target.line()).split(separator: " ")
        let watch = try WatchRunning(["\(target.pid)"], directory: fixture.path)
        try watch.waitForNote("2 threads of process \(target.pid) take turns at")
        #expect(threads.allSatisfy { watch.hasFile(ofThread: $0) })
        try target.send("end\n")
        waitUntil { !threads.contains { watch.hasFile(ofThread: $0) } }
        #expect(!threads.contains { watch.hasFile(ofThread: $0) })
        _ = try watch.finish()
    }

    /// io_uring_setup(2) with the bytes of its parameters.
    private static let ring = """
        import ctypes, sys, threading
        system = ctypes.CDLL(None).syscall
        ring = system(425, 2, (ctypes.c_uint32 * 30)())

        """

    private static let hasRings =
        (try? CommandRun(tool: Python.asyncio ?? "", ["-c", ring + "sys.exit(ring < 0)"]))?.status == 0

    /// Two threads that wait for completions of one ring until a line comes. Prints their numbers.
    private static let sharedRing = """
        \(ring)
        ENTER, GET_EVENTS, EXTENDED = 426, 1, 8
        time = (ctypes.c_int64 * 2)(0, 20_000_000)
        wait = (ctypes.c_uint64 * 3)(0, 0, ctypes.addressof(time))
        over = threading.Event()
        def serve():
            while not over.is_set(): system(ENTER, ring, 0, 1, GET_EVENTS | EXTENDED, wait, 24)
        threads = [threading.Thread(target=serve) for _ in range(2)]
        for thread in threads: thread.start()
        print(*(thread.native_id for thread in threads))
        sys.stdin.readline()
        over.set()
        sys.stdin.readline()
        """

    @Test("If all breakpoints of a loop's thread are in use, the output says so", .needsBreakpoints)
    func takenBreakpoints() throws {
        let target = try LoopTarget()
        defer { target.send(SIGKILL) }
        var taken: [Breakpoint] = []
        while taken.count < 64, let next = Breakpoint(onThread: target.pid, atAny: UInt64(taken.count + 1) << 12) {
            taken.append(next)
        }
        let watch = try WatchRunning(["\(target.pid)", "--threshold", "50ms"], directory: fixture.path)
        try watch.waitForLoops(1)
        // Until it is killed: on a busy machine the command may look late.
        try target.tell("compute 600000")
        try watch.waitForNote("no hardware breakpoint could be set there")
        _ = try watch.finish()
        withExtendedLifetime(taken) {}
    }

    @Test("Of a process whose loop has ended it is not said that none was found")
    func endedLoop() throws {
        let (target, other) = (try LoopTarget(), try TargetProcess("threads", "1"))
        let processes = ["\(target.pid)", "\(other.processID)"]
        let watch = try WatchRunning(processes + ["--threshold", "50ms"], directory: fixture.path)
        try watch.waitForLoops(1)
        try target.tell("leave 60000")
        try watch.waitForNote("no event loop was found in process \(other.processID) ")
        _ = try watch.finish()
        #expect(!watch.notes.contains { $0.contains("no event loop was found in process \(target.pid) ") })
    }

    @Test("If a process without a loop has a child, the output says how to watch that")
    func childWithoutFollow() throws {
        // The child ends once its parent has been killed, even if nobody has waited for that yet.
        // It is there before its parent has announced itself, however late that runs on.
        let script = "(while grep -q ') [^Z]' /proc/$$/stat; do sleep 0.1; done) & echo started; wait"
        let target = try TargetProcess(arguments: ["-c", script], executable: URL(filePath: "/bin/sh"))
        let watch = try WatchRunning(["\(target.processID)", "--threshold", "50ms"], directory: fixture.path)
        try watch.waitForNote("no event loop was found")
        #expect(watch.notes.last?.hasSuffix("; --follow also watches its 1 child process") == true, "\(watch.notes)")
        #expect(try watch.finish().isEmpty)
    }
}

extension WatchRunning {
    /// Whether the command has a file of this thread open.
    fileprivate func hasFile(ofThread number: Substring) -> Bool {
        let (folder, files) = ("/proc/\(pid)/fd", FileManager.default)
        return ((try? files.contentsOfDirectory(atPath: folder)) ?? []).contains { name in
            let link = try? files.destinationOfSymbolicLink(atPath: "\(folder)/\(name)")
            return link?.contains("/task/\(number)/") == true
        }
    }
}
