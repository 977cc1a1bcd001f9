import CTrials
import Foundation
import StackCapture
import Symbolication

/// Every kind of blocking call, captured repeatedly while a thread is
/// in it. No call may return early, and every capture must name it.
struct Invisible {
    private let part: Part
    private let capturesPerCall: Int

    init(_ part: Part) {
        self.part = part
        capturesPerCall = part.isShort ? 10 : 50
    }

    func run(_ findings: inout Findings) {
        guard let capturer = try? StackCapturer(deadline: .seconds(5)) else {
            return findings.fail("no capturer")
        }
        print("Invisible: \(capturesPerCall) captures of a thread in each call")
        let outcomes = (0..<trial_block_count()).compactMap { outcome(of: $0, capturer, &findings) }
        let tried = outcomes.filter(\.isOffered)
        print(
            "  \(tried.count) calls, \(tried.reduce(0) { $0 + $1.captures }) captures, "
                + "\(tried.count(where: \.isEarly)) early, \(outcomes.count - tried.count) not offered here"
        )
        findings.expect(tried.count >= 30 || !part.selected.isEmpty, "at least 30 calls are offered")
    }

    private struct Outcome {
        var isOffered = true
        var captures = 0
        var isEarly = false
    }

    private func outcome(of index: Int, _ capturer: StackCapturer, _ findings: inout Findings)
        -> Outcome?
    {
        let name = unsafe String(cString: trial_block_name(index))
        guard part.includes(name) else { return nil }
        // On a busy machine the call's time may be over before the captures are done.
        for time in [200, 1000, 5000] {
            var error: Int32 = 0
            guard let block = unsafe trial_block_start(index, UInt64(time) * 1_000_000, &error) else {
                print("  \(column(name, 28)) not offered here: \(errorText(error))")
                return Outcome(isOffered: false)
            }
            let watched = unsafe Watched(block: block, index: index, capturer: capturer)
            let captures = watched.capture(capturesPerCall)
            let end = unsafe trial_block_finish(block)
            if captures.count < capturesPerCall && trial_block_is_timed(index) && !end.early
                && time < 5000
            {
                continue
            }
            judge(name, captures, end, &findings)
            return Outcome(captures: captures.count, isEarly: end.early)
        }
        return nil
    }

    private func judge(
        _ name: String,
        _ captures: Watched.Captures,
        _ end: trial_block_end,
        _ findings: inout Findings
    ) {
        print(
            "  \(column(name, 28))\(column(captures.count, 4, right: true)) captures, \(captures.quiet) quiet, "
                + "\(captures.named) named, \(captures.complete) complete, \(captures.signals) signals, "
                + "lasted \(end.lasted_ns / 1_000_000) ms, returned \(end.result)"
                + (end.error == 0 ? "" : " \(errorText(end.error))")
        )
        findings.expect(
            captures.count == capturesPerCall,
            "\(name): \(captures.problem ?? "too few captures")"
        )
        findings.expect(!end.early, "\(name): returned early")
        findings.expect(end.as_expected, "\(name): another result than without captures")
        findings.expect(captures.quiet == captures.count, "\(name): a capture was not quiet")
        findings.expect(captures.signals == 0, "\(name): a signal was sent")
        findings.expect(captures.named == captures.count, "\(name): a capture does not name the call")
        findings.expect(
            captures.complete == captures.count,
            "\(name): a stack does not come to the thread's first frame: \(captures.problem ?? "")"
        )
    }
}

/// A thread in its call. Safe: the creator of the block frees it after the last use of this value.
@safe private struct Watched {
    struct Captures {
        var count = 0
        var quiet = 0
        var named = 0
        var complete = 0
        var signals: UInt64 = 0
        var problem: String?
        var whole: [UInt] = []
    }

    let block: OpaquePointer
    let index: Int
    let capturer: StackCapturer

    init(block: OpaquePointer, index: Int, capturer: StackCapturer) {
        unsafe self.block = block
        self.index = index
        self.capturer = capturer
    }

    func capture(_ count: Int) -> Captures {
        var captures = Captures()
        guard unsafe trial_block_await(block, trial_now_ns() + 10_000_000_000) else {
            captures.problem = "the thread did not get into its call"
            return captures
        }
        let identity = ThreadIdentity(unsafe trial_block_thread(block))
        let sent = capturer.counters.signalsSent
        while captures.count < count {
            let result = capturer.capture(identity)
            // A capture during the end of the call proves nothing about it.
            if unsafe trial_block_has_returned(block) { break }
            guard note(result, &captures) else { break }
        }
        captures.signals = capturer.counters.signalsSent - sent
        return captures
    }

    private func note(_ result: Result<CapturedStack, CaptureError>, _ captures: inout Captures)
        -> Bool
    {
        switch result {
        case .failure(let error):
            captures.problem = "\(error)"
            return false
        case .success(let stack):
            captures.count += 1
            captures.quiet += stack.method == .quiet ? 1 : 0
            captures.named += isNamed(stack) ? 1 : 0
            captures.complete += isWhole(stack, &captures) ? 1 : 0
            return true
        }
    }

    /// Symbolication takes much longer than the capture: a stack that equals an earlier complete one is complete, too.
    private func isWhole(_ stack: CapturedStack, _ captures: inout Captures) -> Bool {
        let addresses = stack.frames.map(\.address)
        if addresses == captures.whole { return stack.isComplete }
        let names = Names.of(stack)
        guard stack.isComplete, names.contains("trial_block_thread_main") else {
            captures.problem = "\(names)"
            return false
        }
        captures.whole = addresses
        return true
    }

    private func isNamed(_ stack: CapturedStack) -> Bool {
        guard let call = stack.systemCall else { return trial_block_is_page_fault(index) }
        return trial_block_is_call(index, Int64(call.number)) && call.name != nil
    }
}
