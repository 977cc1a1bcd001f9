import Foundation
import RegexBuilder
import TestSupport
import Testing

@testable import stall_monitor

@Suite("Times of samples")
struct SampleScheduleTests {
    @Test("a late sample misses those that were due before it, and none after the end")
    func late() {
        let schedule = SampleSchedule(intervalNs: 10, lengthNs: 100)
        func next(_ last: Int64, _ now: Int64) -> [Int64] {
            let next = schedule.next(after: last, now: now, end: 100)
            return [next.moment, Int64(next.missed)]
        }
        #expect(next(10, 12) == [20, 0] && next(10, 20) == [20, 0])
        #expect(next(10, 21) == [30, 1] && next(10, 45) == [50, 3])
        // Due were 60, 70, 80 and 90: at the end there is no sample.
        #expect(next(50, 1000) == [1000, 4] && next(90, 1000) == [1000, 0])
        #expect(next(50, .max)[1] == 4 && next(.max, .min)[1] == 0)
    }
}

@Suite("sample", .serialized, .timeLimit(.minutes(10)))
struct SampleCommandTests {
    private func sample(_ target: TargetProcess, _ options: String...) throws -> CommandRun {
        try CommandRun(arguments: ["sample", "\(target.processID)"] + options)
    }

    @Test("it shows the first thread; a sleeping thread is not disturbed")
    func once() throws {
        let target = try TargetProcess("threads", "3")
        let run = try sample(target)
        #expect(run.status == 0)
        #expect(run.errors == "")
        #expect(run.output.contains("Thread \(target.processID) sample-target, asleep in pause, quiet capture"))
        #expect(run.output.contains("  keep_threads"))
        #expect(run.output.contains("\nCost to the process: none. No thread was stopped.\n"))
        let last = try #require(run.output.split(separator: "\n").last)
        #expect(last.wholeMatch(of: /Cost of stall-monitor itself: \S+ of CPU time\./) != nil, "\(last)")
        #expect(!run.output.contains("\u{1B}"))
    }

    @Test("--name finds a process by its name; several matches are listed by id; no match is reported")
    func named() throws {
        let fixture = try ReportsFixture()
        let program = fixture.root + "/sampled-\(getpid())"
        try FileManager.default.copyItem(atPath: "/bin/sleep", toPath: program)
        let sleepers = try (0..<2).map { _ in
            try RunningCommand(arguments: ["600"], executable: URL(filePath: program))
        }
        let both = try CommandRun("sample", "--name", "sampled-\(getpid())")
        #expect(both.status == 1)
        for sleeper in sleepers {
            // comm has at most 15 characters.
            let line = "\n  \(sleeper.pid)  \("sampled-\(getpid())".prefix(15))  \(program) 600"
            #expect(both.errors.contains(line), "\(both.errors)")
        }
        sleepers[1].send(SIGKILL)
        _ = sleepers[1].status()
        let one = try CommandRun("sample", "--name", "sampled-\(getpid())")
        #expect(one.status == 0 && one.output.hasPrefix("Process \(sleepers[0].pid)"), "\(one.output)\(one.errors)")
        #expect(
            try CommandRun("sample", "--name", "no-such-program").errors.contains(
                "there is no process named no-such-program"
            )
        )
        #expect(try CommandRun("sample", "1", "--name", "x").status == 64)
        #expect(try CommandRun("sample").status == 64)
    }

    @Test("with -q it shows the stacks only")
    func quiet() throws {
        let target = try TargetProcess("threads", "1")
        let loud = try CommandRun("sample", "\(target.processID)")
        let quiet = try CommandRun("sample", "\(target.processID)", "-q")
        #expect(quiet.status == 0 && quiet.errors.isEmpty && quiet.output.contains("Thread"), "\(quiet.output)")
        #expect(loud.output.contains("\nCost to the process") && !quiet.output.contains("Cost"), "\(quiet.output)")
    }

    @Test("equal stacks of several threads are shown once")
    func merged() throws {
        let target = try TargetProcess("threads", "12")
        let run = try sample(target, "--all")
        #expect(run.output.components(separatedBy: "  wait_forever").count == 2)
        #expect(run.output.contains("12 threads: "))
        #expect(run.output.contains(" waiter, …, asleep in pause, quiet capture"))
    }

    @Test("JSON is one object of a known schema")
    func json() throws {
        let target = try TargetProcess("threads", "12")
        let run = try sample(target, "--all", "--format", "json")
        let object = try JSONSerialization.jsonObject(with: Data(run.output.utf8)) as? [String: Any]
        let document = try #require(object)
        #expect(document["schema"] as? String == "stall-sample/1")
        #expect(document["samples"] as? Int == 1)
        #expect(document["ended"] as? String == "complete")
        let stacks = try #require(document["stacks"] as? [[String: Any]])
        #expect(stacks.map { $0["count"] as? Int } == [12, 1])
        #expect((stacks[0]["threads"] as? [Any])?.count == 12)
        #expect(stacks[0]["method"] as? String == "quiet")
        #expect((document["cost"] as? [String: Int])?["stops"] == 0)
        let frames = try #require(stacks[0]["frames"] as? [[String: Any]])
        #expect(frames.contains { $0["function"] as? String == "wait_forever" })
    }

    @Test("--every and --for count stacks over a time, for flame graphs")
    func collapsed() throws {
        let target = try TargetProcess("compute", "4")
        let run = try sample(target, "--every", "5ms", "--for", "500ms", "--format", "collapsed")
        #expect(run.status == 0)
        let lines = run.output.split(separator: "\n")
        #expect(!lines.isEmpty)
        for line in lines {
            #expect(line.hasPrefix("\(target.processID) sample-target;"))
            #expect(line.contains(";main;compute;descend;descend;descend;descend;descend;spin"), "\(line)")
            #expect((line.split(separator: " ").last.flatMap { Int($0) } ?? 0) > 0)
        }
    }

    @Test("it writes a picture, a page and two kinds of profiles into a file, which appears only if there is a result")
    func flames() throws {
        let target = try TargetProcess("compute", "4")
        let directory = FileManager.default.temporaryDirectory.appending(path: "sampled-\(UUID())")
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: directory) }
        for format in ["svg", "html", "speedscope", "pprof"] {
            let path = directory.appending(path: format).path
            let run = try sample(target, "--every", "5ms", "--for", "100ms", "--format", format, "-o", path)
            #expect(run.status == 0 && run.output.isEmpty, "\(run.errors)")
            let text = String(decoding: try Data(contentsOf: URL(filePath: path)), as: UTF8.self)
            for name in ["\(target.processID) sample-target", "compute", "descend", "spin"] {
                #expect(text.contains(name), "\(name) in \(format)")
            }
        }
        let missing = try sample(target, "--format", "svg", "-o", directory.path + "/none/x.svg")
        #expect(missing.status == 1 && missing.errors.contains("its folder does not exist"), "\(missing.errors)")
        #expect(try sample(target, "-o", directory.path + "/text").status == 64)
        #expect(
            try FileManager.default.contentsOfDirectory(atPath: directory.path).sorted() == [
                "html", "pprof", "speedscope", "svg",
            ]
        )
    }

    @Test("it says what it cost the process")
    func cost() throws {
        let target = try TargetProcess("compute", "4")
        let run = try sample(target, "--every", "10ms", "--for", "300ms")
        #expect(run.output.contains("×  Thread \(target.processID) sample-target, running, paused for "))
        let cost = try #require(run.output.split(separator: "\n").first { $0.hasPrefix("Cost to the process: ") })
        let stops = /(1 stop of \S+|\d+ stops, \S+ together, the longest \S+)(, \d+ .*)?/
        let whole = Regex {
            "Cost to the process: "; stops; Optionally { /; besides, \S+ waiting for a CPU/ }
        }
        #expect(cost.wholeMatch(of: whole) != nil, "\(cost)")
    }

    @Test(
        "a thread that does not stop in time is skipped, reported once, with advice",
        arguments: ["text", "json", "collapsed"]
    )
    func deadline(_ format: String) throws {
        let target = try TargetProcess("compute", "4", onProcessor: 0, isIdle: true)
        let rival = try TargetProcess("compute", "4", onProcessor: 0)
        defer { _ = rival.finish() }
        // The thread may be on a CPU just then and stop in time.
        var run = try sample(target, "--deadline", "1ms", "--format", format)
        for _ in 0..<200 where run.status == 0 { run = try sample(target, "--deadline", "1ms", "--format", format) }
        #expect(run.status == 1)
        let told = run.output + run.errors
        #expect(told.components(separatedBy: "the thread did not stop ").count == 2, "\(told)")
        #expect(told.contains("(it had 1ms; --deadline gives it more)"))
        #expect(run.errors.isEmpty == (format != "collapsed"))
        let patient = try sample(target, "--deadline", "1m", "--format", format)
        #expect(patient.status == 0)
        #expect(patient.output.contains("spin"), "\(patient.output)")
    }

    @Test("of a process whose first thread has ended it shows the others and says so", arguments: [[], ["--all"]])
    func withoutFirst(_ options: [String]) throws {
        let target = try TargetProcess("headless")
        try target.proceed()
        target.wait { $0.state == "Z" }
        let run = try CommandRun(arguments: ["sample", "\(target.processID)", "--deadline", "1m"] + options)
        #expect(run.status == 0, "\(run.errors)")
        #expect(run.errors == "")
        #expect(run.output.contains("Its first thread has ended; the others live on, and these are shown."))
        #expect(run.output.contains(" waiter, asleep in pause"))
        #expect(run.output.contains(" computer, running"))
        #expect(run.output.contains("  compute_on"))
        let json = try CommandRun(arguments: ["sample", "\(target.processID)", "--deadline", "1m", "--format", "json"])
        #expect(json.output.contains(#""first_thread_ended":true"#))
    }

    @Test(
        "Ctrl-C and SIGTERM end it; it shows what it has, and its exit code is the signal's",
        arguments: [SIGINT, SIGTERM]
    )
    func interrupted(_ signal: Int32) throws {
        let target = try TargetProcess("threads", "1")
        let run = try RunningCommand("sample", "\(target.processID)", "--for", "1h", "--format", "json")
        // Before the command has installed its handler the signal ends it.
        while !Self.handles(signal, run.pid), run.isRunning { usleep(1000) }
        run.send(signal)
        #expect(try run.line()?.contains(#""ended":"interrupted""#) == true)
        #expect(run.status() == 128 + signal)
    }

    @Test("A signal that it was started to ignore, as by nohup, does not end it")
    func ignored() throws {
        let target = try TargetProcess("threads", "1")
        let sample = "'\(CommandRun.executable.path)' sample \(target.processID) --for 1h --format json"
        let run = try RunningCommand("-c", "trap '' HUP; exec \(sample)", executable: URL(filePath: "/bin/sh"))
        // The shell handles SIGINT, too, but not this one.
        while !Self.handles(SIGTERM, run.pid), run.isRunning { usleep(1000) }
        run.send(SIGHUP)
        run.send(SIGINT)
        #expect(try run.line()?.contains(#""ended":"interrupted""#) == true)
        #expect(run.status() == 128 + SIGINT)
    }

    @Test("Ctrl-C ends a single sample at once and leaves no thread stopped", arguments: [[], ["--all"]])
    func cutShort(_ options: [String]) throws {
        let target = try TargetProcess("compute", "4", onProcessor: 0, isIdle: true)
        let rival = try TargetProcess("compute", "4", onProcessor: 0)
        defer { _ = rival.finish() }
        var caught = 0
        for _ in 0..<200 where caught < 3 {
            let arguments = ["sample", "\(target.processID)", "--deadline", "1h"] + options
            let run = try RunningCommand(arguments: arguments)
            // It waits for the thread to stop, unless it has been quicker.
            while target.tracer == "0", run.isRunning { usleep(200) }
            run.send(SIGINT)
            // It shows a result only if it was quicker. The signal may come between that and its end.
            let line = try run.line()
            let status = run.status()
            #expect(status == 130 || line != nil && status == 0, "\(status) \(line ?? "")")
            caught += line == nil ? 1 : 0
            #expect(target.tracer == "0" && target.state == "R")
        }
        #expect(caught == 3)
    }

    @Test("Ctrl-C leaves no incomplete output file behind")
    func cutShortFile() throws {
        let target = try TargetProcess("compute", "4", onProcessor: 0, isIdle: true)
        let rival = try TargetProcess("compute", "4", onProcessor: 0)
        defer { _ = rival.finish() }
        let directory = FileManager.default.temporaryDirectory.appending(path: "sampled-\(UUID())").path
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let options = ["--deadline", "1h", "--format", "json", "-o", directory + "/stacks"]
        var isCaught = false
        for _ in 0..<200 where !isCaught {
            let run = try RunningCommand(arguments: ["sample", "\(target.processID)"] + options)
            // It waits for the thread to stop, unless it has been quicker.
            while target.tracer == "0", run.isRunning { usleep(200) }
            run.send(SIGINT)
            isCaught = run.status() == 130
            try? FileManager.default.removeItem(atPath: directory + "/stacks")
            #expect(try FileManager.default.contentsOfDirectory(atPath: directory) == [])
        }
        #expect(isCaught)
    }

    private static func handles(_ signal: Int32, _ process: Int32) -> Bool {
        let status = (try? String(contentsOfFile: "/proc/\(process)/status", encoding: .utf8)) ?? ""
        let mask = status.split(separator: "\n").first { $0.hasPrefix("SigCgt:") }?.split(separator: "\t").last
        return mask.flatMap { UInt64($0, radix: 16) }.map { $0 & 1 << (signal - 1) != 0 } ?? false
    }

    @Test("killed while it holds a thread, it leaves that thread running")
    func killed() throws {
        let target = try TargetProcess("compute", "30")
        var caught = 0
        for _ in 0..<20 {
            let run = try RunningCommand("sample", "\(target.processID)", "--every", "1ms", "--for", "1h")
            // The thread was stopped when last seen; most often it still is when the signal arrives.
            var looks = 0
            while target.state != "t" && looks < 3000 { looks += 1 }
            run.send(SIGKILL)
            caught += looks < 3000 ? 1 : 0
            #expect(run.status() == 128 + SIGKILL)
            #expect(target.tracer == "0")
            #expect(target.state == "R")
        }
        print("killed: \(caught) of 20 times while the thread stood")
        #expect(target.finish().hasPrefix("ROUNDS"))
    }

    @Test("Ctrl-Z stops it only while it holds no thread; then it goes on")
    func stopped() throws {
        let target = try TargetProcess("compute", "4", onProcessor: 0, isIdle: true)
        let rival = try TargetProcess("compute", "4", onProcessor: 0)
        defer { _ = rival.finish() }
        let options = ["--every", "1ms", "--for", "1h", "--deadline", "1h"]
        let run = try RunningCommand(arguments: ["sample", "\(target.processID)"] + options)
        for _ in 0..<5 {
            // It waits for the thread to stop, which takes until that gets a processor.
            waitUntil { target.tracer != "0" }
            run.send(SIGTSTP)
            waitUntil { statusField("State", of: run.pid).hasPrefix("T") }
            #expect(target.tracer == "0" && target.state == "R")
            run.send(SIGCONT)
        }
        run.send(SIGINT)
        #expect(run.status() == 128 + SIGINT)
    }

    @Test("if the process ends it shows what it has")
    func ended() throws {
        func sampled(lasting seconds: String) throws -> CommandRun {
            try sample(TargetProcess("call", "nanosleep", seconds), "--for", "1m", "--format", "json")
        }
        var run = try sampled(lasting: "0.3")
        // On a busy machine it may have ended before the command has begun.
        for seconds in ["3", "20"] where run.status != 0 { run = try sampled(lasting: seconds) }
        #expect(run.status == 0, "\(run.errors)")
        #expect(run.output.contains(#""ended":"process_ended""#))
        #expect(run.errors.contains("ended after"))
        // It lasted at least until the sample that found the process ended was due.
        let object = try JSONSerialization.jsonObject(with: Data(run.output.utf8)) as? [String: Any]
        let numbers = try ["samples", "missed", "interval_ns", "duration_ns"].map { try #require(object?[$0] as? Int) }
        #expect((numbers[0] + numbers[1]) * numbers[2] <= numbers[3], "\(numbers)")
    }

    @Test(
        "it says why it cannot sample",
        arguments: [
            ("2147483646", "there is no such process"), ("2", "this is a thread of the kernel"),
            ("$$", "this is the calling process itself"),
        ]
    )
    func failures(_ process: String, _ sentence: String) throws {
        let run = try CommandRun(tool: "/bin/sh", ["-c", "exec '\(CommandRun.executable.path)' sample \(process)"])
        #expect(run.status == 1)
        #expect(run.output == "")
        #expect(run.errors.contains(": \(sentence)"), "\(run.errors)")
    }

    @Test(
        "invalid numbers are wrong usage",
        arguments: [
            ["0"], ["4711", "--every", "1us"], ["4711", "--for", "0s"], ["4711", "--deadline", "1us"], ["x"], [],
        ]
    )
    func usage(_ arguments: [String]) throws {
        #expect(try CommandRun(arguments: ["sample"] + arguments).status == 64)
    }

    @Test(
        "it distinguishes another user's process from a protected one",
        .enabled(if: getuid() == 0 && FileManager.default.isExecutableFile(atPath: "/usr/bin/setpriv"))
    )
    func permission() throws {
        let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"]
        let own = try TargetProcess("threads", "1")
        let command = CommandRun.executable.path
        let other = try CommandRun(tool: "/usr/bin/setpriv", nobody + [command, "sample", "\(own.processID)"])
        #expect(other.status == 1)
        #expect(other.errors.contains(": the process belongs to another user: "), "\(other.errors)")
        let setpriv = URL(filePath: "/usr/bin/setpriv")
        let started = (nobody + [TargetProcess.executable.path])
        let theirs = try TargetProcess(arguments: started + ["threads", "1"], executable: setpriv)
        let granted = try CommandRun(tool: "/usr/bin/setpriv", nobody + [command, "sample", "\(theirs.processID)"])
        #expect(granted.status == 0, "\(granted.errors)")
        let hidden = try TargetProcess(arguments: started + ["protected"], executable: setpriv)
        let refused = try CommandRun(tool: "/usr/bin/setpriv", nobody + [command, "sample", "\(hidden.processID)"])
        #expect(refused.status == 1)
        #expect(refused.errors.contains(": the process has or had privileges "), "\(refused.errors)")
    }
}
