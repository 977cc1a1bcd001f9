import Glibc
import Locking
import StallDetection
import StallMonitor
import StallMonitorLoops
import StallReports

/// The one monitor of the test process. It is there from the first test on that wants no stalls.
final class TestMonitor: Sendable {
    static let shared = TestMonitor()
    /// What the monitor finds. A shorter limit could not be told from a thread that woke late.
    static let shortestLimit = Duration.milliseconds(50)
    /// How long a test waits at its end for what the monitor knows. Beyond that it is not judged, which is told.
    private static let patience = Duration.seconds(10)

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
        MainActorJobs.tellApart()
        // Ends the run record in order.
        atexit { TestMonitor.shared.monitor.stop() }
    }

    func begin(_ place: TestPlace, limit: Duration) -> Int {
        ledger.begin(place, limit: max(limit, Self.shortestLimit))
    }

    /// What stood still in the time of a scope, from its begin to now, as far as it is the scope's.
    nonisolated(nonsending) func end(_ number: Int) async -> [StallVerdict] {
        ledger.end(number)
        guard monitor.isRunning else {
            Self.say("a test was not judged. \(monitor.disarmed ?? StallMonitorError(.stopped))")
            ledger.forget(number)
            return []
        }
        guard await settle() else {
            Self.say("the monitor did not answer for \(Self.patience); a test was not judged")
            ledger.forget(number)
            return []
        }
        return ledger.judge(number, directory)
    }

    /// Waits until all stalls are told that ended before. False if that takes too long.
    private nonisolated(nonsending) func settle() async -> Bool {
        let answer = Answer()
        let timeout = Task.detached {
            try? await Task.sleep(for: Self.patience)
            answer.give(false)
        }
        defer { timeout.cancel() }
        return await withCheckedContinuation { continuation in
            answer.wait(continuation)
            monitor.settle { answer.give(true) }
        }
    }

    private static func configuration(_ directory: String) -> StallMonitor.Configuration {
        StallMonitor.Configuration(
            directory: directory,
            // A test is to pay for naming its stall, and every stall is somebody's.
            cost: StallMonitor.CostLimits(
                processorShare: 1,
                processorBurst: .seconds(60),
                heldShare: 0.1,
                heldBurst: .seconds(10)
            ),
            // Blocked alone: turns that are long because tests share a loop are no test's stall.
            rule: StallRule(tick: shortestLimit / 5, ticks: 5, repeated: nil, congested: nil),
            repeats: .everyStall,
            ownCode: OwnCode(libraries: ["StallTesting"]),
            keepsLiveRecord: false
        )
    }

    /// Where the environment says, else beside what was built, which no repository keeps.
    private static var directory: String {
        guard unsafe getenv(ReportDirectory.environmentVariable) == nil, unsafe access(".build", W_OK) == 0 else {
            return ReportDirectory.defaultPath
        }
        return ".build/stall-reports"
    }

    static func say(_ text: String) {
        let line = "StallTesting: \(text)\n"
        _ = unsafe line.utf8.withContiguousStorageIfAvailable { unsafe write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }
}

/// One answer to one waiting task, by whoever comes first.
private final class Answer: Sendable {
    private enum State: Sendable {
        case none
        case awaited(CheckedContinuation<Bool, Never>)
        case given(Bool)
    }

    private let state = ForkSafeMutex(State.none)

    /// Once.
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

/// The tests that run, those that ran beside them, and what stood still meanwhile.
final class TestLedger: Sendable {
    private struct State: Sendable {
        var scopes: [Int: TestScope] = [:]
        /// Those not judged yet.
        var open: Set<Int> = []
        var stalls: [ULID: StallReport] = [:]
        var last = 0
    }

    private let state = ForkSafeMutex(State())

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

    func end(_ number: Int) { state.withLock { $0.scopes[number]?.ended = .now() } }

    func note(_ report: StallReport) {
        let former = state.withLock { $0.stalls.updateValue(report, forKey: report.id) }
        withExtendedLifetime(former) {}
    }

    func judge(_ number: Int, _ directory: String) -> [StallVerdict] {
        let (scope, scopes, stalls) = state.withLock { state in
            (state.scopes[number], Array(state.scopes.values), Array(state.stalls.values))
        }
        defer { forget(number) }
        guard let scope else { return [] }
        return stalls.sorted { $0.startedAt < $1.startedAt }.compactMap { stall in
            StallFinding.of(stall, for: scope, among: scopes).map {
                StallVerdict(stall: stall, finding: $0, limit: scope.limit, directory: directory)
            }
        }
    }

    /// The scope is judged, or will not be. With it goes what is over before all that is not judged yet began.
    func forget(_ number: Int) {
        let former = state.withLock { state in
            defer {
                state.open.remove(number)
                let earliest = state.open.compactMap { state.scopes[$0]?.began }.min()
                let isOver = { (end: Timestamp?) in end.map { end in earliest.map { end < $0 } ?? true } ?? false }
                state.scopes = state.scopes.filter { !isOver($0.value.ended) || state.open.contains($0.key) }
                state.stalls = state.stalls.filter { !isOver($0.value.endedAt) }
            }
            return (state.scopes, state.stalls)
        }
        withExtendedLifetime(former) {}
    }
}
