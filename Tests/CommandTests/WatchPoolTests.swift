import Foundation
import StallReports
import TestSupport
import Testing

@Suite("watch, and task pools", .serialized, .timeLimit(.minutes(60)))
struct WatchPoolTests {
    private let fixture: ReportsFixture

    init() throws { fixture = try ReportsFixture(inMemory: true) }

    /// A program whose task pool does as it is told.
    private final class PoolTarget {
        private let command: RunningCommand
        private static let executable = URL.built("pool-target")

        init() throws {
            command = try RunningCommand(arguments: [], executable: Self.executable)
            #expect(try command.line() == "READY")
        }

        var pid: Int32 { command.pid }

        /// - Returns: for how long no worker was free.
        @discardableResult
        func carryOut(_ order: String) throws -> Int64 {
            try command.send(order + "\n")
            let words = try #require(try command.line()).split(separator: " ")
            try #require(words.count == 4 && words[0] == "DID", "\(words)")
            let (begin, end) = (try #require(UInt64(words[2])), try #require(UInt64(words[3])))
            // So that the next one is another stall.
            usleep(150_000)
            return end > begin && end != .max ? Int64(end - begin) : 0
        }
    }

    private func watch(_ target: PoolTarget, _ options: String...) throws -> WatchRunning {
        let watch = try WatchRunning(["\(target.pid)"] + options, directory: fixture.path)
        try watch.waitForNote("watching process")
        return watch
    }

    private static let starving = [
        ("compute 600", "computeInAJob"), ("sleep 600", "sleepInAJob"), ("nap 600", "napInAJob"),
        ("lock 600", "sleepInAJob"),
    ]

    @Test(
        "A pool without a free worker is reported with each worker, as from inside; busy pools and long jobs beside free workers are not",
        .needsBreakpoints,
        .repeatedWhenLate(by: .milliseconds(40))
    )
    func starved() throws {
        let target = try PoolTarget()
        let watch = try watch(target)
        // On a busy machine the watch may see too little of these jobs to know the pool.
        var rounds = 0
        while rounds < 100, try !watch.runs().flatMap(\.watched).contains(where: { $0.type == .taskPool }) {
            try target.carryOut("short 300")
            rounds += 1
        }
        for order in ["short 900", "long 900", "blocks 900", "suspended 900", "compute 120", "short 300"] {
            try target.carryOut(order)
        }
        let lengths = try Self.starving.map { try target.carryOut($0.0) }
        let reports = try watch.finish()
        try #require(reports.count == Self.starving.count, "\(reports.map { $0.culprit?.function })")
        for (report, ((order, function), length)) in zip(reports, zip(Self.starving, lengths)) {
            try check(report, order, function, lasting: length)
            #expect(report.process.pid == target.pid && report.watcher?.pid == watch.pid)
        }
        let runs = try watch.runs()
        #expect(runs.flatMap(\.watched).contains { $0.type == .taskPool && $0.label == "medium-priority tasks" })
    }

    private func check(_ report: StallReport, _ order: String, _ function: String, lasting length: Int64) throws {
        #expect(report.watched.type == .taskPool && report.watched.label == "medium-priority tasks", "\(order)")
        #expect(report.kind == .blocked && report.state == .recovered, "\(order)")
        let pool = try #require(report.pool, "\(order)")
        #expect(pool.workers.count == pool.width && pool.running == pool.width, "\(order)")
        for worker in pool.workers {
            let stack = try #require(worker.stack.map { report.stacks[$0] }, "\(order): \(worker.error ?? "")")
            let functions = stack.frames.compactMap(\.function)
            #expect(functions.contains("swift_job_run"), "\(order): \(functions)")
            #expect(
                functions.contains { $0.contains(function) || $0.contains("holdTheLock") },
                "\(order): \(functions)"
            )
            // It is known to one look, and the stall ends with the first worker.
            #expect(worker.standingNs >= 250_000_000 && worker.standingNs <= length + 100_000_000, "\(order)")
        }
        // The compiler may take an inner function of the computation for a part of it, or not.
        if !order.hasPrefix("compute") {
            #expect(report.culprit?.function?.contains(function) == true, "\(order): \(report.culprit?.function ?? "")")
        }
        // What is told as the shortest and longest holds the truth.
        #expect(
            length <= (report.durationMaxNs ?? report.durationNs) + (report.excludedNs ?? 0) + 1_000_000,
            "\(order)"
        )
        #expect((report.durationMinNs ?? report.durationNs) <= length + 20_000_000, "\(order)")
        if order.hasPrefix("lock") { #expect(pool.workers.contains { $0.lock?.owner != nil }) }
    }

    @Test(
        "Without breakpoints only workers that sleep in one call are reported, and of the rest that it is unproven, once",
        .repeatedWhenLate(by: .milliseconds(40))
    )
    func withoutBreakpoints() throws {
        let target = try PoolTarget()
        let watch = try watch(target, "--no-breakpoints")
        for order in ["sleep 700", "compute 900", "short 900", "compute 900", "long 600", "lock 700"] {
            try target.carryOut(order)
        }
        let reports = try watch.finish()
        #expect(reports.count == 2 && reports.allSatisfy { $0.watched.type == .taskPool }, "\(reports.map(\.watched))")
        for report in reports { #expect(report.culprit?.function?.contains("sleepInAJob") == true) }
        #expect(watch.notes.count { $0.contains("unknown whether they go from job to job") } == 1)
    }
}
