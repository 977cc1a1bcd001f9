import RunLoopKit
import Foundation
import Glibc
import StallReading
import StallReports
import Synchronization
import TestSupport
import Testing

@testable import StallMonitor

/// Real pauses of a separate process. Each busy time is far below the threshold, apart from the pause in it.
@Suite("A paused process", .timeLimit(.minutes(60)), .repeatedWhenLate(by: .milliseconds(50)))
struct PauseTests {
    /// 40 ticks are 2 s; a pause is longer.
    private static let ticks = 40
    private static let pause = Duration.seconds(3)

    /// What a pause must leave: no report, and an entry in the run record.
    private func expectPause(_ kind: PauseKind, of host: PauseHost, watch: String? = nil) async throws {
        if watch != nil { try host.send("release") }
        try await host.expect("released")
        try await host.stop()
        let reports = try host.contents().reports
        let run = try host.run()
        #expect(reports.isEmpty, "\(reports) \(run)")
        let pauses = run.pauseLog?.latest.filter { $0.kind == kind && $0.watch == watch } ?? []
        // The watchdog was due up to two ticks after the pause began.
        #expect(pauses.contains { $0.durationNs >= 2_800_000_000 }, "\(run)")
        #expect(run.pauses >= 1)
        #expect((run.dismissed?[kind.rawValue] ?? 0) >= 1, "\(run)")
    }

    @Test("stopped by SIGSTOP it is not stalled: the pause is recorded, and the candidate that it explains")
    func stopped() async throws {
        let host = try PauseHost(ticks: Self.ticks)
        try await host.expect("ready")
        try await host.stand(for: Self.pause) {
            host.signal(SIGSTOP)
        } until: {
            host.isStopped
        } _: {
            host.signal(SIGCONT)
        }
        try await expectPause(.stopped, of: host)
    }

    @Test("stopped during a stall it keeps its report, whose length excludes the pause")
    func stoppedInStall() async throws {
        let host = try PauseHost(ticks: 5)
        try await host.expect("ready")
        try host.send("block")
        try await host.expect("began")
        host.signal(SIGSTOP)
        try await host.until { host.isStopped }
        try await Task.sleep(for: Self.pause)
        host.signal(SIGCONT)
        try host.send("release")
        try await host.expect("ended")
        try await host.stop()

        let report = try #require(try host.contents().reports.first)
        #expect(report.state == .recovered)
        let excluded = try #require(report.excludedNs)
        let end = try #require(report.endedAt)
        #expect(excluded >= 2_800_000_000)
        #expect(end.nanoseconds(since: report.startedAt) == report.durationNs + excluded)
        #expect(report.durationMaxNs == report.durationNs + excluded && report.durationMinNs == report.durationNs)
        let evidence = try #require(report.cause.evidence)
        let (window, cpu, delay) = (try #require(evidence.windowNs), evidence.cpuNs ?? 0, evidence.runDelayNs ?? 0)
        // Without the pause the stall is short: on a busy machine most of it may be a wait for a processor, or what was seen of it so short
        // that the thread was mostly on a CPU, or its code may be read from the disk again. Then that is reported.
        let waited = window - cpu - delay
        let wait: Verdict = (evidence.sampled?.faulting ?? 0) > 50 ? .diskWait : .blocked
        let expected: Verdict = delay > max(cpu, waited) ? .starved : cpu >= waited ? .onCPU : wait
        #expect(report.cause.verdict == expected && window <= report.durationNs, "\(report.cause) \(report.durationNs)")
    }

    @Test("stopped for longer than the end of its monitor may take, it still ends the monitor and writes all")
    func stoppedInEnd() async throws {
        let host = try PauseHost(ticks: 5)
        try await host.expect("ready")
        try host.send("block")
        try await host.expect("began")
        try host.send("hold")
        try host.send("stop")
        try await host.expect("held")
        host.signal(SIGSTOP)
        try await host.until { host.isStopped }
        try await Task.sleep(for: EngineParts.endPatience + .seconds(1))
        let start = ContinuousClock.now
        host.signal(SIGCONT)
        // Whoever has waited for long enough would have given up before the handler returns.
        try await host.until { !host.isStopped }
        try await Task.sleep(for: .milliseconds(300))
        LatenessWitness.note(.now - start - .milliseconds(300))
        try host.send("go on")
        try await host.expect("let go")
        try await host.expect("stopped")
        let run = try host.run()
        #expect(run.state == .stopped && run.lostWrites == 0, "\(run)")
        #expect(try host.contents().reports.map(\.state) == [.abandoned])
    }

    @Test(
        "frozen in its control group (version 2) it is not stalled",
        .enabled(if: TestGroup.canBeMade(.unified), "no control group of version 2 with a freezer can be made here")
    )
    func frozen() async throws {
        let group = try #require(TestGroup(.unified))
        let host = try PauseHost(ticks: Self.ticks, in: group)
        try await host.expect("ready")
        try await host.stand(for: Self.pause) {
            group.write("1", to: "cgroup.freeze")
        } until: {
            group.read("cgroup.events").contains("frozen 1")
        } _: {
            group.write("0", to: "cgroup.freeze")
        }
        // Kernels before 6.18 do not count it.
        let isCounted = group.read("cgroup.stat.local").contains("frozen_usec")
        try await expectPause(isCounted ? .frozen : .stopped, of: host)
    }

    @Test(
        "frozen by the version 1 freezer it is not stalled",
        .enabled(if: TestGroup.canBeMade(.freezer), "no control group of version 1 with a freezer can be made here")
    )
    func frozenByVersion1() async throws {
        let group = try #require(TestGroup(.freezer))
        let host = try PauseHost(ticks: Self.ticks, in: group)
        try await host.expect("ready")
        try await host.stand(for: Self.pause) {
            group.write("FROZEN", to: "freezer.state")
        } until: {
            group.read("freezer.state").hasPrefix("FROZEN")
        } _: {
            group.write("THAWED", to: "freezer.state")
        }
        try await expectPause(.stopped, of: host)
    }

    @Test(
        "with one thread frozen it is not stalled: the watchdog, although on time, checks before it reports",
        .enabled(if: TestGroup.canBeMade(.freezer), "no control group of version 1 with a freezer can be made here")
    )
    func frozenThread() async throws {
        let group = try #require(TestGroup(.freezer))
        let host = try PauseHost(ticks: Self.ticks)
        try await host.expect("ready")
        group.write("FROZEN", to: "freezer.state")
        let start = ContinuousClock.now
        try host.send("block")
        let thread = try await host.expect("block")
        host.groups.withLock { $0.append(group) }
        try #require(group.write(thread, to: "tasks"))
        // The kernel may take seconds for that. Until then the thread is stalled and not frozen.
        LatenessWitness.note(.now - start)
        // The thread is checked at the threshold, 2 s, and at each look from then on.
        try await Task.sleep(for: Self.pause)
        group.write("THAWED", to: "freezer.state")
        try await expectPause(.frozen, of: host, watch: "worker")
    }

    @Test("with one thread traced it is not stalled")
    func tracedThread() async throws {
        let host = try PauseHost(ticks: Self.ticks)
        let tracer = try Tracer(thread: try await host.expect("ready"))
        let start = ContinuousClock.now
        try host.send("block")
        try await host.expect("block")
        try tracer.halt()
        LatenessWitness.note(.now - start)
        try await Task.sleep(for: Self.pause)
        tracer.end()
        try await expectPause(.traced, of: host, watch: "worker")
    }

    @Test(
        "under a debugger it is not stalled while attached, and is stalled afterwards",
        .enabled(if: Debugger.isThere, "gdb is not installed")
    )
    func debugged() async throws {
        let debugger = Debugger()
        let host = try PauseHost(ticks: 5)
        try await host.expect("ready")
        try debugger.attach(to: host.processID)
        // The debugger halts the process, lets it continue, and stays attached.
        try await host.until { host.tracer != 0 && host.state() == "S" }
        try host.send("block")
        try await host.expect("block")
        try await Task.sleep(for: .seconds(2))
        #expect(try host.contents().reports.isEmpty)
        debugger.end()
        try await host.expect("began")
        try host.send("release")
        try await host.expect("ended")
        try await host.stop()

        let report = try #require(try host.contents().reports.first)
        #expect((report.excludedNs ?? 0) >= 1_500_000_000)
        let run = try host.run()
        let pause = run.pauseLog?.latest.first { $0.kind == .traced && $0.watch == "worker" }
        #expect((pause?.durationNs ?? 0) >= 1_500_000_000, "\(run)")
    }

    @Test(
        "throttled by a CPU quota it is stalled, although the watchdog wakes late, too",
        .enabled(if: TestGroup.canBeMade(.cpu), "no control group of version 1 with a processor quota can be made here")
    )
    func throttled() async throws {
        let group = try #require(TestGroup(.cpu))
        // Long periods: each throttling is longer than the watchdog's tolerance.
        group.write("1000000", to: "cpu.cfs_period_us")
        // A process's limits are looked up when its monitor starts.
        group.write("2000000", to: "cpu.cfs_quota_us")
        // On one CPU: with two, the watchdog runs for a second on what the other CPU has left of the quota.
        let host = try PauseHost(ticks: 5, in: group, onOneProcessor: true)
        let machine = MachineGaps()
        try await host.expect("ready")
        group.write("200000", to: "cpu.cfs_quota_us")
        try host.send("spin")
        try await host.expect("spin")
        try await Task.sleep(for: .seconds(5))
        group.write("-1", to: "cpu.cfs_quota_us")
        // Not before: the quota leaves hardly any time for making a report.
        try await host.expect("began")
        try host.send("release")
        try await host.expect("ended")
        try await host.stop()

        let report = try #require(try host.contents().reports.first)
        let run = try host.run()
        let gaps = machine.end()
        #expect(run.lateTicks >= 1, "\(gaps) \(run)")
        // Nearly all of the time counts: the process was not stopped. A gap of the machine's own excludes the whole
        // time between two looks, at most one period.
        let stopped = run.pauseLog?.totals["stopped"]?.durationNs ?? 0
        #expect(stopped - gaps.length.nanoseconds < 500_000_000, "\(gaps) \(run)")
        #expect(report.durationNs >= 3_500_000_000 - gaps.count * 1_100_000_000, "\(gaps) \(report) \(run)")
    }

    private static let libfaketime = "/usr/lib/\(machine)-linux-gnu/faketime/libfaketimeMT.so.1"

    @Test(
        "A wall clock set during a stall tears no report, and the step is in the run record",
        .enabled(if: unsafe access(libfaketime, R_OK) == 0, "libfaketime is not installed")
    )
    func clockStep() async throws {
        let setting = TemporaryDirectory()
        let file = setting.path + "/time"
        try "+0".write(toFile: file, atomically: true, encoding: .utf8)
        let host = try PauseHost(
            ticks: 5,
            environment: [
                "LD_PRELOAD": Self.libfaketime, "FAKETIME_TIMESTAMP_FILE": file, "FAKETIME_NO_CACHE": "1",
                "DONT_FAKE_MONOTONIC": "1",
            ]
        )
        // The library names its shared memory by the process's number. The shell that becomes the host leaves it; a later process
        // with this number would end at its start.
        defer {
            for name in ["faketime_shm", "sem.faketime_sem"] { unsafe unlink("/dev/shm/\(name)_\(host.processID)") }
        }
        try await host.expect("ready")
        try host.send("block")
        try await host.expect("began")
        try "-3600".write(toFile: file, atomically: true, encoding: .utf8)
        try await Task.sleep(for: .seconds(1))
        try host.send("release")
        try await host.expect("ended")
        try await host.stop()

        let report = try #require(try host.contents().reports.first)
        let end = try #require(report.endedAt)
        #expect(end.nanoseconds(since: report.startedAt) == report.durationNs + (report.excludedNs ?? 0))
        let taken = report.stacks.map(\.capturedAt)
        #expect(taken.allSatisfy { report.startedAt <= $0 && $0 <= end }, "\(report)")
        let run = try host.run()
        let step = try #require(run.pauseLog?.latest.first { $0.kind == .clockStep })
        #expect(abs(step.durationNs - 3_600_000_000_000) < 1_000_000_000)
        // Nothing was stopped.
        #expect(run.pauseLog?.totals["suspended"] == nil)
    }

    @Test("A forked child has no monitor and says so, does not affect its parent, and can start its own")
    func fork() async throws {
        let host = try PauseHost(ticks: 5)
        try await host.expect("ready")
        try host.send("block")
        try await host.expect("began")
        try host.send("fork")
        #expect(try await host.expect("child running") == "false, forked true")
        #expect(try await host.expect("child slow") == "42, watch true")
        try await host.expect("child done")
        #expect(try await host.expect("forked") == "0")
        try host.send("release")
        try await host.expect("ended")
        try await host.stop()

        #expect(try host.contents().reports.map(\.process.pid) == [host.processID])
        #expect(try host.run().state == .stopped)
        let children = try host.contents(child: true)
        #expect(children.reports.count == 1 && children.reports.allSatisfy { $0.process.pid != host.processID })
        #expect(children.reports.first?.watched.label == "main")
    }

    private static var machine: String {
        #if arch(arm64)
            "aarch64"
        #else
            "x86_64"
        #endif
    }
}
