import StallReports
import Synchronization
import Testing

@testable import StallTesting

@Suite("The tests that run, and their stalls") struct LedgerTests {
    private let ledger = TestLedger()

    private func begin(_ name: String = "a()") -> Int {
        ledger.begin(TestPlace(name: name, file: nil), limit: .milliseconds(100))
    }

    private func stall(isOver: Bool) -> StallReport {
        StallReport(
            kind: .blocked,
            startedAt: .now(),
            detectedAt: .now(),
            endedAt: isOver ? .now() : nil,
            durationNs: 400_000_000,
            rule: .init(name: .blocked, tickNs: 10_000_000, ticks: 5),
            host: .current(),
            process: .current(),
            watched: .init(label: "main"),
            thread: .init(id: 1),
            cause: .init(),
            stacks: [],
            fingerprint: Fingerprint(rawValue: "v2:0000000000000001")!
        )
    }

    private func judge(_ numbers: some Sequence<Int>) async {
        for number in numbers {
            ledger.end(number)
            if !ledger.judge(number, "").isEmpty { Issue.record("a stall of \(number)") }
            // Tests that occupy the task pool run beside this one.
            if number % 100 == 0 { await Task.yield() }
        }
    }

    /// There was a line for each test.
    @Test func passesWithOneLineIfTheMonitorDoesNotRun() {
        let notice = StoppedNotice()
        #expect(notice.line(about: "a()", "No threads.") == "a() was not judged, and no later test is. No threads.")
        #expect(notice.line(about: "b()", "No threads.") == nil && notice.line(about: "c()", "No threads.") == nil)
        #expect(notice.line(about: "d()", "Stopped.")?.contains("d()") == true)
    }

    /// Each of them once looked at all others at its end: then this took hours.
    @Test(.timeLimit(.minutes(5))) func passesWithManyTestsAtOnce() async {
        await judge((0..<50_000).map { _ in begin() })
        #expect(ledger.count == 0)
    }

    /// Each of them once searched the stalled stack for the names of all others at its end.
    @Test(.timeLimit(.minutes(5))) func passesWithManyTestsBesideAStall() async throws {
        let others = (0..<50_000).map { _ in begin() }
        let number = begin("work()")
        var stall = stall(isOver: true)
        // Its owner is found by the function that is the last one on a stack as deep as a server's.
        let names = (0..<60).map { "Server.handle\($0)(_: Request, in: Context) async throws -> Response" } + ["work()"]
        let frames = names.map { StallReport.Frame(address: Address(1), function: $0) }
        stall.stacks = [.init(thread: .init(id: 1), capturedAt: .now(), frames: frames)]
        stall.cause.evidence = .init(runDelayNs: 0, windowNs: 400_000_000)
        ledger.note(stall)
        try await Task.sleep(for: .milliseconds(101))
        await judge(others)
        ledger.end(number)
        #expect(ledger.judge(number, "").map(\.origin) == [.own])
    }

    @Test func passesWithoutTestsThatAreOver() async {
        // In each pair the later one begins before the former one ends.
        var former = begin()
        for _ in 0..<1_000 {
            let next = begin()
            await judge([former])
            former = next
        }
        #expect(ledger.count <= 64)
        await judge([former])
        #expect(ledger.count == 0)
    }

    @Test func passesWithOneIssueForATestAndItsPart() async throws {
        let numbers = (0..<3).map { _ in begin() }
        var stall = stall(isOver: false)
        stall.stacks = [.init(thread: .init(id: 1), capturedAt: .now(), frames: [.init(address: Address(1))])]
        let task = UInt64(try #require(TestScope.currentTask))
        stall.stacks[0].async = .init(from: 0, frames: [], ends: .task, task: task)
        // It goes on for longer than it has been known, until the end of the test.
        stall.startedAt = .now().advanced(byNanoseconds: -1_000_000_000)
        stall.cause.evidence = .init(runDelayNs: 0, windowNs: 400_000_000)
        ledger.note(stall)
        try await Task.sleep(for: .milliseconds(101))
        let found = numbers.reversed().map { number in
            ledger.end(number)
            return ledger.judge(number, "").map(\.origin)
        }
        #expect(found == [[.own], [], []])
    }

    /// Swift Testing drops an issue of a part there, and the stall of its task is not the case's own: so the case passed.
    @Test(arguments: [false, true]) func passesWithOneFailureForATestCaseAndItsPart(isOfTask: Bool) async throws {
        let place = TestPlace(name: "testTotal()", file: nil, isCase: true)
        // Not in the task of its part.
        let number = await Task.detached { [ledger] in ledger.begin(place, limit: .zero) }.value
        let part = ledger.begin(TestPlace(name: "testTotal()", file: nil), limit: .zero)
        var stall = stall(isOver: false)
        stall.startedAt = .now().advanced(byNanoseconds: -1_000_000_000)
        stall.cause.evidence = .init(runDelayNs: 0, windowNs: 400_000_000)
        let function = isOfTask ? "checkout()" : "closure #1 in testTotal()"
        let frames = [StallReport.Frame(address: Address(1), function: function)]
        stall.stacks = [.init(thread: .init(id: 1), capturedAt: .now(), frames: frames)]
        let task = UInt64(try #require(TestScope.currentTask))
        if isOfTask { stall.stacks[0].async = .init(from: 0, frames: [], ends: .task, task: task) }
        ledger.note(stall)
        let found = [part, number].map { number in
            ledger.end(number)
            return ledger.judge(number, "").map(\.origin)
        }
        #expect(found == [[], [.own]])
    }

    /// Each of them gave the case a failure, because one is not told what another one has found.
    @Test func passesWithOneFailureForATestCaseAndItsPartsInOtherTasks() async throws {
        let place = TestPlace(name: "testTotal()", file: nil, isCase: true)
        let number = await Task.detached { [ledger] in ledger.begin(place, limit: .zero) }.value
        var parts: [Int] = []
        for _ in 0..<3 {
            let part = TestPlace(name: "testTotal()", file: nil)
            parts.append(await Task.detached { [ledger] in ledger.begin(part, limit: .zero) }.value)
        }
        var stall = stall(isOver: false)
        stall.startedAt = .now().advanced(byNanoseconds: -1_000_000_000)
        stall.cause.evidence = .init(runDelayNs: 0, windowNs: 400_000_000)
        let frames = [StallReport.Frame(address: Address(1), function: "closure #1 in testTotal()")]
        stall.stacks = [.init(thread: .init(id: 1), capturedAt: .now(), frames: frames)]
        ledger.note(stall)
        // Of another stall, there is one more failure.
        var other = stall
        other.id = .make()
        let found = (parts + [number]).map { number in
            if number == parts[2] { ledger.note(other) }
            ledger.end(number)
            return ledger.judge(number, "").map(\.stall.id)
        }
        #expect(found.dropLast() == [[], [], []])
        #expect(found.last?.sorted() == [stall.id, other.id].sorted())
    }

    /// The next one failed.
    @Test func passesWithoutAFailureForATestCaseByAPartOfTheOneBefore() async throws {
        func begin(_ name: String) async -> Int {
            let place = TestPlace(name: name, file: nil, isCase: true)
            return await Task.detached { [ledger] in ledger.begin(place, limit: .zero) }.value
        }
        func judge(_ number: Int) -> [StallAttribution] {
            ledger.end(number)
            return ledger.judge(number, "").map(\.origin)
        }
        let first = await begin("testTotal()")
        // Its task goes on without it.
        let part = ledger.begin(TestPlace(name: "testTotal()", file: nil), limit: .zero)
        #expect(judge(first) == [])
        let second = await begin("testOther()")
        var stall = stall(isOver: false)
        stall.startedAt = .now().advanced(byNanoseconds: -1_000_000_000)
        stall.cause.evidence = .init(runDelayNs: 0, windowNs: 400_000_000)
        stall.stacks = [.init(thread: .init(id: 1), capturedAt: .now(), frames: [.init(address: Address(1))])]
        let task = UInt64(try #require(TestScope.currentTask))
        stall.stacks[0].async = .init(from: 0, frames: [], ends: .task, task: task)
        ledger.note(stall)
        #expect(judge(part) == [])
        #expect(judge(second) == [])
    }

    @Test func passesWithoutStallsThatNoTestCanHave() async {
        ledger.note(stall(isOver: true))
        #expect(ledger.count == 0)
        // It may go on in a test that begins later.
        var ongoing = stall(isOver: false)
        ledger.note(ongoing)
        #expect(ledger.count == 1)
        ongoing.endedAt = .now()
        ledger.note(ongoing)
        #expect(ledger.count == 0)
        let number = begin()
        ledger.note(ongoing)
        #expect(ledger.count == 2 && ledger.name(of: number) == "a()")
        await judge([number])
        #expect(ledger.count == 0 && ledger.name(of: number) == nil)
    }
}

@Suite("The questions to the monitor") final class QuestionTests: Sendable {
    private let asked = Mutex<[@Sendable () -> Void]>([])
    private let answered = Mutex<[Int]>([])

    private func makeQuestions() -> Questions {
        Questions { [self] answered in asked.withLock { $0.append(answered) } }
    }

    private func add(_ number: Int, to questions: Questions) {
        questions.add { [self] in answered.withLock { $0.append(number) } }
    }

    private func answer(_ number: Int) { asked.withLock { $0[number] }() }

    /// The monitor's queue takes 256 of them at a time, and dropped the others: then those tests were not judged.
    @Test func passesWithOneQuestionForAllThatWait() {
        let questions = makeQuestions()
        for number in 0..<1_000 { add(number, to: questions) }
        #expect(asked.withLock { $0.count } == 1)
        answer(0)
        // The others came after that question.
        #expect(answered.withLock { $0 } == [0])
        #expect(asked.withLock { $0.count } == 2)
        answer(1)
        #expect(answered.withLock { $0 } == Array(0..<1_000))
        #expect(asked.withLock { $0.count } == 2)
        add(1_000, to: questions)
        #expect(asked.withLock { $0.count } == 3)
    }

    @Test func passesWithAnotherQuestionIfOneWasLost() {
        let questions = makeQuestions()
        for number in 0..<2 { add(number, to: questions) }
        // At once: nothing else may come that would have to be asked for.
        questions.askForAll()
        answer(1)
        #expect(answered.withLock { $0 } == [1])
        add(2, to: questions)
        answer(2)
        #expect(answered.withLock { $0 } == [1, 2])
    }
}
