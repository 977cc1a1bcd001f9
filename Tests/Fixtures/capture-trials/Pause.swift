import CTrials
import Foundation
import Runtime
import StackCapture

/// The duration for which a capture pauses the thread, measured by the thread itself: it
/// reads the clock in a loop, 60 frames deep, and stores the longest time between two
/// readings. For comparison: the cost of an empty handler, and of unwinding in the handler.
struct Pause {
    private let part: Part
    /// The depth of recursion: with the frames below and above it the stack has 60 frames.
    static let depth = 54

    init(_ part: Part) { self.part = part }

    func run(_ findings: inout Findings) {
        guard let capturer = try? StackCapturer(deadline: .seconds(5)) else {
            return findings.fail("no capturer")
        }
        let hasStep = trial_handler_step_prepare()
        let reader = unsafe trial_clock_reader_start(Int32(Self.depth), 1)
        let identity = ThreadIdentity(unsafe trial_clock_reader_thread(reader))
        trial_stay_on(0)
        let first = try? capturer.capture(identity).get()
        findings.expect(
            first?.isComplete == true && first?.method == .signal,
            "the capture is whole and by signal"
        )
        print(
            "Pause of a thread with \(first?.frames.count ?? 0) frames, µs, without rounds in which it was preempted"
        )
        var ways: [(name: String, act: () -> Void)] = [
            ("nothing", {}),
            ("an empty handler", { unsafe trial_interrupt(identity.threadID, trial_handler_nothing) }),
            ("signal and copy", { _ = capturer.capture(identity) }),
        ]
        if hasStep {
            ways.append(
                (
                    "unw_step in the handler",
                    { unsafe trial_interrupt(identity.threadID, trial_handler_step) }
                )
            )
        }
        ways.append(
            (
                "Backtrace.capture in the handler",
                { unsafe trial_interrupt(identity.threadID, captureOwnBacktrace) }
            )
        )
        let pauses = unsafe measure(ways.map(\.act), length(of: capturer, identity), reader)
        unsafe trial_clock_reader_finish(reader)
        show(ways.map(\.name), pauses)
        checkQuiet(capturer, &findings)
    }

    /// The duration of a capture, in nanoseconds.
    private func length(of capturer: StackCapturer, _ identity: ThreadIdentity) -> UInt64 {
        let times = (0..<100).map { _ in
            let began = trial_now_ns()
            _ = capturer.capture(identity)
            return Double(trial_now_ns() - began)
        }
        return UInt64(Distribution(times).median)
    }

    /// Alternates between the acts in rounds of the same length, so that other interruptions of the thread affect all of them.
    private func measure(_ acts: [() -> Void], _ length: UInt64, _ reader: OpaquePointer)
        -> [[Double]]
    {
        var pauses = [[Double]](repeating: [], count: acts.count)
        for _ in 0..<(part.isShort ? 100 : 3000) {
            for (index, act) in acts.enumerated() {
                let before = unsafe trial_clock_reader_preemptions(reader)
                unsafe trial_clock_reader_await(reader)
                _ = unsafe trial_clock_reader_take_gap(reader)
                let end = trial_now_ns() + length
                act()
                while trial_now_ns() < end {}
                unsafe trial_clock_reader_await(reader)
                let gap = unsafe trial_clock_reader_take_gap(reader)
                let isUndisturbed = unsafe trial_clock_reader_preemptions(reader) == before
                if isUndisturbed { pauses[index].append(Double(gap) / 1000) }
            }
        }
        return pauses
    }

    private func show(_ names: [String], _ pauses: [[Double]]) {
        print("  \(column("", 34))  rounds    p50    p99   over empty: p50    p99")
        let empty = Distribution(pauses[1])
        for (name, values) in zip(names, pauses) {
            let distribution = Distribution(values)
            print(
                "  \(column(name, 34))\(column(values.count, 8, right: true))\(column(distribution.median, 7))"
                    + "\(column(distribution.quantile(0.99), 7))\(column(distribution.median - empty.median, 18))"
                    + "\(column(distribution.quantile(0.99) - empty.quantile(0.99), 7))"
                    + (name == "signal and copy" ? "   goal: 8 and 25" : "")
            )
        }
        print(
            "  unw_step found \(trial_handler_step_frames()) frames, Backtrace \(unsafe backtraceFrames)"
        )
    }

    /// A thread that was not scheduled was not paused.
    private func checkQuiet(_ capturer: StackCapturer, _ findings: inout Findings) {
        let thread = trial_sleeper_start(Int32(Self.depth))
        let captures = part.isShort ? 100 : 3000
        var (before, after): ([UInt64], [UInt64]) = ([0, 0, 0], [0, 0, 0])
        unsafe trial_schedule_of(thread.number, &before)
        let quiet = (0..<captures).count { _ in
            (try? capturer.capture(ThreadIdentity(thread)).get())?.method == .quiet
        }
        unsafe trial_schedule_of(thread.number, &after)
        print(
            "  quiet: \(quiet) of \(captures) captures; its time on a processor before and after: \(before[0]), \(after[0]) ns"
        )
        findings.expect(
            quiet == captures && before == after,
            "a thread that sleeps does not run for a capture"
        )
    }
}

/// Written by the handler, read after it has returned.
nonisolated(unsafe) private var backtraceFrames = 0

/// It allocates, which a handler must not do in general: this thread never holds a lock.
private func captureOwnBacktrace(_: UnsafeMutableRawPointer) {
    guard let backtrace = try? Backtrace.capture(limit: 128) else { return }
    unsafe backtraceFrames = backtrace.frames.reduce(0) { count, _ in count + 1 }
}
