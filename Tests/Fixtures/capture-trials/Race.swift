import CTrials
import Foundation
import StackCapture

/// A computing thread that enters a call between the last check and the signal: the only way in which a signal can interrupt a
/// call. The thread makes 100,000 calls per second, and counts the calls that return EINTR.
struct Race {
    private let part: Part

    init(_ part: Part) { self.part = part }

    private static let kinds: [(String, trial_caller_kind)] = [
        ("poll", TRIAL_CALLS_POLL), ("ppoll", TRIAL_CALLS_PPOLL), ("select", TRIAL_CALLS_SELECT),
        ("epoll", TRIAL_CALLS_EPOLL), ("read", TRIAL_CALLS_READ), ("sleep", TRIAL_CALLS_SLEEP),
    ]

    func run(_ findings: inout Findings) {
        guard let capturer = try? StackCapturer() else { return findings.fail("no capturer") }
        print("Race: a thread that computes and makes 100,000 calls a second")
        for (name, kind) in Self.kinds where part.includes(name) {
            race(name, kind, capturer, &findings)
        }
    }

    private func race(
        _ name: String,
        _ kind: trial_caller_kind,
        _ capturer: StackCapturer,
        _ findings: inout Findings
    ) {
        let caller = unsafe trial_caller_start(kind, 100_000)
        let identity = ThreadIdentity(unsafe trial_caller_thread(caller))
        let began = trial_now_ns()
        let before = capturer.counters
        var failures: [String: Int] = [:]
        let tries = part.isShort ? 500 : 50_000
        for _ in 0..<tries {
            if case .failure(let error) = capturer.capture(identity) {
                failures[error.code.name, default: 0] += 1
            }
            if trial_now_ns() - began > 60_000_000_000 { break }
        }
        let seconds = Double(trial_now_ns() - began) / 1e9
        let calls = unsafe trial_caller_calls(caller)
        let cutShort = unsafe trial_caller_cut_short(caller)
        unsafe trial_caller_finish(caller)
        let counted = capturer.counters.callsCutShort - before.callsCutShort
        print(
            "  \(column(name, 8)) \(Int(Double(calls) / seconds)) calls a second, \(tries) tries, failed \(failures), "
                + "\(capturer.counters.signalsSent - before.signalsSent) signals, \(cutShort) calls cut short, "
                + "\(counted) counted by the capturer: 1 in \(cutShort == 0 ? "none" : String(UInt64(tries) / cutShort))"
        )
        findings.expect(counted == cutShort, "\(name): the capturer counts what the thread sees")
        findings.expect(
            cutShort * 10_000 <= tries || (part.isShort && cutShort == 0),
            "\(name): at most 1 in 10,000"
        )
    }
}
