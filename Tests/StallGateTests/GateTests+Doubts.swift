import StallGate
import StallReading
import StallReports
import Testing

// What makes it impossible to judge.

extension GateTests {
    @Test("without a run record nothing was watched, even if there are reports")
    func noRun() {
        #expect(judge([], runs: [], Budget()).doubts == [.noRun])
        #expect(judge([Sample.report()], runs: [], Budget()).verdict == .cannotJudge)
    }

    @Test("each run must have watched something, and kept watching")
    func watchedNothing() {
        var idle = Sample.run()
        idle.watched = [.init(label: "main", watchedNs: 0)]
        var disarmed = Sample.run()
        disarmed.disarmed = "no memory"
        let result = judge([], runs: [Sample.run(), idle, disarmed], Budget())
        #expect(result.doubts == [.watchedNothing(run: idle.id), .disarmed(run: disarmed.id)])
    }

    @Test("for a running process the result says that it runs, even if it has only just started")
    func running() {
        var run = Sample.run()
        run.state = .running
        let result = judge([], runs: [run], Budget())
        #expect(result.verdict == .within)
        #expect(result.text == "within budget: 0 stalls, 59s watched in 1 run, still running\n")
        #expect(judge([], runs: [run, Sample.run()], Budget()).text.contains("in 2 runs, 1 of them still running"))
        run.watched = [.init(label: "main", watchedNs: 999_999_999)]
        let young = judge([], runs: [run], Budget())
        #expect(young.doubts == [.justStarted(run: run.id)])
        #expect(young.text.contains("it has watched for less than a second, and goes on; judge later"))
    }

    @Test("reports that wait for the disk are missing, whether the process is alive or dead")
    func waitingReports() {
        var run = Sample.run()
        (run.state, run.writing) = (.running, .init(waiting: 2))
        #expect(judge([], runs: [run], Budget()).doubts == [.missingReports(run: run.id, count: 2)])
        for (count, words) in [(1, "1 of its reports is missing;"), (2, "2 of its reports are missing;")] {
            #expect(Doubt.missingReports(run: run.id, count: Int64(count)).description.contains(words))
        }
        (run.state, run.processEnd) = (.terminated, .init(cause: .killedOrCrashed, summary: "Killed."))
        #expect(judge([], runs: [run], Budget()).doubts == [.missingReports(run: run.id, count: 2)])
        run.stalls = ["blocked": 2]
        #expect(judge([], runs: [run], Budget()).doubts == [.missingReports(run: run.id, count: 2)], "not twice")
        (run.stalls, run.writing) = (["blocked": 1], nil)
        #expect(judge([], runs: [run], Budget()).doubts == [.missingReports(run: run.id, count: 1)], "a single one")
    }

    @Test(
        "a run that was not closed is judged by its records, with a note; without a live record it is in doubt"
    )
    func cutShort() throws {
        var run = Sample.run()
        (run.state, run.processEnd) = (.terminated, .init(cause: .killedOrCrashed, summary: "A signal ended it."))
        let within = judge([], runs: [run], Budget(maxStalls: 0))
        #expect(within.verdict == .within && within.cutShort == [run])
        #expect(within.text.contains("  cut short: run \(run.id) of process 7 was not closed, and is judged by what"))
        #expect(within.text.contains("left: A signal ended it."))
        #expect(within.html(sourceRoot: "/").contains("<li>cut short: run \(run.id) of process 7 was not closed"))
        #expect(within.markdown(sourceRoot: "/").contains("- cut short: run \(run.id) of process 7 was not closed"))
        #expect(String(decoding: try within.json(), as: UTF8.self).contains(#""cut_short":["\#(run.id)"]"#))
        #expect(judge([Sample.report()], runs: [run], Budget(maxStalls: 0)).verdict == .over)
        run.processEnd = nil
        let doubted = judge([], runs: [run], Budget(maxStalls: 0))
        #expect(doubted.doubts == [.endUnknown(run: run.id, since: run.updatedAt)])
        #expect(doubted.verdict == .cannotJudge && doubted.doubts.map(\.code) == ["end_unknown"])
        #expect(judge([], runs: [Sample.run()], Budget(maxStalls: 0)).cutShort.isEmpty)
    }

    @Test("reports that the run counted but that do not exist make it impossible to judge")
    func missingReports() {
        var run = Sample.run()
        run.stalls = ["blocked": 3, "repeated": 2]
        run.suppressed = 1
        var report = Sample.report(suppressed: 1)
        report.run = run.id
        #expect(judge([report], runs: [run], Budget()).doubts == [.missingReports(run: run.id, count: 3)])
        run.state = .running
        #expect(judge([report], runs: [run], Budget()).doubts == [])
        run.lostWrites = 2
        #expect(judge([report], runs: [run], Budget()).doubts == [.missingReports(run: run.id, count: 2)])
        run.state = .stopped
        (run.stalls, run.suppressed) = (["blocked": 1], 0)
        #expect(judge([report], runs: [run], Budget()).doubts == [])
        run.writing = .init(dropped: ["stalls": 4, "samples": 9])
        #expect(judge([report], runs: [run], Budget()).doubts == [.missingReports(run: run.id, count: 4)])
        (run.stalls, run.suppressed) = (["a": .max, "b": .max, "c": .min], .min)
        #expect(judge([report], runs: [run], Budget()).verdict == .cannotJudge)
    }

    @Test("a torn report hides nothing: stalls over budget are listed anyway")
    func tornReport() {
        let error = ReportError(.torn, path: "x")
        let result = judge([Sample.report()], failures: [error], Budget(maxStalls: 0))
        #expect(result.verdict == .cannotJudge)
        #expect(result.doubts == [.file(error)])
        #expect(result.hasTooMany)
    }

    @Test("a directory that cannot be read cannot be judged")
    func missingDirectory() {
        let error = ReportError(.missingDirectory, path: "/nowhere")
        let nothing = Result<ReportReader.Overview, ReportError>.failure(error)
        let result = Gate.judge(nothing, by: Budget(maxStalls: 0))
        #expect(result.verdict == .cannotJudge)
        #expect(result.text.contains("/nowhere: there is no such report directory"))
    }
}
