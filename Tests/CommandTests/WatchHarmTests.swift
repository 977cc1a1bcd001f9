import Foundation
import RunLoopKit
import StackCapture
import StallMonitor
import StallReports
import Symbolication
import TestSupport
import Testing

@testable import ProcessWatch

@Suite("What a watched process notices", .serialized, .timeLimit(.minutes(60)))
struct WatchHarmTests {
    private let fixture: ReportsFixture

    init() throws { fixture = try ReportsFixture(inMemory: true) }

    /// With the shortest interval: a stall of 50 ms counts.
    private func watch(_ processes: [Int32]) throws -> WatchRunning {
        try WatchRunning(processes.map { "\($0)" } + ["--threshold", "50ms"], directory: fixture.path)
    }

    @Test("Killed at any moment, the watcher leaves nothing behind in the process", .needsBreakpoints)
    func killed() throws { try kill(times: 20) }

    @Test(
        "Killed at a thousand moments, the watcher leaves nothing behind in the process",
        .needsBreakpoints,
        .longForm
    )
    func killedOften() throws { try kill(times: 1000) }

    private func kill(times: Int) throws {
        var random = SplitMix64.ofThisRun()
        let target = try LoopTarget()
        let breakpoints = target.freeBreakpoints
        try target.tell("mix 120")
        var (turns, stopped) = (0, 0)
        for round in 0..<times {
            let watch = try watch([target.pid])
            // Half of the kills at a random moment after the start; half while the watcher holds the thread stopped,
            // if that can be caught.
            if round.isMultiple(of: 2) {
                usleep(UInt32.random(in: 20_000...150_000, using: &random))
            } else {
                try watch.waitForLoops(1)
                var looks = 0
                while looks < 600, !target.field("State").hasPrefix("t") { looks += 1 }
            }
            stopped += target.field("State").hasPrefix("t") ? 1 : 0
            watch.send(SIGKILL)
            #expect(try watch.status() == 128 + SIGKILL)
            #expect(target.field("TracerPid") == "0")
            #expect(!["t", "T"].contains(target.field("State").prefix(1)))
            #expect(target.freeBreakpoints == breakpoints)
            let counts = try target.counts()
            #expect(counts.cut == 0 && counts.turns > turns)
            turns = counts.turns
        }
        print("killed: \(stopped) of \(times) times while its thread stood still for it; \(turns) turns")
        try target.tell("mix 0")
        _ = try target.stall("sleep 1")
    }

    @Test("No blocking call returns early", .repeatedWhenLate(by: .milliseconds(10)))
    func calls() throws { try makeCalls(rounds: 1) }

    @Test("In ten minutes no blocking call returns early", .longForm)
    func callsForLong() throws {
        let end = MonotonicInstant.now + .seconds(600)
        var rounds = 0
        while MonotonicInstant.now < end {
            // Each of them works once per process.
            try makeCalls(rounds: 1)
            rounds += 1
        }
        print("calls: \(rounds) rounds")
    }

    /// Each blocking call in a process of its own, and one process with short waits.
    private func makeCalls(rounds: Int) throws {
        let names = try CommandRun(tool: TargetProcess.executable.path, ["list"]).output.split(separator: "\n")
        #expect(names.count >= 30)
        let targets = try names.map { (name: $0, target: try LoopTarget()) }
        let mixed = try LoopTarget()
        let watch = try watch(targets.map(\.target.pid) + [mixed.pid])
        try watch.waitForLoops(targets.count + 1)
        try mixed.tell("mix 80")
        let waited = targets.map { timeWithoutProcessor(of: $0.target.pid) }
        for _ in 0..<rounds {
            for (name, target) in targets { try target.tell("call \(name) 500") }
            for (name, target) in targets {
                let words = try target.answer()
                #expect(words.last == "WHOLE", "\(name): \(words)")
            }
        }
        // A thread that has returned from its call and waits for a processor may be stopped for its stack.
        let delayed = zip(targets.map(\.target.pid), waited)
            .filter { timeWithoutProcessor(of: $0.0) - $0.1 > .microseconds(200) }.map(\.0)
        let counts = try mixed.counts()
        #expect(counts.cut == 0 && counts.turns > 3)
        // The directory also has the reports of earlier rounds.
        let watched = Set(targets.map(\.target.pid) + [mixed.pid])
        let reports = try watch.finish().filter { watched.contains($0.process.pid) }
        // All of them were watched during their stalls: each call is reported, unless the watcher itself got no CPU
        // time for a look.
        let wasLate = try watch.runs().contains { $0.lateTicks > 0 }
        #expect(wasLate || !reports.isEmpty)
        #expect(wasLate || Set(reports.map(\.process.pid)).isSuperset(of: targets.map(\.target.pid)))
        let stopped = reports.filter { !$0.stacks.allSatisfy { $0.method == .quiet } }.map(\.process.pid)
        #expect(Set(stopped).isSubset(of: delayed + [mixed.pid]), "\(delayed.count) of \(targets.count) were delayed")
    }
}

extension LoopTarget {
    fileprivate func field(_ name: String) -> String { statusField(name, of: pid) }

    /// How many hardware breakpoints its thread has left, at most four.
    fileprivate var freeBreakpoints: Int {
        let places = (0..<4).map { RestStack.Place(address: 0x10000 + $0 * 8, stackPointer: 0) }
        let opened = places.compactMap { Breakpoint(onThread: pid, at: $0) }
        return withExtendedLifetime(opened) { opened.count }
    }
}

@Suite("watch and its cost budget", .serialized, .timeLimit(.minutes(10)))
struct WatchBudgetTests {
    @Test("Once the budget is used up no stack is taken, and the report says why")
    func budget() throws {
        let fixture = try ReportsFixture(inMemory: true)
        let target = try TargetProcess("compute", "3")
        let process = OutsideProcess(
            processID: target.processID,
            sampler: try ProcessSampler(processID: target.processID),
            search: SymbolSearch()
        )
        var configuration = OutsideReporter.Configuration(
            directory: fixture.path,
            rule: StallRule(tick: .milliseconds(50), ticks: 5)
        )
        configuration.cost.heldBurst = .microseconds(1)
        configuration.cost.heldShare = 0.000001
        let reporter = try OutsideReporter(configuration) { _ in }
        defer { reporter.close() }
        /// Why no stack was taken; nil if one was.
        func refusal() throws -> String? {
            let outcome = reporter.capture(target.processID, of: process, within: .seconds(60), isSample: false) { _ in
                .raced
            }
            switch outcome {
            case .captured, .raced: return nil
            case .unavailable(let reason): return reason
            case .failed(let error): throw error
            }
        }
        // A computing thread is held for its stack. The time it was held is known afterwards.
        #expect(try refusal() == nil)
        reporter.looked(at: 1, late: false)
        #expect(try #require(try refusal()).contains("budget"))
    }
}
