import StallReading
import StallReports
import TestSupport
import Testing

/// Queues of a process that only starts the monitor.
@Suite(
    "Serial queues and Foundation's main loop",
    .serialized,
    .timeLimit(.minutes(60)),
    .repeatedWhenLate(by: .milliseconds(40))
)
struct QueueTests {
    @Test(
        "Work that delays queued work is reported once, however submitted; a backlog is congested"
    )
    func queues() async throws {
        let run = try await LoopHostRun("queues")
        defer { run.remove() }
        try #require(run.status == 0, "\(run.lines)")
        let contents = try run.contents()
        let inTurn = [String](repeating: "waits-in-turn", count: 4)
        #expect(
            contents.labels == ["activated", "async", "async-and-wait", "backlog", "sync", "targeted", "timer"]
                + inTurn,
            "\(run.lines)"
        )
        #expect(contents.reports.allSatisfy { $0.watched.type == .queue && $0.state == .recovered })
        for report in contents.reports {
            #expect(report.kind == (report.watched.label == "backlog" ? .congested : .blocked), "\(report.watched)")
        }
        let functions = [
            "async": "sleepOnQueue", "sync": "sleepInSync", "timer": "sleepInTimer",
            "async-and-wait": "sleepInAsyncAndWait", "waits-in-turn": "sleepBriefly", "targeted": "sleepAbove",
        ]
        for (label, function) in functions {
            let report = try contents.report(label)
            #expect(report.culprit?.function?.contains(function) == true, "\(label): \(report.culprit as Any)")
        }
        let faults = run.lines.filter { $0.hasPrefix("fault") }
        #expect(faults.count == 2 && faults.contains { $0.contains("concurrent: It is not serial") }, "\(faults)")
        #expect(faults.contains { $0.contains("It is the main queue") }, "\(faults)")
    }

    @Test("A forked child watches none of its parent's queues, and has room for its own")
    func fork() async throws {
        let run = try await LoopHostRun("queueFork")
        defer { run.remove() }
        #expect(run.lines == ["parent adds 64", "child adds 64", "child 0"])
    }

    @Test("A forked child gets its own value of the process, whatever the parent's threads did with theirs meanwhile")
    func valueFork() async throws {
        let run = try await LoopHostRun("valueFork")
        defer { run.remove() }
        #expect(run.lines == ["children have their own"])
    }

    @Test("Foundation's main loop is found, and its stall reported")
    func foundation() async throws {
        let run = try await LoopHostRun("foundation")
        defer { run.remove() }
        let contents = try run.contents()
        #expect(contents.labels == ["main"], "\(run.lines)")
        let report = try contents.report("main")
        #expect(report.watched.type == .eventLoop && report.kind == .blocked)
        #expect(report.culprit?.function?.contains("sleepInFoundation") == true, "\(report.culprit as Any)")
    }
}
