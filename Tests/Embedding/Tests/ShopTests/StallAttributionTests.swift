import StallReports
import Testing

@testable import StallTesting

@Suite("Which test a stall belongs to") struct StallAttributionTests {
    private func scope(_ number: Int, _ name: String, task: UInt32) -> TestScope {
        TestScope(
            number: number,
            place: TestPlace(name: name, file: "StallAttributionTests.swift"),
            limit: .milliseconds(100),
            task: task,
            began: Timestamp(seconds: 100),
            ended: Timestamp(seconds: 101)
        )
    }

    /// A stall of 400 ms within the tests' time.
    private func stall(
        task: UInt64? = nil,
        function: String = "work()",
        delay: Int64 = 0,
        isOver: Bool = true
    ) -> StallReport {
        var stack = StallReport.Stack(thread: .init(id: 1), capturedAt: Timestamp(seconds: 100))
        stack.frames = [.init(address: Address(1), function: function)]
        if let task { stack.async = .init(from: 0, frames: [], ends: .task, task: task) }
        return StallReport(
            kind: .blocked,
            startedAt: Timestamp(seconds: 100, nanoseconds: 100_000_000),
            detectedAt: Timestamp(seconds: 100, nanoseconds: 350_000_000),
            endedAt: isOver ? Timestamp(seconds: 100, nanoseconds: 500_000_000) : nil,
            durationNs: 400_000_000,
            rule: .init(name: .blocked, tickNs: 10_000_000, ticks: 5),
            host: .current(),
            process: .current(),
            watched: .init(label: "main"),
            thread: .init(id: 1),
            cause: .init(evidence: .init(runDelayNs: delay, windowNs: 400_000_000)),
            stacks: [stack],
            fingerprint: Fingerprint(rawValue: "v2:0000000000000001")!
        )
    }

    private func origins(_ stall: StallReport) -> [StallAttribution?] {
        let scopes = [scope(1, "a()", task: 7), scope(2, "b()", task: 8)]
        return scopes.map { StallOrigin(of: stall, among: scopes).attribution(to: $0) }
    }

    @Test func passesToItsTask() { #expect(origins(stall(task: 8, function: "a()")) == [nil, .own]) }

    @Test func passesWithTheTimeUntilTheScopesEndIfTheStallGoesOn() {
        #expect(scope(1, "a()", task: 7).overlap(with: stall(isOver: false)) == 900_000_000)
        #expect(scope(1, "a()", task: 7).overlap(with: stall()) == 400_000_000)
    }

    @Test func passesWithoutExcludedTime() {
        var stall = stall(task: 7)
        (stall.durationNs, stall.excludedNs) = (60_000_000, 340_000_000)
        #expect(scope(1, "a()", task: 7).overlap(with: stall) == 60_000_000)
        #expect(origins(stall) == [nil, nil])
        // The part in the scope may be all that counts of the stall.
        (stall.startedAt, stall.durationNs) = (Timestamp(seconds: 99, nanoseconds: 800_000_000), 160_000_000)
        #expect(scope(1, "a()", task: 7).overlap(with: stall) == 160_000_000)
        stall.endedAt = nil
        #expect(scope(1, "a()", task: 7).overlap(with: stall) == 860_000_000)
    }

    @Test func passesToItsFunctionWhereTheTaskIsAnother() {
        #expect(origins(stall(task: 99, function: "closure #1 in Suite.a()")) == [.own, nil])
    }

    @Test func passesToAllCasesOfATestWhereTheTaskIsAnother() {
        let cases = [scope(1, "a()", task: 7), scope(2, "a()", task: 8), scope(3, "a()", task: 8)]
        let scopes = cases + [scope(4, "b()", task: 9)]
        let found = { (stall: StallReport) in scopes.map { StallOrigin(of: stall, among: scopes).attribution(to: $0) } }
        let shared = StallAttribution.shared(by: 2)
        #expect(found(stall(task: 99, function: "closure #1 in Suite.a()")) == [shared, shared, shared, nil])
        #expect(found(stall(task: 7, function: "a()")) == [.own, nil, nil, nil])
        // The test and a part of it are one.
        let one = Array(scopes[1...])
        #expect(StallOrigin(of: stall(task: 99, function: "a()"), among: one).attribution(to: one[0]) == .own)
    }

    @Test(
        arguments: [
            ("load()", "closure #1 in Suite.load()", true), ("value", "Suite.value.getter", true),
            ("load()", "closure #1 in load() in reload()", true), ("load()", "load() -> Int", true),
            ("load()", "Suite.reload() in load()", true), ("load()", "Suite.reload()", false),
            ("value", "Suite.values.getter", false), ("load()", "Suite.überload()", false), ("load()", "load", false),
            ("a basket is loaded()", "closure #1 in Suite.`a basket is loaded`()", true),
            ("`a basket is loaded`()", "Suite.`a basket is loaded`()", true),
        ]
    )
    func passesAsWholeNames(name: String, function: String, isIn: Bool) {
        #expect(FunctionName(function).contains(FunctionName(name)) == isIn)
    }

    @Test func passesToNobodyWhoseNameIsInAnotherFile() {
        var other = stall(task: 99, function: "a()")
        other.stacks[0].frames[0].file = "/source/MyStallAttributionTests.swift"
        #expect(origins(other) == [.unclear(among: ["a()", "b()"]), .unclear(among: ["a()", "b()"])])
        other.stacks[0].frames[0].file = "/source/StallAttributionTests.swift"
        #expect(origins(other) == [.own, nil])
    }

    @Test func passesToAllWhereNothingTells() {
        let unclear = StallAttribution.unclear(among: ["a()", "b()"])
        #expect(origins(stall(task: 99)) == [unclear, unclear])
        // The test and a part of it are one, and two tests of one name are two.
        let scopes = [scope(1, "a()", task: 7), scope(2, "a()", task: 7), scope(3, "a()", task: 8)]
        let origin = StallOrigin(of: stall(task: 99), among: scopes)
        #expect(origin.attribution(to: scopes[0]) == .unclear(among: ["a()", "a()"]))
    }

    @Test func passesToNobodyWhatATestThatIsNotJudgedDid() {
        var stall = stall(task: 99)
        let runner = "closure #1 in closure #1 in static Runner._runTestCase(_:within:context:)"
        stall.stacks[0].async?.frames = [.init(address: Address(2), function: runner)]
        #expect(origins(stall) == [nil, nil])
        // Without its number, the task may be that of any test.
        stall.stacks[0].async?.task = nil
        #expect(origins(stall) == [.unclear(among: ["a()", "b()"]), .unclear(among: ["a()", "b()"])])
        // The body of a test may run in a child task, as with a time limit.
        stall.stacks[0].async?.task = 99
        stall.stacks[0].async?.frames.insert(.init(address: Address(3), function: "Suite.b()"), at: 0)
        #expect(origins(stall) == [nil, .own])
    }

    @Test func passesWithoutBlameForAnyTestThatIsJudged() {
        let scopes = [scope(1, "a()", task: 7), scope(2, "b()", task: 8)]
        let text = { (scopes: [TestScope]) in
            let origin = StallOrigin(of: stall(task: 99), among: scopes).attribution(to: scopes[0])
            return origin.map { StallVerdict(stall: stall(task: 99), origin: $0, scope: scopes[0], directory: "") }?
                .text
        }
        #expect(text(scopes)?.contains("Of the tests that are judged, these ran meanwhile: a(), b().") == true)
        #expect(text([scopes[0]])?.contains("it may be the work of a test that is not judged.") == true)
        let many = (1...300).map { scope($0, "test\(1000 + $0)()", task: 1000 + UInt32($0)) }
        #expect(text(many)?.contains("test1009(), test1010() and 290 others.") == true)
        #expect(text(Array(many.prefix(10)))?.contains("test1009(), test1010(). Report:") == true)
        // Cases of one test leave room for the names of others.
        let cases = (1...20).map { scope($0, "a()", task: UInt32($0)) } + [scope(21, "b()", task: 21)]
        #expect(text(cases)?.contains("these ran meanwhile: a() ×20, b(). Report:") == true)
    }

    /// XCTest said `<unknown>:0`.
    @Test func passesWithThePlaceOfTheTestIfThatOfTheCulpritIsNotKnown() {
        var stall = stall(task: 7, function: "closure #1 in testTotal()")
        func place(_ line: SourceLine?) -> SourceLine? {
            var scope = scope(1, "a()", task: 7)
            scope.place = TestPlace(name: "testTotal()", file: nil, line: line, isCase: line == nil)
            return StallVerdict(stall: stall, origin: .own, scope: scope, directory: "").place
        }
        let call = SourceLine(file: "/source/ShopTests.swift", number: 7)
        #expect(place(call) == call && place(nil) == nil)
        (stall.stacks[0].frames[0].file, stall.stacks[0].frames[0].line) = ("/source/ShopTests.swift", 9)
        #expect(place(call) == call && place(nil) == SourceLine(file: "/source/ShopTests.swift", number: 9))
        stall.culprit = .init(function: "total()", file: "/source/Shop.swift", line: 3, stack: 0, frame: 0)
        let culprit = SourceLine(file: "/source/Shop.swift", number: 3)
        #expect(place(call) == culprit && place(nil) == culprit)
    }

    @Test func passesToTheMachine() {
        #expect(origins(stall(task: 7, delay: 320_000_000)) == [.machine, nil])
        #expect(origins(stall(task: 7, delay: 200_000_000)) == [.own, nil])
    }

    @Test func passesAsUnmeasuredIfTheMonitorCameTooLate() {
        var stall = stall(task: 7)
        // The thread's times were read only once.
        stall.cause.evidence?.windowNs = 0
        #expect(origins(stall) == [.unmeasured, nil])
        stall.watched.type = .taskPool
        #expect(origins(stall) == [.unmeasured, nil])
        // A sleep is one on every machine.
        stall.cause.verdict = .blocked
        #expect(origins(stall) == [.own, nil])
        // A kernel without these counts.
        (stall.cause.verdict, stall.cause.evidence) = (.unknown, nil)
        #expect(origins(stall) == [.own, nil])
        // The stall was over before anything was looked at.
        stall.watched.type = .runLoop
        (stall.stacks[0].frames, stall.stacks[0].async) = ([], nil)
        #expect(origins(stall) == [.unmeasured, .unmeasured])
        // Its times were read before the stall, and after it, when the thread slept.
        stall.cause.evidence = .init(runDelayNs: 7_000_000, windowNs: 450_000_000)
        #expect(origins(stall) == [.unmeasured, .unmeasured])
        let verdict = StallVerdict(stall: stall, origin: .unmeasured, scope: scope(1, "a()", task: 7), directory: "")
        #expect(!verdict.isFailure && verdict.text.contains("The machine was too busy to measure"))
        stall.stacks[0].error = "state_unreadable: mount /proc"
        let stackless = StallVerdict(stall: stall, origin: .unmeasured, scope: scope(1, "a()", task: 7), directory: "")
        #expect(stackless.text.contains("There is no stack of it: state_unreadable: mount /proc. Not counted."))
        // A thread that computed is known without a stack, and nobody knows whose work it was.
        let unclear = StallAttribution.unclear(among: ["a()"])
        let computing = StallVerdict(stall: stall, origin: unclear, scope: scope(1, "a()", task: 7), directory: "")
        #expect(computing.text.contains("There is no stack of it: state_unreadable: mount /proc. It occurred"))
    }

    @Test func passesToNobodyWhatAPoolDidForOthers() {
        var stall = stall(task: 99)
        stall.watched.type = .taskPool
        #expect(origins(stall) == [nil, nil])
    }

    @Test func passesToNobodyWhatTheJudgementOfAnotherTestDid() {
        var stall = stall(task: 7)
        let ledger = "$s12StallTesting10TestLedgerC5judgeySayAA0A7VerdictVGSi_SStF"
        stall.stacks[0].frames.append(.init(address: Address(2), symbol: ledger))
        #expect(origins(stall) == [nil, nil])
        // Before that, it was in the test's own code.
        stall.stacks.append(self.stall(task: 7).stacks[0])
        #expect(origins(stall) == [.own, nil])
        stall.watched.type = .taskPool
        #expect(origins(stall) == [nil, nil])
    }

    /// By the name that it has in a stack.
    @Test func passesWithTheLedgersSymbol() {
        let type = _mangledTypeName(TestLedger.self).map { "$s" + $0 }
        #expect(type == "$s12StallTesting10TestLedgerC")
    }

    @Test func passesToNobodyWhatNoTestDidToAPoolAlone() {
        var stall = stall(task: 7, function: "a()")
        stall.watched.type = .taskPool
        let pool = { (other: StallReport.Worker) in
            let own = StallReport.Worker(thread: .init(id: 1), standingNs: 400_000_000, task: 7, stack: 0)
            return StallReport.Pool(width: 2, running: 2, workers: [own, other])
        }
        // A worker of another test that is judged, and one that may be of the same test.
        stall.pool = pool(.init(thread: .init(id: 2), standingNs: 400_000_000, task: 8))
        #expect(origins(stall) == [nil, nil])
        stall.pool = pool(.init(thread: .init(id: 2), standingNs: 400_000_000, task: 99))
        #expect(origins(stall) == [.own, nil])
        // One whose task is not known, in the function of another test that is judged.
        stall.stacks.append(stall.stacks[0])
        (stall.stacks[1].async, stall.stacks[1].frames[0].function) = (nil, "closure #1 in Suite.b()")
        stall.pool = pool(.init(thread: .init(id: 2), standingNs: 400_000_000, stack: 1))
        #expect(origins(stall) == [nil, nil])
        stall.stacks[1].frames[0].function = "c()"
        #expect(origins(stall) == [.own, nil])
        stall.stacks.removeLast()
        // One that got no processor to copy its stack.
        stall.pool = pool(.init(thread: .init(id: 2), standingNs: 400_000_000))
        #expect(origins(stall) == [.unmeasured, nil])
        let alone = scope(1, "a()", task: 7)
        #expect(StallOrigin(of: stall, among: [alone]).attribution(to: alone) == .own)
        // One of a test that is not judged.
        var stack = stall.stacks[0]
        stack.frames[0].function = "c()"
        stack.async?.task = 99
        let runner = "closure #1 in closure #1 in static Runner._runTestCase(_:within:context:)"
        stack.async?.frames = [.init(address: Address(2), function: runner)]
        stall.stacks.append(stack)
        stall.pool = pool(.init(thread: .init(id: 2), standingNs: 400_000_000, task: 99, stack: 1))
        #expect(origins(stall) == [nil, nil])
        // A child task of a test that is judged.
        stall.stacks[1].async = nil
        stall.stacks[1].frames[0].function = "closure #1 in Suite.b()"
        #expect(origins(stall) == [nil, nil])
        // The same test, in a child task.
        stall.stacks[1].frames[0].function = "closure #1 in Suite.a()"
        #expect(origins(stall) == [.own, nil])
    }

    @Test func passesToNobodyWhatWasBefore() {
        var stall = stall(task: 7)
        stall.startedAt = Timestamp(seconds: 99, nanoseconds: 650_000_000)
        #expect(origins(stall) == [nil, nil])
    }
}
