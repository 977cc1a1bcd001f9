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
    /// that the test is not judged, and a line on standard error says so. To read the names of a large program
    /// for the first time takes a busy machine more than ten seconds.
    private static let patience = 60
    /// For how many seconds the first test waits until the main thread's loop is watched.
    private static let patienceForLoop = 10

    private let ledger: TestLedger
    private let directory: String
    private let monitor: StallMonitor
    private let questions: Questions
    private let stoppedNotice = StoppedNotice()

    private init() {
        let (ledger, directory) = (TestLedger(), Self.directory)
        (self.ledger, self.directory) = (ledger, directory)
        monitor = StallMonitor.start(Self.configuration(directory), watching: .everything) { event in
            switch event {
            case .began(let report), .grew(let report), .ended(let report): ledger.note(report)
            case .fault(let error) where error.code == .captureUnavailable:
                Self.say("Without a stack, a stall fails a test only if its thread is known to have computed. \(error)")
            case .fault(let error): Self.say("\(error)")
            case .suppressed, .mended: break
            }
        }
        questions = Questions { [monitor] answered in monitor.settle(answered) }
        MainActorJobs.countEach()
        // Completes the run record.
        atexit { TestMonitor.shared.monitor.stop() }
    }

    /// Waits until the main thread's loop, which is the calling thread's, is watched. What stalls it before that is not seen. Returns at once if
    /// it cannot be watched.
    ///
    /// - Parameter rest: Lets the loop rest for a moment: it is found by its rests.
    package func awaitMainLoop(resting rest: () -> Void) {
        let end = ContinuousClock.now + .seconds(Self.patienceForLoop)
        while monitor.isYetToWatchMain {
            guard ContinuousClock.now < end else {
                return Self.say("The main thread's loop is not watched. In the first tests its stalls may be missed.")
            }
            rest()
        }
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
        let name = ledger.name(of: number) ?? "a test"
        defer { ledger.forget(number) }
        if isSettled != nil {
            Self.say("\(name) was not judged. The monitor did not answer for \(Self.patience) s.")
        } else if let line = stoppedNotice.line(about: name, "\(monitor.disarmed ?? StallMonitorError(.stopped))") {
            Self.say(line)
        }
        // The test's parts were judged, also if the test itself was not.
        return ledger.takeVerdicts(ofPartsOf: number)
    }

    /// Waits until all stalls that ended before are reported. False after a timeout.
    private nonisolated(nonsending) func settle() async -> Bool {
        let answer = Answer()
        let timeout = Task.detached {
            try? await Task.sleep(for: .seconds(Self.patience))
            answer.give(false)
        }
        defer { timeout.cancel() }
        let isSettled = await withCheckedContinuation { continuation in
            answer.wait(continuation)
            questions.add { answer.give(true) }
        }
        // The monitor may have dropped the question.
        if !isSettled { questions.askForAll() }
        return isSettled
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

/// What is said when the monitor does not run any more: once, although all later tests are not judged, either.
final class StoppedNotice: Sendable {
    private let said = ForkSafeMutex<String?>(nil)

    /// - Parameters:
    ///   - name: The name of a test that is not judged.
    ///   - reason: Why not, as a sentence.
    /// - Returns: Nil if that reason was the last one, too.
    func line(about name: String, _ reason: String) -> String? {
        let isNew = said.withLock { said in
            defer { said = reason }
            return said != reason
        }
        return isNew ? "\(name) was not judged, and no later test is. \(reason)" : nil
    }
}

/// The tests that wait for the monitor's answer. It is asked for all of them at once: its queue is bounded, and the tests of a whole suite may
/// end while it makes a report.
final class Questions: Sendable {
    private struct State: Sendable {
        /// Those for which it has not been asked yet.
        var waiting: [@Sendable () -> Void] = []
        var isAsked = false
    }

    private let state = ForkSafeMutex(State())
    private let ask: @Sendable (_ answered: @escaping @Sendable () -> Void) -> Void

    /// - Parameter ask: Calls the closure that it is given once everything was reported that ended before.
    init(ask: @escaping @Sendable (_ answered: @escaping @Sendable () -> Void) -> Void) { self.ask = ask }

    /// - Parameter answered: Called once everything was reported that ended before this.
    func add(_ answered: @escaping @Sendable () -> Void) {
        let isFirst = state.withLock { state in
            state.waiting.append(answered)
            defer { state.isAsked = true }
            return !state.isAsked
        }
        if isFirst { askForAll() }
    }

    /// Asks for those that wait, whether or not the question before was answered. What is added from now on has to wait for the next one.
    func askForAll() {
        let answered = state.withLock { state in
            defer { state.waiting = [] }
            state.isAsked = !state.waiting.isEmpty
            return state.waiting
        }
        guard !answered.isEmpty else { return }
        ask { [self] in
            for answered in answered { answered() }
            askForAll()
        }
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
