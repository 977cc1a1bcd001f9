import RunLoopKit
import TestSupport

/// A random script on the real clock: callouts nest runs, stop them, invalidate items and re-arm timers at once. A
/// model beside the loop knows what may be called at each moment and how a run may end; a contradiction is a problem.
/// Nothing depends on the machine's speed.
///
/// Unchecked: only the loop's thread uses it.
final class RealClockScript: @unchecked Sendable {
    private struct Run {
        let start: MonotonicInstant
        let timeout: Duration
        let returnsAfterSource: Bool
        var isStopped = false
        var sources = 0
    }

    private static let deepest = 4
    private let loop: EventRunLoop
    private var random: SplitMix64
    private var operationsLeft = 150
    private var sources: [EventSource] = []
    private var timers: [EventTimer] = []
    // The model.
    private var runs: [Run] = []
    private var isSignalled: [Bool] = []
    /// When a timer is due. Nil: it is not armed.
    private var due: [MonotonicInstant?] = []
    private var sourcesInside: Set<Int> = []
    private var timersInside: Set<Int> = []
    private var blocks: [Int: Int] = [:]
    private(set) var problems: [String] = []
    /// By kind of event, so that a script without events is noticed.
    private(set) var counts: [String: Int] = [:]

    init(_ loop: EventRunLoop, seed: UInt64) {
        (self.loop, random) = (loop, SplitMix64(seed: seed))
        for index in 0..<3 {
            sources.append(EventSource(order: .random(in: -1...1, using: &random)) { _ in self.performed(index) })
            isSignalled.append(false)
            // Its own next date is never reached: it is armed by hand.
            timers.append(
                EventTimer(at: .distantFuture, every: .seconds(1_000_000), order: .random(in: -1...1, using: &random)) {
                    _ in self.fired(index)
                }
            )
            due.append(nil)
        }
        for source in sources { loop.add(source) }
        for timer in timers { loop.add(timer) }
        loop.add(LoopObserver(activities: .beforeTimers) { _, _ in self.turned() })
    }

    /// Runs the script, then lets the loop do what is left.
    func play() {
        while operationsLeft > 0 {
            act()
            run(for: .milliseconds(.random(in: 0...2, using: &random)))
        }
        for _ in 0..<1000 where hasWork { run(for: .milliseconds(1)) }
        if hasWork { problems.append("not done: signals \(isSignalled), timers \(due), blocks \(blocks)") }
    }

    private var hasWork: Bool {
        let sourceWaits = sources.indices.contains(where: { sources[$0].isValid && isSignalled[$0] })
        let timerWaits = timers.indices.contains(where: { timers[$0].isValid && due[$0] != nil })
        return sourceWaits || timerWaits || blocks.values.contains(0)
    }

    // What the loop calls

    private func turned() {
        count("turn")
        if runs.last?.isStopped == true { problems.append("a turn after a stop") }
    }

    private func performed(_ index: Int) {
        count("source")
        if !sources[index].isValid { problems.append("source \(index) is invalid") }
        if !isSignalled[index] { problems.append("source \(index) has no signal") }
        if !sourcesInside.insert(index).inserted { problems.append("source \(index) is in its callout") }
        isSignalled[index] = false
        if !runs.isEmpty { runs[runs.count - 1].sources += 1 }
        act()
        sourcesInside.remove(index)
    }

    private func fired(_ index: Int) {
        count("timer")
        if !timers[index].isValid { problems.append("timer \(index) is invalid") }
        if !timersInside.insert(index).inserted { problems.append("timer \(index) is in its callout") }
        if due[index].map({ $0 > .now }) ?? true { problems.append("timer \(index) is not due: \(due[index] as Any)") }
        due[index] = nil
        act()
        timersInside.remove(index)
    }

    private func called(_ block: Int) {
        count("block")
        blocks[block, default: 0] += 1
        if blocks[block] != 1 { problems.append("block \(block) is called again") }
        act()
    }

    // What the script does

    private func act() {
        for _ in 0..<Int.random(in: 0...3, using: &random) where operationsLeft > 0 {
            operationsLeft -= 1
            operate()
        }
    }

    private func operate() {
        let index = Int.random(in: 0..<3, using: &random)
        switch Int.random(in: 0..<20, using: &random) {
        case 0...4: rearm(index)
        case 5...9: signal(index)
        case 10...12: enqueue()
        case 13...16 where runs.count < Self.deepest: run(for: .milliseconds(.random(in: 0...1, using: &random)))
        case 17: stop()
        case 18 where .random(in: 0..<4, using: &random) == 0:
            count("invalidated")
            sources[index].invalidate()
        case 19 where .random(in: 0..<4, using: &random) == 0:
            count("invalidated")
            timers[index].invalidate()
        default: break
        }
    }

    private func rearm(_ index: Int) {
        guard timers[index].isValid else { return }
        count("re-armed")
        let date = MonotonicInstant.now
        due[index] = date
        timers[index].nextFireDate = date
    }

    private func signal(_ index: Int) {
        guard sources[index].isValid else { return }
        isSignalled[index] = true
        sources[index].signal()
        loop.wakeUp()
    }

    private func enqueue() {
        let block = blocks.count
        blocks[block] = 0
        loop.perform { self.called(block) }
    }

    private func stop() {
        guard !runs.isEmpty else { return }
        count("stop")
        runs[runs.count - 1].isStopped = true
        loop.stop()
    }

    private func run(for timeout: Duration) {
        let returns = Bool.random(using: &random)
        if !runs.isEmpty { count("nested") }
        runs.append(Run(start: .now, timeout: timeout, returnsAfterSource: returns))
        let result = loop.run(mode: .default, for: timeout, returnAfterSourceHandled: returns)
        let run = runs.removeLast()
        count("\(result)")
        if !isAllowed(result, of: run) { problems.append("a run ends with \(result): \(run)") }
    }

    private func isAllowed(_ result: EventRunLoop.RunResult, of run: Run) -> Bool {
        switch result {
        case .finished: !sources.contains { $0.isValid } && !timers.contains { $0.isValid }
        case .stopped: run.isStopped
        case .timedOut: run.start.duration(to: .now) >= run.timeout
        case .handledSource: run.returnsAfterSource && run.sources > 0
        }
    }

    private func count(_ event: String) { counts[event, default: 0] += 1 }
}
