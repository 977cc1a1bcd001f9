import CCoexistence
import Glibc
import StackCapture

/// A thread to be captured. It is never freed: the process ends with its scenario.
@safe final class Subject {
    private let handle: OpaquePointer

    init(_ body: coexist_body) {
        unsafe handle = coexist_start(body)
    }

    var threadID: Int32 { unsafe coexist_thread_number(handle) }
    var stack: Range<UInt> { unsafe UInt(coexist_stack_low(handle))..<UInt(coexist_stack_high(handle)) }
    var hasReturned: Bool { unsafe coexist_has_returned(handle) }
    var rounds: UInt64 { unsafe coexist_rounds(handle) }
    /// The return addresses that its stack must contain, innermost first.
    var marks: [UInt] {
        let count = unsafe coexist_mark_count(handle)
        return (0..<count).reversed().map { unsafe UInt(coexist_mark(handle, $0)) }
    }

    func finish() { unsafe coexist_finish(handle) }
}

/// The captures of one scenario and the errors in them.
final class Trial {
    private var outcomes: [String: Int] = [:]
    private var longest = Duration.zero
    private var complaints: [String] = []
    private var reasonToSkip: String?
    private var notes: [String] = []

    /// Failures that may occur on a busy machine at any time.
    static let noise: Set<CaptureError.Code> = [.notDelivered, .threadKeptMoving, .handlerStuck]
    /// Far beyond all deadlines here: the machine may be busy, but nothing may hang.
    private static let bound = Duration.seconds(20)

    var hasFailed: Bool { !complaints.isEmpty }

    func skip(_ reason: String) { reasonToSkip = reason }

    func note(_ text: String) { notes.append(text) }

    func complain(_ text: String) {
        if complaints.count < 5 { complaints.append(text) }
    }

    func expect(_ condition: Bool, _ text: @autoclosure () -> String) {
        if !condition { complain(text()) }
    }

    @discardableResult
    func capture(_ subject: Subject, _ capturer: StackCapturer) -> Result<CapturedStack, CaptureError> {
        let clock = ContinuousClock()
        let began = clock.now
        let result = capturer.capture(threadID: subject.threadID, stack: subject.stack)
        longest = max(longest, clock.now - began)
        switch result {
        case .success(let stack): outcomes["\(stack.method)", default: 0] += 1
        case .failure(let error): outcomes[error.code.name, default: 0] += 1
        }
        expect(longest < Self.bound, "a capture took \(longest)")
        return result
    }

    /// Captures that must show the thread where it is. Some may fail for the given reasons, or because of noise; not all.
    func captures(
        _ subject: Subject,
        _ capturer: StackCapturer,
        times: Int = 30,
        method: CapturedStack.Method? = nil,
        isComplete: Bool? = true,
        allowing allowed: Set<CaptureError.Code> = [],
        atLeast least: Int = 1
    ) {
        var successes = 0
        for _ in 0..<times {
            switch capture(subject, capturer) {
            case .success(let stack) where method == nil || stack.method == method:
                successes += 1
                check(stack, subject, isComplete: isComplete)
            case .success: continue  // not there yet
            case .failure(let error):
                expect(allowed.union(Self.noise).contains(error.code), error.description)
            }
        }
        expect(successes >= least, "no capture succeeded: \(outcomes)")
    }

    private func check(_ stack: CapturedStack, _ subject: Subject, isComplete: Bool?) {
        var marks = subject.marks[...]
        for frame in stack.frames where frame.address == marks.first { marks.removeFirst() }
        let shown = stack.frames.map { String($0.address, radix: 16) }
        expect(marks.isEmpty, "\(stack.method) stack \(shown) lacks \(marks.map { String($0, radix: 16) })")
        if let isComplete {
            expect(stack.isComplete == isComplete, "truncation is \(stack.truncation.map { "\($0)" } ?? "none")")
        }
    }

    /// Captures that must fail for a reason. Some may fail because of noise; not all.
    func fails(_ subject: Subject, _ capturer: StackCapturer, _ code: CaptureError.Code, times: Int = 5) {
        var failures = 0
        for _ in 0..<times {
            switch capture(subject, capturer) {
            case .success(let stack): complain("a \(stack.method) capture succeeded, and should fail: \(code.name)")
            case .failure(let error):
                failures += error.code == code ? 1 : 0
                expect(error.code == code || Self.noise.contains(error.code), error.description)
            }
        }
        expect(failures > 0, "no capture failed with \(code.name): \(outcomes)")
    }

    /// Sends the application's own signal and waits until its handler has run `count` times. A signal that collides with a late
    /// one of ours is merged with it, as with another one of the application.
    ///
    /// - Parameter most: How often it is sent. Once, if none of ours can be under way and a second one would do harm.
    func send(_ signal: Int32, to subject: Subject, until count: UInt64, atMost most: Int = 20) {
        let clock = ContinuousClock()
        let end = clock.now + .seconds(20)
        var sent = 0
        var next = clock.now
        while coexist_handled() < count && clock.now < end {
            if clock.now >= next && sent < most {
                coexist_send(subject.threadID, signal)
                sent += 1
                next = clock.now + .milliseconds(500)
            }
            sched_yield()
        }
        expect(coexist_handled() >= count, "the application's signal was lost \(sent) times")
    }

    // The table.

    static let head = "\(padded("scenario", 28)) result   longest ms  outcomes"

    static func padded(_ text: String, _ width: Int) -> String {
        text + String(repeating: " ", count: max(0, width - text.utf8.count))
    }

    func line(for name: String) -> String {
        let result = hasFailed ? "FAILED" : reasonToSkip == nil ? "ok" : "skipped"
        let tenths = Int(longest / .microseconds(100))
        let time = "\(tenths / 10).\(tenths % 10)"
        let counts = outcomes.sorted { $0.key < $1.key }.map { "\($0.value) \($0.key)" }.joined(separator: ", ")
        let details = [counts, reasonToSkip ?? ""] + notes + complaints
        let padding = String(repeating: " ", count: max(0, 10 - time.utf8.count))
        return "\(Self.padded(name, 28)) \(Self.padded(result, 8)) \(padding)\(time)  "
            + details.filter { !$0.isEmpty }.joined(separator: "; ")
    }
}

extension StackCapturer {
    /// For threads that can be captured, on a machine that may not schedule them for a while.
    static func patient(_ signal: Int32 = SIGPROF) throws(CaptureError) -> StackCapturer {
        try StackCapturer(signal: signal, deadline: .seconds(2))
    }
}

/// A thread that repeats its work until the process ends.
enum Background {
    private final class Body {
        let run: @Sendable () -> Void
        init(_ run: @escaping @Sendable () -> Void) { self.run = run }
    }

    static func forever(_ run: @escaping @Sendable () -> Void) {
        var thread = pthread_t()
        let context = unsafe Unmanaged.passRetained(Body(run)).toOpaque()
        unsafe pthread_create(
            &thread,
            nil,
            { context in
                let body = unsafe Unmanaged<Body>.fromOpaque(context!).takeUnretainedValue()
                while true { body.run() }
            },
            context
        )
    }
}
