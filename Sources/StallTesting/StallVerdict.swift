import StallReports
import Testing

/// What one test has to do with a stall. Determined from values only.
enum StallAttribution: Equatable {
    /// The test caused it: its task or its function was stalled.
    case own
    /// It occurred during the test, and its origin is unknown: any of these tests may have caused it, or one that is not judged.
    case unclear(among: [String])
    /// Its function was stalled, in this number of tests at once: cases of one test, or tests of one name in one file.
    case shared(by: Int)
    /// It was too long only because the machine gave the thread no processor.
    case machine
    /// The machine gave the monitor no processor either, or no stack: how long the thread waited for one, or what a worker did, is not known.
    case unmeasured
}

/// The tests to which a stall belongs. Most tests have nothing to do with it, and all tests of a suite may end after it: so what is the same for
/// all of them is determined once.
struct StallOrigin: Sendable {
    private let stall: StallReport
    /// Those whose task was stalled; if there are none, those whose function was.
    private let owners: [TestScope]
    /// In how many tests that function ran during the stall.
    private let callers: Int
    /// The names of the tests that may have caused it if it has no owners.
    private let suspects: [String]
    /// Those among which the workers of a pool are looked for.
    private let scopes: [TestScope]

    /// - Parameter scopes: All scopes of that time.
    init(of stall: StallReport, among scopes: [TestScope]) {
        let code = StalledCode(of: stall)
        let tasks = scopes.filter { $0.isTask(of: code) }
        self.stall = stall
        owners = tasks.isEmpty ? scopes.filter { $0.isCaller(in: code) } : tasks
        // A part of a test has the task of its test; a part of a test case of XCTest has another one, and no other case runs.
        let areShared = tasks.isEmpty && !owners.contains { $0.place.isCase }
        callers = areShared ? Set(owners.filter { $0.overlap(with: stall) > 0 }.map(\.task)).count : 0
        suspects = owners.isEmpty ? Self.names(scopes.filter { $0.isTooLong(stall) }) : []
        self.scopes = owners.isEmpty || stall.watched.type != .taskPool ? [] : scopes
    }

    /// Nil if `scope` did not cause the stall, or the stall is not too long for it.
    func attribution(to scope: TestScope) -> StallAttribution? {
        guard scope.isTooLong(stall), !stall.isOfLedger else { return nil }
        if owners.isEmpty {
            // Every computing task occupies a worker for that time: the stall does not count for a test whose work is not involved.
            guard stall.watched.type != .taskPool, !stall.isOfTestBeside else { return nil }
        } else {
            guard owners.contains(where: { $0.number == scope.number }) else { return nil }
            // Alone, it would have left that worker free.
            if stall.hasWorker(ofOtherTestThan: scope, among: scopes) { return nil }
            if stall.mayHaveWorker(ofOtherTestThan: scope, among: scopes) { return .unmeasured }
        }
        guard let ownShare = stall.ownShare else { return .unmeasured }
        guard Double(scope.overlap(with: stall)) * ownShare > Double(scope.limit.nanoseconds) else { return .machine }
        guard !owners.isEmpty else { return .unclear(among: suspects) }
        return callers > 1 ? .shared(by: callers) : .own
    }

    private static func names(_ suspects: [TestScope]) -> [String] {
        // A part of a test, which has its test's task, is not named besides it; nor is a part of a test case of XCTest.
        let cases = suspects.filter(\.place.isCase)
        let tests = cases.isEmpty ? suspects : cases
        let names = Set(tests.map { [$0.place.name, $0.task.map { "\($0)" } ?? ""] }).map { $0[0] }
        return names.sorted()
    }
}

extension StallReport {
    /// The part of the stall in which the thread did not wait for a processor, 0 to 1. It is 1 if the kernel does not count such
    /// waits, and nil if the monitor could not measure it.
    fileprivate var ownShare: Double? {
        if cause.verdict == .paused { return 0 }
        return wasMissed ? nil : 1 - (cause.evidence?.runDelayShare ?? 0)
    }

    /// Whether nothing shows what the thread did. The monitor's own thread got no processor, so that it read the thread's times only once, or
    /// came when the stall was over; or the machine lets it take no stacks. Times that were read before the stall and long after it show a
    /// thread that slept, whatever it did in the stall.
    private var wasMissed: Bool {
        guard cause.verdict == .unknown else { return false }
        return cause.evidence?.windowNs == 0 || stalledStacks.allSatisfy(\.frames.isEmpty)
    }
}

extension Duration {
    /// Clamped to the range of `Int64`, and not negative.
    var nanoseconds: Int64 {
        let count = self / .nanoseconds(1)
        return count >= 9.2e18 ? .max : Int64(max(count, 0))
    }
}

/// What a test reports about a stall, as an issue.
package struct StallVerdict {
    let stall: StallReport
    let origin: StallAttribution
    let scope: TestScope
    let directory: String

    /// Of the tests that may have caused the stall. All tests may run at the same time, and each of them gets an issue with these names.
    private static let mostNames = 10

    /// Called in the test's own task: Swift Testing uses the task to assign the issue to the test.
    ///
    /// - Parameter place: The location of the issue if the stalled function has no known source line.
    func record(at place: SourceLocation) {
        let location = culpritLocation ?? place
        guard !isFailure else {
            Issue.record("\(text)", sourceLocation: location)
            return
        }
        #if compiler(>=6.3)
            Issue.record("\(text)", severity: .warning, sourceLocation: location)
        #else
            TestMonitor.say(text)
        #endif
    }

    /// Whether the test fails. Otherwise the text is a warning.
    package var isFailure: Bool { origin != .machine && origin != .unmeasured }

    package var text: String {
        let known = max(stall.durationNs, scope.overlap(with: stall))
        let (length, limit) = (DurationText(nanoseconds: known / 1_000_000 * 1_000_000), scope.limit.nanoseconds)
        let label = stall.watched.label
        let subject = stall.watched.type == .taskPool ? "All workers of \(label) were" : "\(label) was"
        var text = "\(subject) stalled for \(length), longer than \(DurationText(nanoseconds: limit))"
        if let name = stall.culpritName { text += ", in \(name)" }
        text += ". \(stall.cause.summary)"
        let missing = stall.stacklessReason.map { " There is no stack of it: \($0)" }
        text += missing ?? ""
        switch origin {
        case .own: break
        case .machine:
            text += " That is the machine's fault: without its wait for a processor it is not too long. Not counted."
        case .unmeasured:
            text += missing == nil ? " The machine was too busy to measure what the work itself did." : ""
            text += " Not counted."
        case .unclear(let names) where names.count > 1:
            text += " It is not known whose work it was. Of the tests that are judged, these ran meanwhile: "
            text += Self.list(names)
        case .shared(let count):
            text += " \(count) tests ran this function meanwhile: it is not known whose work it was."
        case .unclear:
            text += " It occurred during this test, but neither the test's task nor its function was found stalled:"
            text += " it may be the work of a test that is not judged."
        }
        return text + " Report: stall-monitor show \(stall.id) \(directory)"
    }

    /// - Parameter names: In order. Cases of one test have the same name.
    private static func list(_ names: [String]) -> String {
        var groups: [(name: String, count: Int)] = []
        for name in names {
            if groups.last?.name != name { groups.append((name, 0)) }
            groups[groups.count - 1].count += 1
        }
        let shown = groups.prefix(mostNames).map { $0.count > 1 ? "\($0.name) ×\($0.count)" : $0.name }
        let others = groups.count > mostNames ? " and \(groups.count - mostNames) others." : "."
        return shown.joined(separator: ", ") + others
    }

    /// The line of the stalled function; if it is not known, that of the test or of the call of `expectNoStalls`. Nil for a test case of
    /// XCTest, whose line nobody tells, if it is not on the stack.
    package var place: SourceLine? { culpritLine ?? scope.place.line ?? scope.line(in: stall) }

    private var culpritLine: SourceLine? {
        guard let culprit = stall.culprit, let file = culprit.file, let line = culprit.line, line > 0 else {
            return nil
        }
        return SourceLine(file: file, number: line)
    }

    private var culpritLocation: SourceLocation? {
        guard let line = culpritLine, let name = line.file.split(separator: "/").last else { return nil }
        // Swift Testing requires a module before the file's name.
        let module = stall.culprit?.module ?? "unknown"
        return SourceLocation(fileID: "\(module)/\(name)", filePath: line.file, line: line.number, column: 1)
    }
}

extension StallReport {
    var stalledStacks: [Stack] { stacks.filter { $0.role == .stalled } }

    /// Why no stack could be taken, as a sentence: the machine was too busy, or does not let the monitor take any. Nil if there is one.
    fileprivate var stacklessReason: String? {
        guard stalledStacks.allSatisfy(\.frames.isEmpty), let reason = stalledStacks.first?.error else { return nil }
        return reason.hasSuffix(".") ? reason : reason + "."
    }

    /// Whether it is this library's own: on a busy machine, a test that begins or is judged may wait for a thread that judges another one and
    /// gets no processor. Such a worker would have been free for the pool.
    fileprivate var isOfLedger: Bool {
        let areInIt = stalledStacks.map(\.isInLedger)
        return watched.type == .taskPool ? areInIt.contains(true) : !areInIt.isEmpty && !areInIt.contains(false)
    }

    /// Whether all of the stalled work is what a test does in its own task. With no scope for that task, the test is one that is not judged.
    fileprivate var isOfTestBeside: Bool { !stalledStacks.isEmpty && stalledStacks.allSatisfy(\.isOfTest) }

    /// Whether one of a pool's workers was in another test than that of `scope`.
    fileprivate func hasWorker(ofOtherTestThan scope: TestScope, among scopes: [TestScope]) -> Bool {
        pool?.workers.contains { isOfOtherTest($0, than: scope, among: scopes) } ?? false
    }

    /// Whether that is possible: on a busy machine a worker may not get to copy its stack, and then it may have been in any test that ran.
    fileprivate func mayHaveWorker(ofOtherTestThan scope: TestScope, among scopes: [TestScope]) -> Bool {
        guard let pool, pool.workers.contains(where: { $0.task == nil && $0.stack == nil }) else { return false }
        return scopes.contains { $0.task != scope.task && $0.overlap(with: self) > 0 }
    }

    /// Whether a worker was in another test than that of `scope`. A worker whose task is of unknown origin may be in that one.
    private func isOfOtherTest(_ worker: Worker, than scope: TestScope, among scopes: [TestScope]) -> Bool {
        if let task = worker.task {
            guard task != scope.task.map(UInt64.init) else { return false }
            if scopes.contains(where: { $0.task.map(UInt64.init) == task }) { return true }
        }
        guard let index = worker.stack, stacks.indices.contains(index) else { return false }
        let code = StalledCode(in: [stacks[index]])
        // First, because the body of a test may run in a child task, as with a time limit.
        guard !scope.isCaller(in: code) else { return false }
        return stacks[index].isOfTest || scopes.contains { $0.isCaller(in: code) }
    }
}

extension StallReport.Stack {
    /// Whether the thread was in ``TestLedger``, which calls no code of a test.
    fileprivate var isInLedger: Bool {
        frames.contains { $0.symbol?.hasPrefix("$s12StallTesting10TestLedgerC") == true }
    }

    /// Whether Swift Testing itself awaits the work: then it is what a test does in its own task. The name is private: with a version that has
    /// another one, such work is of unknown origin.
    fileprivate var isOfTest: Bool {
        guard let callers = async, callers.task != nil else { return false }
        return callers.frames.contains { $0.function?.contains("Runner._runTestCase(") == true }
    }
}
