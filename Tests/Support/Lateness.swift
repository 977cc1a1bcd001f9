import Glibc
import RunLoopKit
import Synchronization
public import Testing

/// Measures how late the machine schedules threads: a thread on each CPU repeatedly sleeps for a moment and measures
/// by how much it overslept. A test about real time uses this to find out whether the machine caused a failure.
public final class LatenessWitness: Sendable {
    private static let rest = Duration.milliseconds(2)
    private struct State: Sendable {
        var longest = Duration.zero
        /// When each thread that still sleeps, or has not begun, is to wake up.
        var due: [MonotonicInstant]
    }

    private let state: Mutex<State>
    private let isOver = Atomic(false)

    public init() {
        let processors = max(1, sysconf(Int32(_SC_NPROCESSORS_ONLN)))
        state = Mutex(State(due: Array(repeating: .now.advanced(by: Self.rest), count: processors)))
        for processor in 0..<processors {
            startThread { [weak self] in
                confine(to: processor)
                while let self, !self.isOver.load(ordering: .relaxed) { self.look(processor) }
            }
        }
    }

    /// The witness of the running test, if that is repeated when late.
    @TaskLocal fileprivate static var current: LatenessWitness?

    /// Notes a delay that the test itself measured, of a thread that starved although others woke up in time.
    public static func note(_ lateness: Duration) { current?.note(lateness) }

    /// The greatest delay so far, of any of its threads or noted by the test. A thread that is to have woken up and has not counts, too: a
    /// test that has failed may be the first one to run after a delay.
    public var longest: Duration {
        state.withLock { state in
            let now = MonotonicInstant.now
            return state.due.reduce(state.longest) { max($0, $1.duration(to: now)) }
        }
    }

    /// Ends its threads.
    public func end() { isOver.store(true, ordering: .relaxed) }

    private func look(_ processor: Int) {
        usleep(UInt32(Self.rest / .microseconds(1)))
        state.withLock { state in
            let now = MonotonicInstant.now
            state.longest = max(state.longest, state.due[processor].duration(to: now))
            state.due[processor] = now.advanced(by: Self.rest)
        }
    }

    private func note(_ lateness: Duration) { state.withLock { $0.longest = max($0.longest, lateness) } }
}

/// A failing test is repeated if the machine was late while it ran, a few times, and each time is printed. If the machine was
/// late every time, the result is unknown: the test is then skipped, with that reason. On a machine that is not late, a failure
/// counts.
public struct RepetitionWhenLate: SuiteTrait, TestTrait, TestScoping {
    /// The lateness that the test tolerates.
    var tolerance: Duration
    var attempts: Int

    public var isRecursive: Bool { true }

    public func provideScope(
        for test: Test,
        testCase: Test.Case?,
        performing function: @Sendable () async throws -> Void
    ) async throws {
        guard testCase != nil else { return try await function() }
        var latest = Duration.zero
        for attempt in 1...attempts {
            let witness = LatenessWitness()
            defer { witness.end() }
            let isExcused = Atomic(false)
            try await withKnownIssue("the machine was late", isIntermittent: true) {
                try await LatenessWitness.$current.withValue(witness) { try await function() }
            } matching: { [tolerance] _ in
                guard witness.longest > tolerance else { return false }
                isExcused.store(true, ordering: .relaxed)
                return true
            }
            guard isExcused.load(ordering: .relaxed) else { return }
            latest = witness.longest
            print("late: \(test.name), attempt \(attempt) of \(attempts): the machine was late by \(latest)")
        }
        try skip("the machine was late in each of \(attempts) attempts, by \(latest) in the last one")
    }

    private func skip(_ reason: String) throws {
        #if compiler(>=6.3)
            try Test.cancel("\(reason)")
        #else
            Issue.record("\(reason)")
        #endif
    }
}

extension Trait where Self == RepetitionWhenLate {
    /// For a test about real time. If it fails it is repeated, five times at most, if a thread of this machine was late by
    /// more than `tolerance` while it ran.
    public static func repeatedWhenLate(by tolerance: Duration, attempts: Int = 5) -> Self {
        Self(tolerance: tolerance, attempts: attempts)
    }
}

/// A detached thread.
package func startThread(_ body: @escaping @Sendable () -> Void) {
    final class Box {
        let body: @Sendable () -> Void
        init(_ body: @escaping @Sendable () -> Void) { self.body = body }
    }
    var thread = pthread_t()
    let box = unsafe Unmanaged.passRetained(Box(body)).toOpaque()
    let error = unsafe pthread_create(
        &thread,
        nil,
        { argument in
            unsafe Unmanaged<Box>.fromOpaque(argument!).takeRetainedValue().body()
            return nil
        },
        box
    )
    precondition(error == 0, "the machine has no thread for a test")
    pthread_detach(thread)
}

/// Does blocking work on a separate thread: the threads that tests run on are few.
package func onThread<Result: Sendable>(_ work: @escaping @Sendable () throws -> Result) async throws -> Result {
    try await withCheckedThrowingContinuation { continuation in
        startThread { continuation.resume(with: Swift.Result { try work() }) }
    }
}
