import Foundation
import Glibc
import StallReports
import TestSupport
import Testing

/// A command that 'watch' starts, and its children.
extension WatchCommandTests {
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

    @Test(
        "A command that cannot be run gives one line and the exit status of shells",
        arguments: zip(["/no/such/program", "no-such-program", "/", "/dev/null"], [127, 127, 126, 126])
    )
    func cannotBeRun(command: String, status: Int32) throws {
        let run = try CommandRun("watch", "--reports", fixture.path, "--", command)
        #expect(run.status == status && run.output.isEmpty, "\(run)")
        #expect(run.errors.hasPrefix("stall-monitor: \(command): ") && run.errors.split(separator: "\n").count == 1)
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

    @Test("With --follow, more children than there are files for leave those that reports need")
    func manyChildren() throws {
        let python = URL(filePath: try #require(Python.asyncio, "there is no Python"))
        let server = try RunningCommand("-u", "-c", Self.forkingServer, executable: python)
        #expect(try server.line() == "READY")
        let watch = try WatchRunning(["\(server.pid)", "--follow"], directory: fixture.path)
        try watch.waitForNote("watching process \(server.pid) ")
        let limit = try CommandRun(tool: "/usr/bin/prlimit", ["--pid", "\(watch.pid)", "--nofile=200"])
        try #require(limit.status == 0, "\(limit.errors)")
        try server.send("fork\n")
        try watch.waitForNote("Too many open files")
        let open = try FileManager.default.contentsOfDirectory(atPath: "/proc/\(watch.pid)/fd").count
        #expect(open < 160)
        _ = try watch.finish()
        try server.send("end\n")
    }

    /// Starts sixty children at the first line.
    private static let forkingServer = """
        import subprocess, sys
        print("READY")
        sys.stdin.readline()
        children = [subprocess.Popen(["/usr/bin/sleep", "600"]) for _ in range(60)]
        sys.stdin.readline()
        for child in children: child.kill()
        """
}
