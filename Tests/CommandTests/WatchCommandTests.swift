import Foundation
import Glibc
import RunLoopKit
import StallReports
import TestSupport
import Testing

@Suite("watch", .serialized, .timeLimit(.minutes(60)))
struct WatchCommandTests {
    let fixture: ReportsFixture

    init() throws { fixture = try ReportsFixture(inMemory: true) }

    func watch(_ arguments: String...) throws -> WatchRunning {
        try WatchRunning(arguments, directory: fixture.path)
    }

    /// A loop, and the command after it has found it.
    func watchedLoop() throws -> (LoopTarget, WatchRunning) {
        let target = try LoopTarget()
        let watch = try watch("\(target.pid)")
        try watch.waitForLoops(1)
        target.watcher = watch.pid
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
        .repeatedWhenLate(by: .milliseconds(40)),
        arguments: [SIGSTOP, SIGTSTP]
    )
    func lateCounts(_ signal: Int32) throws {
        let (target, watch) = try watchedLoop()
        try target.tell("sleep 600")
        #expect(try watch.line()?.contains("ongoing") == true)
        watch.send(signal)
        waitUntil { statusField("State", of: watch.pid).hasPrefix("T") }
        _ = try target.answer()
        _ = try target.stall("turns 2000")
        watch.send(SIGCONT)
        let reports = try watch.finish()
        #expect(reports.map(\.state) == [.recovered] && reports.first?.waited == true, "\(reports.map(\.cause))")
    }

    @Test("With -q it prints no notes")
    func quiet() throws {
        func notes(_ options: String...) throws -> String {
            func run(_ seconds: String) throws -> String {
                let command = ["--reports", fixture.path, "--", "/bin/sleep", seconds]
                return try CommandRun(arguments: ["watch"] + options + command).errors
            }
            var notes = try run("1")
            // Of a command that has ended before it could be watched it is told in any case.
            for seconds in ["10", "60"] where notes.contains("ended before it could be watched") {
                notes = try run(seconds)
            }
            return notes
        }
        #expect(try notes("-q").isEmpty)
        #expect(try notes().contains("watched 0 loops of 1 process"))
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
        var lines: [String] = []
        while let line = try watch.line() { lines.append(line) }
        // One at the first of them, and one when the count has doubled.
        let repeated = lines.filter { $0.contains("  repeated  ") }
        #expect(repeated.count == 2 && repeated.last?.contains("  ×2  ") == true, "\(lines)")
        #expect(!repeated.contains { $0.contains("v2:") }, "not the fingerprint, but the culprit: \(repeated)")
        let counted = try watch.runs().flatMap { $0.repeated ?? [] }
        #expect(counted.map(\.repeats.count) == [3] && counted.map(\.fingerprint) == reports.map(\.fingerprint))
        #expect(counted.map(\.type) == [.eventLoop])
        #expect(try watch.runs().flatMap(\.watched).map(\.service) == [reports[0].service?.name])
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
        target.watcher = watch.pid
        try watch.waitForLoops(1)
        for order in ["compute", "sleep"] {
            let told = MonotonicInstant.now
            try target.tell("\(order) 900")
            usleep(50_000)
            freezer.freeze(true)
            // If it is frozen late, or before the stall has begun, what it does before or after that is a stall of its own.
            LatenessWitness.note(told.duration(to: .now) - .milliseconds(50))
            usleep(800_000)
            freezer.freeze(false)
            let begin = try #require(UInt64(try target.answer()[2]))
            LatenessWitness.note(told.duration(to: MonotonicInstant(nanoseconds: begin)))
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

extension StallReport {
    /// Whether the verdict says that the thread waited: two verdicts do.
    var waited: Bool { ["waiting", "blocked"].contains(cause.verdict.rawValue) }
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
