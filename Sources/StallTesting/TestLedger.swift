import Locking
import StallMonitor
import StallReports

/// The function of a test, or of the judged part of a test.
package struct TestPlace: Sendable {
    /// In the format of `Test.name` and `#function`: `checkout(basket:)`.
    let name: String
    /// The name of its source file. Nil if it is not known: XCTest does not provide it.
    let file: String?
    /// Whether it is a test case of XCTest, of which one runs at a time.
    let isCase: Bool
    /// Where the test or the call of `expectNoStalls` is, with the file's path. Nil if it is not known.
    let line: SourceLine?
    let function: FunctionName

    package init(name: String, file: String?, line: SourceLine? = nil, isCase: Bool = false) {
        (self.name, self.file, self.line, self.isCase, function) = (name, file, line, isCase, FunctionName(name))
    }
}

/// A line of a source file.
package struct SourceLine: Hashable, Sendable {
    package let file: String
    package let number: Int

    package init(file: String, number: Int) { (self.file, self.number) = (file, number) }
}

/// A test, or a part of one, during which no watched loop may stall.
struct TestScope: Sendable {
    let number: Int
    var place: TestPlace
    let limit: Duration
    /// The lower half of its task's number, which is the part in a captured stack. Nil if the runtime does not provide it.
    let task: UInt32?
    let began: Timestamp
    /// Nil while it is running.
    var ended: Timestamp?
    /// The test case of XCTest that ran when it began. Nil for a test case itself, and for tests of Swift Testing.
    var ofCase: Int?

    /// The part of a stall that overlaps with the scope, in nanoseconds. A stall that is not over lasts at least until the scope's
    /// end: scopes are judged when all stalls that ended before are reported. It is at most the stall's length without excluded time,
    /// because it is not known when that was.
    func overlap(with stall: StallReport) -> Int64 {
        let knownEnd = stall.startedAt.advanced(byNanoseconds: stall.lengthNs)
        let stallEnd = stall.endedAt == nil ? max(ended ?? knownEnd, knownEnd) : knownEnd
        let overlap = min(stallEnd, ended ?? stallEnd).nanoseconds(since: max(stall.startedAt, began))
        return min(overlap, stallEnd.nanoseconds(since: stall.startedAt) - (stall.excludedNs ?? 0))
    }

    /// Whether that part is longer than the scope's limit.
    func isTooLong(_ stall: StallReport) -> Bool { overlap(with: stall) > limit.nanoseconds }

    /// Whether the scope's task was stalled.
    func isTask(of code: StalledCode) -> Bool { task.map { code.tasks.contains(UInt64($0)) } ?? false }

    /// Whether its function, or a closure in it, was on the stalled stack, or awaited a function there.
    func isCaller(in code: StalledCode) -> Bool {
        guard code.whole.contains(place.function) else { return false }
        return code.functions.contains { isItsOwn($0.name, in: $0.file) }
    }

    private func isItsOwn(_ function: FunctionName, in path: String?) -> Bool {
        guard function.contains(place.function) else { return false }
        guard let file = place.file, let path else { return true }
        return path == file || path.hasSuffix("/" + file)
    }

    /// Its line in what was found stalled. Nil if it is not there, or has no known line.
    func line(in stall: StallReport) -> SourceLine? {
        for frame in stall.stalledStacks.flatMap({ $0.frames + ($0.async?.frames ?? []) }) {
            guard let function = frame.function, let file = frame.file, let line = frame.line, line > 0,
                isItsOwn(FunctionName(function), in: file)
            else { continue }
            return SourceLine(file: file, number: line)
        }
        return nil
    }

    /// The lower half of the calling task's number. Nil outside a task.
    static var currentTask: UInt32? { WorkKey.currentTaskNumber }
}

extension StallReport {
    /// From start to end, including excluded time.
    fileprivate var lengthNs: Int64 { durationNs.addingReportingOverflow(excludedNs ?? 0).partialValue }
}

/// The tests that are running, the tests that overlapped with them, and the stalls of that time.
///
/// All tests of a suite may run at once. So a test looks at the others neither at its beginning nor at its end, but for the first one that is
/// judged after a stall.
final class TestLedger: Sendable {
    private struct State: Sendable {
        var scopes: [Int: TestScope] = [:]
        /// The scopes not judged yet.
        var open: Set<Int> = []
        var stalls: [ULID: NotedStall] = [:]
        /// The test case of XCTest that runs, and what its parts leave to it.
        var runningCase: Int?
        var leftToCase: [StallVerdict] = []
        var last = 0
        /// With this number of scopes and stalls, those that are over are searched for again: twice as many as were left the last time.
        var full = leastFull

        static let leastFull = 64
    }

    private let state = ForkSafeMutex(State())

    /// How many scopes and stalls are kept.
    var count: Int { state.withLock { $0.scopes.count + $0.stalls.count } }

    /// The name of the test. Nil once it was judged, and no longer needed to judge others.
    func name(of number: Int) -> String? { state.withLock { $0.scopes[number]?.place.name } }

    func begin(_ place: TestPlace, limit: Duration) -> Int {
        let task = TestScope.currentTask
        return state.withLock { state in
            state.last += 1
            state.open.insert(state.last)
            // One that did not end leaves nothing to the next one.
            if place.isCase { (state.runningCase, state.leftToCase) = (state.last, []) }
            state.scopes[state.last] = TestScope(
                number: state.last,
                place: place,
                limit: limit,
                task: task,
                began: .now(),
                ofCase: place.isCase ? nil : state.runningCase
            )
            return state.last
        }
    }

    func end(_ number: Int) {
        // Before the lock: a wait for it is not a part of the test.
        let now = Timestamp.now()
        state.withLock { $0.scopes[number]?.ended = now }
    }

    func note(_ report: StallReport) {
        let former = state.withLock { state in
            // One that is over concerns no later test.
            guard !state.open.isEmpty || report.endedAt == nil else {
                return state.stalls.removeValue(forKey: report.id)
            }
            let told = state.stalls[report.id]?.told ?? []
            return state.stalls.updateValue(NotedStall(report: report, told: told), forKey: report.id)
        }
        withExtendedLifetime(former) {}
    }

    func judge(_ number: Int, _ directory: String) -> [StallVerdict] {
        defer { forget(number) }
        let (scope, noted, scopes): (TestScope?, [NotedStall], [TestScope]) = state.withLock { state in
            guard let scope = state.scopes[number] else { return (nil, [], []) }
            let noted = state.stalls.values.filter { scope.isTooLong($0.report) && !$0.isTold(in: scope.task) }
            let isKnown = noted.allSatisfy { $0.origin != nil }
            return (scope, noted, isKnown ? [] : Array(state.scopes.values))
        }
        guard let scope else { return [] }
        let verdicts = noted.sorted { $0.report.startedAt < $1.report.startedAt }.compactMap { noted in
            let stall = noted.report
            let origin = noted.origin ?? StallOrigin(of: stall, among: scopes)
            let verdict = origin.attribution(to: scope).map {
                StallVerdict(stall: stall, origin: $0, scope: scope, directory: directory)
            }
            keep(origin, of: stall, tellingIn: verdict?.isFailure == true ? scope.task : nil)
            return verdict
        }
        return forCaller(verdicts, of: scope)
    }

    /// Who reports what a scope has found.
    private enum Teller {
        case caller
        /// The test case of XCTest that the scope is a part of. Swift Testing has no test for an issue while a case runs: it drops the issue, or
        /// makes it a second failure of the case.
        case runningCase
        /// A line on standard error: the scope's task was not awaited by its test case, and the case that runs now is not to blame.
        case standardError
    }

    /// What the caller has to report of what was found. A test case also reports what its parts have found.
    private func forCaller(_ verdicts: [StallVerdict], of scope: TestScope) -> [StallVerdict] {
        // Also ends the running case, if the scope is that case: then the caller is the one to tell.
        let parts = takeVerdicts(ofPartsOf: scope.number)
        let teller: Teller = state.withLock { state in
            guard let running = state.runningCase else { return .caller }
            guard scope.ofCase == running else { return .standardError }
            state.leftToCase += verdicts
            return .runningCase
        }
        switch teller {
        case .caller:
            let told = Set(parts.filter(\.isFailure).map(\.stall.id))
            return parts + verdicts.filter { !told.contains($0.stall.id) }
        case .runningCase: return []
        case .standardError:
            for verdict in verdicts { TestMonitor.say(verdict.text) }
            return []
        }
    }

    /// Parts in several tasks may have caused the same stall: the case fails once by it, and is not warned of what it fails by.
    private static func once(_ verdicts: [StallVerdict]) -> [StallVerdict] {
        let failing = Set(verdicts.filter(\.isFailure).map(\.stall.id))
        var told: Set<ULID> = []
        return verdicts.filter { verdict in
            let id = verdict.stall.id
            guard verdict.isFailure || !failing.contains(id) else { return false }
            return told.insert(id).inserted
        }
    }

    /// What the parts of a test case of XCTest have left to it, at its end. None for any other test.
    func takeVerdicts(ofPartsOf number: Int) -> [StallVerdict] {
        state.withLock { state in
            guard state.runningCase == number else { return [] }
            defer { (state.runningCase, state.leftToCase) = (nil, []) }
            return Self.once(state.leftToCase)
        }
    }

    /// - Parameter task: That of a test which fails. Nil: none fails, or its task is not known.
    private func keep(_ origin: StallOrigin, of stall: StallReport, tellingIn task: UInt32?) {
        state.withLock { state in
            if let task { state.stalls[stall.id]?.told.insert(task) }
            // While it goes on, it may become too long for more tests.
            guard stall.endedAt != nil, state.stalls[stall.id]?.origin == nil else { return }
            state.stalls[stall.id]?.origin = origin
        }
    }

    /// Called when the scope was judged, or will not be judged. Now and then also removes scopes and stalls that ended before all unjudged
    /// scopes began.
    func forget(_ number: Int) {
        let former: ([Int: TestScope], [ULID: NotedStall])? = state.withLock { state in
            state.open.remove(number)
            guard state.open.isEmpty || state.scopes.count + state.stalls.count >= state.full else { return nil }
            let former = (state.scopes, state.stalls)
            let earliest = state.open.compactMap { state.scopes[$0]?.began }.min()
            let isOver = { (end: Timestamp?) in end.map { end in earliest.map { end < $0 } ?? true } ?? false }
            state.scopes = state.scopes.filter { !isOver($0.value.ended) || state.open.contains($0.key) }
            state.stalls = state.stalls.filter { !isOver($0.value.report.endedAt) }
            state.full = max(State.leastFull, 2 * (state.scopes.count + state.stalls.count))
            return former
        }
        withExtendedLifetime(former) {}
    }
}

private struct NotedStall: Sendable {
    let report: StallReport
    /// The tasks whose test has failed by it, or a part of it.
    var told: Set<UInt32> = []
    /// Known once the stall is over: every test that it may concern has begun then.
    var origin: StallOrigin?

    /// When a part of a test has failed, the test and its suite do not report the same stall again.
    func isTold(in task: UInt32?) -> Bool { task.map(told.contains) ?? false }
}
