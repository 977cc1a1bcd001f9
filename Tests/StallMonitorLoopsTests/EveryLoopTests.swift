import StallReading
import StallReports
import TestSupport
import Testing

/// Third-party loops without any call to the monitor, each in a process that only links it.
@Suite(
    "Watching every loop of the process",
    .serialized,
    .timeLimit(.minutes(60)),
    .repeatedWhenLate(by: .milliseconds(40))
)
struct EveryLoopTests {
    private func play(_ scene: String, _ judge: (LoopHostRun) throws -> Void) async throws {
        let run = try await LoopHostRun(scene)
        defer { run.remove() }
        try #require(run.status == 0, "\(run.lines)")
        try judge(run)
    }

    @Test(
        "Loops on epoll, poll and select are found and named after their threads; each stall is reported once"
    )
    func stalls() async throws {
        try await play("stalls") { run in
            let contents = try run.contents()
            let watched = Set(try contents.watched(.eventLoop))
            #expect(
                contents.labels == [
                    "asking", "client", "epoll", "heights", "many", "nested", "poll", "pwait2", "select", "timed",
                ],
                "\(run.lines)"
            )
            #expect(contents.reports.allSatisfy { $0.watched.type == .eventLoop && $0.kind == .blocked })
            #expect(contents.reports.allSatisfy { $0.thread.name == $0.watched.label && $0.state == .recovered })
            #expect(
                watched.isSuperset(of: contents.labels + ["idle", "brief", "resting"])
                    && watched.isDisjoint(with: ["asker", "refused", "run-loop", "stall-health"]),
                "\(watched)"
            )
            #expect(run.lines.allSatisfy { !$0.hasPrefix("fault") }, "\(run.lines)")
            // Two are in the program's own C code.
            let functions = [
                "epoll": "sleepInEpoll", "pwait2": "sleepInPwait2", "poll": "sleepInPoll", "select": "sleepInSelect",
                "nested": "event_nested_loop", "client": "event_ask", "many": "sleepAmongMany",
                "asking": "sleepInAsking", "heights": "sleepInHeights", "timed": "sleepInTimed",
            ]
            for (label, function) in functions {
                let report = try contents.report(label)
                #expect(report.culprit?.function?.contains(function) == true, "\(label): \(report.culprit as Any)")
                #expect(report.cause.verdict == .blocked, "\(label): \(report.cause)")
                // Also for a loop without an epoll set. Unknown if the stall was over before they could be counted, on a busy machine.
                let clients: Int64 = ["poll": 3, "select": 2][label] ?? 0
                if let victims = report.victims { #expect(victims.unaccepted == clients, "\(label): \(victims)") }
            }
        }
    }

    @Test("Ended loops are forgotten, later ones are watched, and a name already in use gets a number")
    func comings() async throws {
        try await play("comings") { run in
            #expect(run.count("cancelled true") == 1)
            let contents = try run.contents()
            #expect(contents.labels == ["worker"])
            let watched = try contents.watched(.eventLoop)
            #expect(watched.filter { $0.hasPrefix("worker") } == ["worker", "worker #2"])
            #expect(watched.contains("cancelled"))
            #expect(run.lines.allSatisfy { !$0.hasPrefix("fault") }, "\(run.lines)")
        }
    }

    @Test("Only the selected loops are watched")
    func chosen() async throws {
        try await play("chosen") { run in
            let contents = try run.contents()
            let watched = try contents.watched(.eventLoop)
            #expect(contents.labels == ["wanted-1", "wanted-2"] && watched == contents.labels)
        }
    }

    @Test("A forked child has its own monitor, which finds its loops again; the parent's loops stay watched")
    func fork() async throws {
        try await play("fork") { run in
            #expect(run.count("child done") == 1 && run.count("child 0") == 1, "\(run.lines)")
            let (parent, child) = (try run.contents(), try run.contents(child: true))
            let watched = try child.watched(.eventLoop)
            #expect(parent.labels == ["parents"])
            #expect(child.labels == ["childs", "main"] && watched.sorted() == child.labels)
        }
    }

    @Test("Too many threads are reported once, without other effects, and can be replaced when they end")
    func crowd() async throws {
        try await play("crowd") { run in
            let faults = run.lines.filter { $0.hasPrefix("fault") }.map { $0.prefix { $0 != "." } + "." }
            #expect(
                run.count("crowd true") == 2 && faults == ["fault Some event loops are not watched."],
                "\(run.lines)"
            )
            let labels = try run.contents().labels
            #expect(labels == ["late"])
        }
    }

    @Test(
        "Threads that take turns at one epoll set have no own loop: reported once, without stalls"
    )
    func shared() async throws {
        try await play("shared") { run in
            let faults = run.lines.filter { $0.hasPrefix("fault") }
            #expect(run.count("pool true") == 2 && faults.count == 1, "\(run.lines)")
            #expect(faults.allSatisfy { $0.contains("wait for one epoll set in turn") }, "\(faults)")
            let labels = try run.contents().labels
            #expect(labels == ["alone"])
        }
    }

    @Test(
        "A loop is watched whose epoll set has the number of one that another thread has closed; that thread is not stalled"
    )
    func reused() async throws {
        try await play("reused") { run in
            let contents = try run.contents()
            #expect(contents.labels == ["next"], "\(run.lines)")
            let watched = try contents.watched(.eventLoop)
            #expect(Set(watched) == ["left", "next"], "\(watched)")
            #expect(run.lines.allSatisfy { !$0.hasPrefix("fault") }, "\(run.lines)")
        }
    }

    @Test("A loop started by a library's constructor is watched like the others")
    func early() async throws {
        try await play("early") { run in
            let labels = try run.contents().labels
            #expect(labels == ["early"] && run.lines.allSatisfy { !$0.hasPrefix("fault") }, "\(run.lines)")
        }
    }

    @Test("With 16 idle loops and a watched queue no thread wakes within a second")
    func idle() async throws {
        try await play("idle") { run in
            #expect(run.count("wakes 0") == 1, "\(run.lines)")
            let labels = try run.contents().labels
            #expect(labels == ["idle-1"])
        }
    }
}

@Suite("The waits that the program calls", .timeLimit(.minutes(5)))
struct WaitTests {
    @Test(
        "Results, errno, EINTR, masks, time left and cancellation equal the C library's, first and in a loop's wait"
    )
    func compared() async throws {
        let run = try await LoopHostRun("compare")
        defer { run.remove() }
        // A thread that gets no processor for long just after a loop's wait is stalled, and that is reported rightly.
        let compared = run.lines.filter { !$0.hasPrefix("began ") && !$0.hasPrefix("ended ") }
        // Every other line reports a difference.
        #expect(compared == ["compared 88", "compared 88", "compared 88"] && run.status == 0, "\(run.lines)")
    }
}
