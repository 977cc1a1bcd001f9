import Dispatch
import Glibc
import Locking
import StallDetection
import StallMonitor
import StallMonitorLoops
import StallReports

/// The only monitor of the test process. It is created by the first test that is checked for stalls.
package final class TestMonitor: Sendable {
    package static let shared = TestMonitor()
    /// The shortest stall that the monitor detects. A shorter limit could not be distinguished from a thread that woke up late.
    static let shortestLimit = Duration.milliseconds(50)
    /// For how many seconds a test waits at its end for the monitor's results. After
    /// that the test is not judged, and a line on standard error says so.
    private static let patience = 10

    private let ledger: TestLedger
    private let directory: String
    private let monitor: StallMonitor

    private init() {
        let (ledger, directory) = (TestLedger(), Self.directory)
        (self.ledger, self.directory) = (ledger, directory)
        monitor = StallMonitor.start(Self.configuration(directory), watching: .everything) { event in
            switch event {
            case .began(let report), .grew(let report), .ended(let report): ledger.note(report)
            case .fault(let error): Self.say("\(error)")
            case .suppressed, .mended: break
            }
        }
        MainActorJobs.countEach()
        // Completes the run record.
        atexit { TestMonitor.shared.monitor.stop() }
    }

    package func begin(_ place: TestPlace, limit: Duration) -> Int {
        ledger.begin(place, limit: max(limit, Self.shortestLimit))
    }

    /// The stalls since the beginning of a scope that the scope caused.
    nonisolated(nonsending) func end(_ number: Int) async -> [StallVerdict] {
        ledger.end(number)
        return judge(number, isSettled: monitor.isRunning ? await settle() : nil)
    }

    /// The same for a caller that is not asynchronous.
    ///
    /// - Parameter rest: Lets the calling thread's loop rest for a moment. Called until the monitor has answered: so the scope's own stall
    ///   ends here, and the wait for the answer is neither a part of it nor another stall.
    package func finish(_ number: Int, resting rest: () -> Void) -> [StallVerdict] {
        ledger.end(number)
        guard monitor.isRunning else { return judge(number, isSettled: nil) }
        rest()
        let settled = DispatchSemaphore(value: 0)
        monitor.settle { settled.signal() }
        let end = ContinuousClock.now + .seconds(Self.patience)
        var isSettled = false
        repeat {
            rest()
            isSettled = settled.wait(timeout: .now()) == .success
        } while !isSettled && ContinuousClock.now < end
        return judge(number, isSettled: isSettled)
    }

    /// - Parameter isSettled: Whether the monitor answered in time. Nil if it does not run.
    private func judge(_ number: Int, isSettled: Bool?) -> [StallVerdict] {
        if isSettled == true { return ledger.judge(number, directory) }
        ledger.forget(number)
        let reason =
            isSettled == nil
            ? "\(monitor.disarmed ?? StallMonitorError(.stopped))"
            : "The monitor did not answer for \(Self.patience) s."
        Self.say("a test was not judged. \(reason)")
        return []
    }

    /// Waits until all stalls that ended before are reported. False after a timeout.
    private nonisolated(nonsending) func settle() async -> Bool {
        let answer = Answer()
        let timeout = Task.detached {
            try? await Task.sleep(for: .seconds(Self.patience))
            answer.give(false)
        }
        defer { timeout.cancel() }
        return await withCheckedContinuation { continuation in
            answer.wait(continuation)
            monitor.settle { answer.give(true) }
        }
    }

    private static func configuration(_ directory: String) -> StallMonitor.Configuration {
        var configuration = StallMonitor.Configuration(
            directory: directory,
            // A test may spend time on naming its stall, and no stall may be skipped.
            cost: StallMonitor.CostLimits(
                processorShare: 1,
                processorBurst: .seconds(60),
                heldShare: 0.1,
                heldBurst: .seconds(10)
            ),
            // Only `blocked` stalls: turns that are long because tests share a loop are not caused by one test.
            rule: StallRule(tick: shortestLimit / 5, ticks: 5, repeated: nil, congested: nil),
            repeats: .everyStall,
            ownCode: OwnCode(libraries: ["StallTesting"]),
            keepsLiveRecord: false
        )
        configuration.takesGraceOfEnvironment = false
        return configuration
    }

    /// The directory from the environment, or otherwise one in the build directory, which is not under version control.
    private static var directory: String {
        guard unsafe getenv(ReportDirectory.environmentVariable) == nil, unsafe access(".build", W_OK) == 0 else {
            return ReportDirectory.defaultPath
        }
        return ".build/stall-reports"
    }

    package static func say(_ text: String) {
        let line = "StallTesting: \(text)\n"
        _ = unsafe line.utf8.withContiguousStorageIfAvailable { unsafe write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }
}

/// One answer to one waiting task; the first answer counts.
private final class Answer: Sendable {
    private enum State: Sendable {
        case none
        case awaited(CheckedContinuation<Bool, Never>)
        case given(Bool)
    }

    private let state = ForkSafeMutex(State.none)

    /// Called once.
    func wait(_ continuation: CheckedContinuation<Bool, Never>) {
        let answer: Bool? = state.withLock { state in
            if case .given(let answer) = state { return answer }
            state = .awaited(continuation)
            return nil
        }
        if let answer { continuation.resume(returning: answer) }
    }

    func give(_ answer: Bool) {
        let waiting: CheckedContinuation<Bool, Never>? = state.withLock { state in
            if case .given = state { return nil }
            defer { state = .given(answer) }
            if case .awaited(let continuation) = state { return continuation }
            return nil
        }
        waiting?.resume(returning: answer)
    }
}

/// The tests that are running, the tests that overlapped with them, and the stalls of that time.
///
/// All tests of a suite may run at once. So a test that stalls nothing looks at no other test, neither at its beginning nor at its end.
final class TestLedger: Sendable {
    private struct State: Sendable {
        var scopes: [Int: TestScope] = [:]
        /// The scopes not judged yet.
        var open: Set<Int> = []
        var stalls: [ULID: StallReport] = [:]
        var last = 0
        /// With this number of scopes and stalls, those that are over are searched for again: twice as many as were left the last time.
        var full = leastFull

        static let leastFull = 64
    }

    private let state = ForkSafeMutex(State())

    /// How many scopes and stalls are kept.
    var count: Int { state.withLock { $0.scopes.count + $0.stalls.count } }

    func begin(_ place: TestPlace, limit: Duration) -> Int {
        let task = TestScope.currentTask
        return state.withLock { state in
            state.last += 1
            state.open.insert(state.last)
            state.scopes[state.last] = TestScope(
                number: state.last,
                place: place,
                limit: limit,
                task: task,
                began: .now()
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
            let isKept = !state.open.isEmpty || report.endedAt == nil
            return isKept
                ? state.stalls.updateValue(report, forKey: report.id) : state.stalls.removeValue(forKey: report.id)
        }
        withExtendedLifetime(former) {}
    }

    func judge(_ number: Int, _ directory: String) -> [StallVerdict] {
        defer { forget(number) }
        let (scope, scopes, stalls): (TestScope?, [TestScope], [StallReport]) = state.withLock { state in
            let scope = state.scopes[number]
            let stalls = state.stalls.values.filter { stall in
                scope.map { $0.isTooLong(stall) && !$0.told.contains(stall.id) } ?? false
            }
            return (scope, stalls.isEmpty ? [] : Array(state.scopes.values), stalls)
        }
        guard let scope else { return [] }
        let verdicts = stalls.sorted { $0.startedAt < $1.startedAt }.compactMap { stall in
            StallAttribution.of(stall, for: scope, among: scopes).map {
                StallVerdict(stall: stall, origin: $0, scope: scope, directory: directory)
            }
        }
        noteTold(Set(verdicts.filter(\.isFailure).map(\.stall.id)), in: scope.task)
        return verdicts
    }

    /// When a part of a test has failed, the test and its suite do not report the same stalls again.
    private func noteTold(_ stalls: Set<ULID>, in task: UInt32?) {
        guard !stalls.isEmpty, let task else { return }
        state.withLock { state in
            for number in state.open where state.scopes[number]?.task == task {
                state.scopes[number]?.told.formUnion(stalls)
            }
        }
    }

    /// Called when the scope was judged, or will not be judged. Now and then also removes scopes and stalls that ended before all unjudged
    /// scopes began.
    func forget(_ number: Int) {
        let former: ([Int: TestScope], [ULID: StallReport])? = state.withLock { state in
            state.open.remove(number)
            guard state.open.isEmpty || state.scopes.count + state.stalls.count >= state.full else { return nil }
            let former = (state.scopes, state.stalls)
            let earliest = state.open.compactMap { state.scopes[$0]?.began }.min()
            let isOver = { (end: Timestamp?) in end.map { end in earliest.map { end < $0 } ?? true } ?? false }
            state.scopes = state.scopes.filter { !isOver($0.value.ended) || state.open.contains($0.key) }
            state.stalls = state.stalls.filter { !isOver($0.value.endedAt) }
            state.full = max(State.leastFull, 2 * (state.scopes.count + state.stalls.count))
            return former
        }
        withExtendedLifetime(former) {}
    }
}
