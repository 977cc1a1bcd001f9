import Foundation
import Glibc
import StallReports
import TestSupport
import Testing

@Suite("watch", .serialized, .timeLimit(.minutes(60)))
struct WatchCommandTests {
    private let fixture: ReportsFixture

    init() throws { fixture = try ReportsFixture() }

    private func watch(_ arguments: String...) throws -> WatchRunning {
        try WatchRunning(arguments, directory: fixture.path)
    }

    /// A loop, and the command after it has found it.
    private func watchedLoop() throws -> (LoopTarget, WatchRunning) {
        let target = try LoopTarget()
        let watch = try watch("\(target.pid)")
        try watch.waitForLoops(1)
        return (target, watch)
    }

    /// A stall and what the report of it must say.
    private struct Act: Sendable {
        var order: String
        var kind: StallKind?
        var culprit = ""
        /// Reported without breakpoints, too.
        var isOneCall = false
        var waits = true

        static let all: [Act] = [
            Act(order: "compute 350", kind: .blocked, culprit: "compute_until", waits: false),
            Act(order: "compute 150"),
            Act(order: "sleep 350", kind: .blocked, culprit: "sleep_until", isOneCall: true),
            Act(order: "sleep 150"),
            Act(order: "call read_pipe 350", kind: .blocked, culprit: "call_read_pipe", isOneCall: true),
            Act(order: "call sem_wait 350", kind: .blocked, culprit: "call_sem_wait", isOneCall: true),
            Act(order: "short 350", kind: .blocked, culprit: "sleep_shortly_until"),
            Act(order: "nested 350", kind: .blocked, culprit: "turn_inner_loop_until"),
            Act(order: "poll0 350", kind: .blocked, culprit: "poll_without_waiting_until", waits: false),
            Act(order: "turn 400", kind: .congested, culprit: "run_callback", waits: false),
            Act(order: "turns 400"),
            Act(order: "spin 400"),
            // From here on the C library waits with another instruction, at which the loop has never been seen.
            Act(order: "urged 600"),
        ]
    }

    /// Between two of them the loop rests long enough to be seen resting.
    private func play(_ acts: [Act], _ target: LoopTarget) throws -> [(act: Act, done: LoopTarget.Done)] {
        try acts.map { act in
            let done = try target.stall(act.order)
            usleep(110_000)
            return (act, done)
        }
    }

    @Test(
        "SIGTERM, SIGHUP and SIGQUIT end it in order; after SIGTERM a supervisor sees exit code 0",
        arguments: [(SIGTERM, 0), (SIGHUP, 128 + SIGHUP), (SIGQUIT, 128 + SIGQUIT)] as [(Int32, Int32)]
    )
    func terminated(_ signal: Int32, _ status: Int32) throws {
        let target = try LoopTarget()
        let watch = try watch("\(target.pid)")
        try watch.waitForLoops(1)
        watch.send(signal)
        #expect(try watch.status() == status)
        #expect(watch.notes.last?.contains("watched 1 loop of 1 process") == true, "\(watch.notes)")
    }

    @Test(
        "A stall that is over when the command is told to end is over in its report",
        .needsBreakpoints,
        .repeatedWhenLate(by: .milliseconds(40))
    )
    func overAtLast() throws {
        let (target, watch) = try watchedLoop()
        try target.tell("sleep 600")
        #expect(try watch.line()?.contains("ongoing") == true)
        _ = try target.answer()
        // In another turn.
        _ = try target.counts()
        #expect(try watch.finish().map(\.state) == [.recovered])
    }

    @Test(
        "What a thread did after its stall, while the command itself did not run, is not the stall's cause",
        .needsBreakpoints,
        .repeatedWhenLate(by: .milliseconds(40))
    )
    func lateCounts() throws {
        let (target, watch) = try watchedLoop()
        try target.tell("sleep 600")
        #expect(try watch.line()?.contains("ongoing") == true)
        watch.send(SIGSTOP)
        _ = try target.answer()
        _ = try target.stall("turns 2000")
        watch.send(SIGCONT)
        let reports = try watch.finish()
        #expect(reports.map(\.state) == [.recovered] && reports.first?.waited == true, "\(reports.map(\.cause))")
    }

    @Test("With -q it prints no notes")
    func quiet() throws {
        let command = ["--reports", fixture.path, "--", "/bin/sleep", "1"]
        #expect(try CommandRun(arguments: ["watch", "-q"] + command).errors.isEmpty)
        #expect(try CommandRun(arguments: ["watch"] + command).errors.contains("watched 0 loops of 1 process"))
    }

    @Test(
        "Each way to stall is reported correctly, with its function, and nothing else is reported",
        .needsBreakpoints,
        .repeatedWhenLate(by: .milliseconds(40))
    )
    func kinds() throws {
        let (target, watch) = try watchedLoop()
        let played = try play(Act.all, target)
        #expect(try target.counts().cut == 0)
        // A wait that a signal stops returns early by itself: signal(7).
        target.send(SIGSTOP)
        usleep(400_000)
        target.send(SIGCONT)
        usleep(150_000)
        let reports = try watch.finish()
        let expected = played.filter { $0.act.kind != nil }
        try #require(reports.count == expected.count, "\(reports.map { $0.culprit?.function })")
        for (report, (act, done)) in zip(reports, expected) {
            #expect(
                report.kind == act.kind && report.state == .recovered,
                "\(act.order): \(report.kind) \(report.state)"
            )
            let functions = report.stacks.first?.frames.compactMap(\.function) ?? []
            #expect(functions.contains(act.culprit), "\(act.order): \(functions)")
            #expect(report.waited == act.waits, "\(act.order): \(report.cause.summary)")
            #expect(report.watched.type == .eventLoop && report.watched.label == "sample-target")
            #expect(report.process.pid == target.pid && report.watcher?.pid == watch.pid)
            // The true length is between the reported shortest and longest.
            let longest = (report.durationMaxNs ?? report.durationNs) + (report.excludedNs ?? 0)
            #expect(
                done.nanoseconds <= longest + 1_000_000,
                "\(act.order): \(report.durationNs) \(report.durationMaxNs ?? 0) \(report.excludedNs ?? 0)"
            )
            #expect((report.durationMinNs ?? report.durationNs) <= done.nanoseconds + 20_000_000, "\(act.order)")
        }
    }

    @Test("Once a process cannot be read, one note says that it is not watched, and its stall is not reported as over")
    func unreadable() throws {
        let target = try LoopTarget(executable: withoutPrivilege(TargetProcess.executable))
        let watch = try WatchRunning(
            ["\(target.pid)"],
            directory: fixture.path,
            executable: withoutPrivilege(CommandRun.executable)
        )
        try watch.waitForLoops(1)
        try target.tell("hide")
        try target.tell("sleep 600000")
        #expect(try watch.line()?.contains("ongoing") == true)
        target.send(SIGUSR1)
        try watch.waitForNote("can no longer be watched")
        let reports = try watch.finish()
        target.send(SIGKILL)
        #expect(reports.map(\.state) == [.abandoned])
        #expect(watch.notes.count { $0.contains("can no longer be watched") } == 1)
    }

    /// A script that runs the program, as root without the right to read every process.
    private func withoutPrivilege(_ program: URL) throws -> URL {
        let script = URL(filePath: "\(fixture.path)-\(program.lastPathComponent)")
        let command = (geteuid() == 0 ? "setpriv --bounding-set=-sys_ptrace " : "") + "'\(program.path)' \"$@\""
        try "#!/bin/sh\nexec \(command)\n".write(to: script, atomically: true, encoding: .utf8)
        try FileManager.default.setAttributes([.posixPermissions: 0o700], ofItemAtPath: script.path)
        return script
    }

    @Test(
        "Without breakpoints only uninterrupted calls are reported; one note says that the rest is unproven",
        .repeatedWhenLate(by: .milliseconds(40))
    )
    func withoutBreakpoints() throws {
        let target = try LoopTarget()
        let watch = try watch("\(target.pid)", "--no-breakpoints")
        try watch.waitForLoops(1)
        let played = try play([Act.all[0], Act.all[2], Act.all[4], Act.all[6], Act.all[9]], target)
        let reports = try watch.finish()
        let expected = played.filter(\.act.isOneCall)
        #expect(reports.map(\.kind) == expected.map(\.act.kind))
        for (report, (act, _)) in zip(reports, expected) {
            let functions = report.stacks.first?.frames.compactMap(\.function) ?? []
            #expect(functions.contains(act.culprit), "\(act.order): \(functions)")
        }
        #expect(watch.notes.count { $0.contains("it is unknown whether its loop turns") } == 1)
    }

    @Test(
        "Long turns one after the other, none of which is a stall by itself, are one report with their number",
        .needsBreakpoints,
        .repeatedWhenLate(by: .milliseconds(40))
    )
    func repeated() throws {
        let (target, watch) = try watchedLoop()
        for order in ["turns 600", "long 250"] {
            _ = try target.stall(order)
            usleep(400_000)
        }
        let done = try target.stall("long 1800")
        usleep(400_000)
        let reports = try watch.finish()
        try #require(reports.count == 1, "\(reports.map(\.kind))")
        let report = reports[0]
        #expect(report.kind == .repeated && report.state == .recovered && report.watched.type == .eventLoop)
        let turns = try #require(report.busy)
        #expect((5...12).contains(turns.turns) && turns.longestNs <= 250_000_000, "\(turns)")
        #expect(report.stacks.contains { $0.frames.contains { $0.function == "compute_until" } })
        // What is told as the longest holds the truth, as far as it is one row: the last turn may be too short to be one of it.
        #expect(report.durationNs <= done.nanoseconds + 100_000_000, "\(report.durationNs) of \(done.nanoseconds)")
    }

    @Test(
        "The same fault again and again is one report; its other stalls are counted",
        .repeatedWhenLate(by: .milliseconds(40))
    )
    func counted() throws {
        let (target, watch) = try watchedLoop()
        for _ in 0..<4 {
            _ = try target.stall("sleep 350")
            usleep(110_000)
        }
        let reports = try watch.finish()
        #expect(reports.count == 1 && reports[0].kind == .blocked)
        #expect(watch.notes.contains { $0.contains("1 stall, 3 more of known faults only counted") }, "\(watch.notes)")
        let counted = try watch.runs().flatMap { $0.repeated ?? [] }
        #expect(counted.map(\.repeats.count) == [3] && counted.map(\.fingerprint) == reports.map(\.fingerprint))
        #expect(counted.map(\.type) == [.eventLoop])
    }

    @Test(
        "asyncio's loop, with no preparation in the program",
        .enabled(if: Python.asyncio != nil, "this machine has no Python"),
        .needsBreakpoints,
        .repeatedWhenLate(by: .milliseconds(40))
    )
    func asyncio() throws {
        let python = try RunningCommand("-c", Python.program, executable: URL(filePath: try #require(Python.asyncio)))
        #expect(try python.line() == "READY")
        let watch = try watch("\(python.pid)")
        try watch.waitForLoops(1)
        for order in ["compute 450", "sleep 450", "compute 100"] {
            try python.send(order + "\n")
            #expect(try python.line() == "DID \(order.split(separator: " ")[0])")
            usleep(150_000)
        }
        let reports = try watch.finish()
        #expect(reports.map(\.kind) == [.blocked, .blocked])
        #expect(reports.map(\.waited) == [false, true])
    }

    @Test(
        "it exits with the command's own exit status",
        arguments: [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("exec false", 1)]
    )
    func status(_ script: String, _ expected: Int32) throws {
        let run = try CommandRun("watch", "--reports", fixture.path, "--", "/bin/sh", "-c", script)
        #expect(run.status == expected, "\(run.errors)")
        #expect(run.output == "")
    }

    @Test("With --follow a daemon that the command leaves is watched; the exit status is the command's")
    func daemon() throws {
        // The daemon's parent, a subshell, ends at once.
        let script = "(setsid sleep 600 >/dev/null 2>&1 & echo $!); exit 7"
        let watch = try watch("--follow", "--", "/bin/sh", "-c", script)
        let daemon = try #require(try watch.line().flatMap { Int32($0) })
        try watch.waitForNote("watching process \(daemon) ")
        try watch.waitForNote("the command has ended")
        kill(daemon, SIGKILL)
        #expect(try watch.status() == 7)
        #expect(watch.notes.contains { $0.hasPrefix("stall-monitor: process \(daemon) ") }, "\(watch.notes)")
        let other = try WatchRunning(["--", "/bin/sh", "-c", script], directory: fixture.path)
        let unwatched = try #require(try other.line().flatMap { Int32($0) })
        // Without --follow it ends with the command. Foundation would wait for the daemon, too, which has inherited a socket from it.
        try other.readNotes()
        #expect(kill(unwatched, SIGKILL) == 0)
        #expect(try other.status() == 7)
    }

    @Test("With --follow, too, SIGTERM ends it with the command, whatever that leaves")
    func endWithDaemon() throws {
        let script = "trap 'exit 7' TERM; (setsid sleep 600 >/dev/null 2>&1 & echo $!); while :; do sleep 0.1; done"
        let watch = try watch("--follow", "--", "/bin/sh", "-c", script)
        let daemon = try #require(try watch.line().flatMap { Int32($0) })
        watch.send(SIGTERM)
        try watch.readNotes()
        #expect(kill(daemon, SIGKILL) == 0)
        #expect(try watch.status() == 7)
    }

    @Test("With --follow, a child that is older than the command is neither watched nor awaited")
    func formerChild() throws {
        let script = "sleep 600 >/dev/null 2>&1 & echo $!; exec \"$@\""
        let watch = [CommandRun.executable.path, "watch", "--reports", fixture.path, "--follow"]
        let running = try RunningCommand(
            arguments: ["-c", script, "sh"] + watch + ["--", "/bin/sh", "-c", "exit 7"],
            executable: URL(fileURLWithPath: "/bin/sh")
        )
        let child = try #require(try running.line().flatMap { Int32($0) })
        while let line = try running.errorLine() { #expect(!line.contains("watching process \(child) ")) }
        #expect(kill(child, SIGKILL) == 0)
        #expect(running.status() == 7)
    }

    @Test(
        "it passes signals on to the command, whose input and output stay its own",
        .repeatedWhenLate(by: .milliseconds(40))
    )
    func command() throws {
        let watch = try watch("--", TargetProcess.executable.path, "loop")
        #expect(try watch.line() == "READY")
        try watch.waitForLoops(1)
        try watch.send("sleep 400\n")
        #expect(try watch.line()?.hasPrefix("DID sleep") == true)
        watch.send(SIGHUP)
        #expect(try watch.status() == 128 + SIGHUP)
        #expect(try watch.reports().count == 1)
    }

    @Test("SIGQUIT is passed on to the command, which may go on: the command's status decides")
    func quit() throws {
        let script =
            "trap 'echo STACKS; exit 7' QUIT; echo READY; n=0; while [ $n -lt 600 ]; do n=$((n + 1)); sleep 0.1; done"
        let watch = try watch("--", "/bin/sh", "-c", script)
        #expect(try watch.line() == "READY")
        watch.send(SIGQUIT)
        #expect(try watch.line() == "STACKS")
        #expect(try watch.status() == 7)
    }

    @Test("A missing program gives one line and no report")
    func missingCommand() throws {
        let run = try CommandRun("watch", "--reports", fixture.path, "--", "/no/such/program")
        #expect(run.status == 1 && run.errors.split(separator: "\n").count == 1, "\(run.errors)")
    }

    @Test(
        "exec: it watches the new program and ends with it; a stall that the process dies in is 'terminated'",
        .repeatedWhenLate(by: .milliseconds(40))
    )
    func exec() throws {
        let (target, watch) = try watchedLoop()
        // Computes for longer than the threshold before it has a loop: that does not belong to the old program.
        try target.tell("exec 600")
        #expect(try target.answer() == ["READY"])
        try watch.waitForNote("runs another program")
        try watch.waitForLoops(2)
        _ = try target.stall("call read_pipe 350")
        // Else it could be taken for the stall that is waited for below, while it is still ongoing.
        try watch.waitForReport { $0.state == .recovered }
        // Another fault: a repetition of the same would only be counted.
        try target.tell("sleep 600000")
        try watch.waitForReport { $0.state != .recovered }
        target.send(SIGKILL)
        #expect(try watch.status() == 0)
        #expect(watch.notes.contains { $0.contains("has ended") })
        let reports = try watch.reports()
        #expect(reports.map(\.state) == [.recovered, .terminated], "\(watch.notes)")
    }

    @Test(
        "A loop that has closed its epoll set has ended: what its thread does after that is no stall",
        .repeatedWhenLate(by: .milliseconds(40))
    )
    func leftLoop() throws {
        let (target, watch) = try watchedLoop()
        _ = try target.stall("leave 600")
        #expect(try watch.finish().isEmpty)
    }

    @Test("--follow watches the children, too; without it they are not watched")
    func children() throws {
        for follows in [true, false] {
            let target = try LoopTarget()
            try target.tell("spawn")
            let child = try #require(Int32(try target.answer()[1]))
            let directory = "\(fixture.path)-\(follows)"
            let watch = try WatchRunning(["\(target.pid)"] + (follows ? ["--follow"] : []), directory: directory)
            try watch.waitForLoops(follows ? 2 : 1)
            if follows { try watch.waitForReport { $0.process.pid == child } }
            let reports = try watch.finish()
            #expect(reports.contains { $0.process.pid == child } == follows)
            #expect(watch.notes.contains { $0.contains("process \(child) ") } == follows)
            try? FileManager.default.removeItem(atPath: directory)
        }
    }

    @Test(
        "Waiting clients are counted when a stall is found; show and tail print them",
        .repeatedWhenLate(by: .milliseconds(40))
    )
    func victims() throws {
        let target = try LoopTarget()
        try target.tell("listen")
        let port = try #require(UInt16(try target.answer()[1]))
        let accepted = try (0..<3).map { _ in try Client(port) }
        for client in accepted { #expect(try client.ask("hello")) }
        let watch = try watch("\(target.pid)")
        try watch.waitForLoops(1)
        try target.tell("sleep 600")
        usleep(50_000)
        // Two existing connections send a request; five new ones arrive.
        for client in accepted.prefix(2) { client.send("hello?") }
        let waiting = try (0..<5).map { _ in try Client(port) }
        _ = try target.answer()
        usleep(150_000)
        let report = try #require(try watch.finish().first)
        let victims = try #require(report.victims)
        #expect(victims.unread == 2 && victims.unreadBytes == 12 && victims.unaccepted == 5 && victims.clients == 7)
        let text = "at least 7 clients waited: 2 connections with 12 bytes unread, 5 not accepted"
        #expect(try CommandRun("show", report.id.description, fixture.path).output.contains(text))
        #expect(try watch.line()?.contains("sleep_until") == true)
        #expect(try (0..<2).compactMap { _ in try watch.line() }.contains { $0.contains(text) })
        withExtendedLifetime(waiting) {}
    }

    @Test(
        "The waiting clients of a polling loop are counted: at its sockets and in an epoll set among them",
        .repeatedWhenLate(by: .milliseconds(40))
    )
    func victimsOfPoll() throws {
        let target = try LoopTarget("polling")
        try target.tell("listen")
        let port = try #require(UInt16(try target.answer()[1]))
        let accepted = try (0..<2).map { _ in try Client(port) }
        for client in accepted { #expect(try client.ask("hello")) }
        let watch = try watch("\(target.pid)")
        try watch.waitForLoops(1)
        // Since then it has waited for the listener.
        _ = try target.counts()
        usleep(110_000)
        try target.tell("sleep 600")
        usleep(50_000)
        accepted[0].send("hello?")
        let waiting = try (0..<3).map { _ in try Client(port) }
        _ = try target.answer()
        usleep(150_000)
        let report = try #require(try watch.finish().first)
        let victims = try #require(report.victims)
        #expect(victims.unread == 1 && victims.unaccepted == 3 && victims.clients == 4, "\(victims)")
        withExtendedLifetime(waiting) {}
    }

    @Test(
        "A report of a mutex wait names the owner and its place",
        .repeatedWhenLate(by: .milliseconds(40))
    )
    func lockOwner() throws {
        let (target, watch) = try watchedLoop()
        _ = try target.stall("lock 500")
        usleep(150_000)
        let report = try #require(try watch.finish().first)
        let lock = try #require(report.cause.lock, "\(report.cause)")
        #expect(lock.kind == .mutex && lock.owner?.name == "holder" && lock.knownBy == .mutexOwner, "\(lock)")
        let owner = try #require(report.stacks.first { $0.role == .lockOwner })
        #expect(owner.thread.id == lock.owner?.id && owner.thread.id != target.pid)
        #expect(owner.frames.contains { $0.function == "hold_lock" }, "\(owner.frames)")
        #expect(report.culprit?.function == "wait_for_lock_until", "\(report.culprit as Any)")
    }

    @Test(
        "Generated code has the name from its perf map, in watch and in sample",
        .repeatedWhenLate(by: .milliseconds(40))
    )
    func madeCode() throws {
        let target = try LoopTarget()
        defer { _ = unsafe unlink("/tmp/perf-\(target.pid).map") }
        let watch = try watch("\(target.pid)")
        try watch.waitForLoops(1)
        // Long enough for the command to begin on a busy machine.
        try target.tell("made 2000")
        usleep(100_000)
        let sample = try CommandRun("sample", "\(target.pid)")
        _ = try target.answer()
        usleep(150_000)
        let report = try #require(try watch.finish().first)
        let frames = report.stacks.first?.frames ?? []
        #expect(frames.contains { $0.function == "JS:made at run time" && $0.own && $0.module == nil }, "\(frames)")
        #expect(sample.output.contains("JS:made at run time"), "\(sample.output)")
    }

    @Test(
        "--name finds processes by their own name and by their program's file",
        .repeatedWhenLate(by: .milliseconds(40))
    )
    func names() throws {
        let name = "named-\(UUID().uuidString.prefix(8))"
        let program = URL(filePath: NSTemporaryDirectory()).appending(path: name + "-by-its-file")
        try FileManager.default.copyItem(at: TargetProcess.executable, to: program)
        defer { try? FileManager.default.removeItem(at: program) }
        let (named, other) = (try LoopTarget(executable: program), try LoopTarget())
        // The kernel keeps 15 bytes of the name: the rest is only in the file's name.
        for pattern in [String(name.prefix(15)) + "*", name + "-by-its-*"] {
            let watch = try WatchRunning(["--name", pattern], directory: "\(fixture.path)-\(pattern.count)")
            try watch.waitForLoops(1)
            _ = try named.stall("call read_pipe 350")
            usleep(110_000)
            #expect(try watch.finish().map(\.process.pid) == [named.pid])
            #expect(!watch.notes.contains { $0.contains("process \(other.pid) ") }, "\(watch.notes)")
            try? FileManager.default.removeItem(atPath: watch.directory)
        }
    }

    @Test("Of an interpreter that does not write the names of its script's functions it says which options do that")
    func namelessScript() throws {
        let folder = URL(filePath: NSTemporaryDirectory()).appending(path: UUID().uuidString)
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let program = folder.appending(path: "node")
        try FileManager.default.copyItem(at: TargetProcess.executable, to: program)
        let target = try LoopTarget(executable: program)
        let watch = try watch("\(target.pid)")
        try watch.waitForLoops(1)
        try watch.waitForNote("start it with --perf-basic-prof --interpreted-frames-native-stack")
        #expect(try watch.finish().isEmpty)
    }

    @Test("When a loop is found, threads that may run one but cannot be judged are named")
    func unjudged() throws {
        let target = try LoopTarget()
        _ = try target.stall("urged 50")
        let watch = try watch("\(target.pid)")
        try watch.waitForLoops(1)
        try watch.waitForNote("not judged")
        #expect(watch.notes.last?.contains(": poller (poll)") == true, "\(watch.notes)")
        #expect(try watch.finish().isEmpty)
    }

    @Test(
        "A control group frozen during a callout is not a stall",
        .enabled(if: Freezer.isThere, "no control group can be made here that freezes"),
        .needsBreakpoints,
        .repeatedWhenLate(by: .milliseconds(40))
    )
    func frozen() throws {
        let target = try LoopTarget()
        let freezer = try Freezer(of: target.pid)
        defer { freezer.remove() }
        let watch = try watch("\(target.pid)")
        try watch.waitForLoops(1)
        for order in ["compute", "sleep"] {
            try target.tell("\(order) 900")
            usleep(50_000)
            freezer.freeze(true)
            usleep(800_000)
            freezer.freeze(false)
            _ = try target.answer()
            usleep(150_000)
        }
        // It is being watched.
        _ = try target.stall("call read_pipe 350")
        usleep(110_000)
        target.send(SIGKILL)
        _ = try watch.status()
        let functions = try watch.reports().map { $0.culprit?.function }
        #expect(functions == ["call_read_pipe"])
    }

    @Test(
        "Several loops of several processes are judged independently",
        .needsBreakpoints,
        .repeatedWhenLate(by: .milliseconds(40))
    )
    func several() throws {
        let targets = try (0..<4).map { _ in try LoopTarget() }
        let watch = try WatchRunning(targets.map { "\($0.pid)" }, directory: fixture.path)
        try watch.waitForLoops(4)
        try targets[1].tell("sleep 500")
        try targets[3].tell("compute 500")
        _ = try (targets[1].answer(), targets[3].answer())
        usleep(150_000)
        let reports = try watch.finish()
        #expect(Set(reports.map(\.process.pid)) == [targets[1].pid, targets[3].pid] && reports.count == 2)
    }
}

/// A client of a server on this machine.
private final class Client {
    private let socket = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)

    init(_ port: UInt16) throws {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        let result = unsafe withUnsafePointer(to: &address) { address in
            unsafe address.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe connect(socket, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        try #require(result == 0)
    }

    deinit { close(socket) }

    func send(_ text: String) { #expect(unsafe Glibc.write(socket, text, text.utf8.count) == text.utf8.count) }

    /// Whether it gets an answer.
    func ask(_ text: String) throws -> Bool {
        send(text)
        var bytes = [UInt8](repeating: 0, count: 64)
        let count = unsafe bytes.withUnsafeMutableBytes { unsafe read(socket, $0.baseAddress, $0.count) }
        return count == text.utf8.count
    }
}

extension StallReport {
    /// Whether the verdict says that the thread waited: two verdicts do.
    fileprivate var waited: Bool { ["waiting", "blocked"].contains(cause.verdict.rawValue) }
}

extension WatchRunning {
    /// Waits up to two minutes for a report.
    func waitForReport(where condition: (StallReport) -> Bool) throws {
        for _ in 0..<2400 {
            if try reports().contains(where: condition) { return }
            usleep(50_000)
        }
        Issue.record("there is no such report: \(notes)")
    }
}
