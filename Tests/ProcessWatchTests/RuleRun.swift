import RunLoopKit
import StallDetection

@testable import ProcessWatch

/// Drives the rule over a story as the watcher does, on the story's clock.
struct RuleRun {
    struct Stall: Hashable {
        var isCongested: Bool
        /// Whether it was found while the thread sleeps in one call.
        var isInCall: Bool
        var detectedAt: MonotonicInstant
        /// Since when the kernel's counts of the thread are known.
        var countedSince: MonotonicInstant?
        var times: StallSpan
        var hasEnded = false
    }

    struct Circumstances: Sendable {
        /// Whether breakpoints are available.
        var hasBreakpoints = true
        /// How many returns a look at the stack finds to watch.
        var depth = 2
        /// When the watcher gets no CPU time.
        var absence: ClosedRange<MonotonicInstant>?
        /// The time of the first look, from the story's beginning.
        var phase = Duration.zero
        /// Whether a look at the stack finds the loop's frame.
        var findsLoop = true
        var threshold = Duration.milliseconds(250)
    }

    private(set) var stalls: [Stall] = []
    private(set) var unproven = 0
    /// Orders in a wrong sequence: an end or a continuation without a beginning, two beginnings.
    private(set) var disorder = 0
    /// How often a stack was taken: the thread is stopped for it, unless it sleeps.
    private(set) var stacks = 0
    private(set) var stacksAtRest = 0
    /// How often a stack was searched for the callout.
    private(set) var searches = 0

    private let story: LoopStory
    private let circumstances: Circumstances
    private var rule: LoopRule
    private var counted: MonotonicInstant?
    private var turnArmed: MonotonicInstant?
    private var returnsArmed: [MonotonicInstant?] = []

    init(_ story: LoopStory, _ circumstances: Circumstances = Circumstances()) {
        (self.story, self.circumstances) = (story, circumstances)
        rule = LoopRule(tick: .milliseconds(50), threshold: circumstances.threshold)
        var due = LoopStory.start + circumstances.phase
        while due < story.end + .milliseconds(200) {
            var time = due
            if let absence = circumstances.absence, absence.contains(time) { time = absence.upperBound }
            // More than a fifth of a tick late, as the watcher counts it.
            if time - due > .milliseconds(10) { rule.exclude(time - due) }
            look(at: time)
            due = due + .milliseconds(50)
            if due < time { due = time + .milliseconds(5) }
        }
    }

    private mutating func look(at time: MonotonicInstant) {
        let being = story.being(at: time)
        let schedule = story.schedule(at: time)
        var look = LoopRule.Look(time: time, schedule: schedule, position: nil, rests: false)
        if rule.needsPosition(schedule) {
            look.position = Self.position(of: being)
            look.rests = being == .rest
            look.isStopped = being == .stopped
        }
        look.turn = take(&turnArmed, [.turn, .nestedTurn], time)
        look.returns = returnsArmed.indices.map { index in
            take(&returnsArmed[index], [index == 0 ? .callout : .inner], time)
        }
        for order in rule.look(look) { carryOut(order, time, being) }
    }

    /// What a breakpoint has hit since it was set; once.
    private func take(_ armed: inout MonotonicInstant?, _ wanted: Set<LoopStory.Passage>, _ time: MonotonicInstant)
        -> LoopRule.Hit?
    {
        guard let since = armed, let hit = story.first(wanted, after: since, until: time) else { return nil }
        armed = nil
        return hit.passage == .nestedTurn ? .other : .own(hit.time)
    }

    private mutating func carryOut(_ order: LoopRule.Order, _ time: MonotonicInstant, _ being: LoopStory.Being) {
        switch order {
        case .release: (turnArmed, returnsArmed) = (nil, [])
        case .armTurn:
            turnArmed = circumstances.hasBreakpoints ? time : nil
            rule.armed(circumstances.hasBreakpoints, at: time)
        case .armReturn(let index):
            returnsArmed[index] = time
            rule.armedReturn(index, true)
        case .account: counted = time
        case .locate:
            takeStack(being)
            searches += 1
            let depth = circumstances.findsLoop ? circumstances.depth : 0
            returnsArmed = Array(repeating: time, count: depth)
            rule.located(watching: depth)
        case .sample: takeStack(being)
        case .began(let isCongested, let times):
            takeStack(being)
            disorder += stalls.last?.hasEnded == false ? 1 : 0
            var isInCall = false
            if case .calling = being { isInCall = true }
            stalls.append(
                Stall(
                    isCongested: isCongested,
                    isInCall: isInCall,
                    detectedAt: time,
                    countedSince: counted,
                    times: times
                )
            )
        case .continues(let times, _):
            disorder += stalls.last?.hasEnded == false ? 0 : 1
            if !stalls.isEmpty { stalls[stalls.count - 1].times = times }
        case .ended(let times):
            disorder += stalls.last?.hasEnded == false ? 0 : 1
            if !stalls.isEmpty { (stalls[stalls.count - 1].times, stalls[stalls.count - 1].hasEnded) = (times, true) }
        case .unproven: unproven += 1
        }
    }

    private mutating func takeStack(_ being: LoopStory.Being) {
        stacks += 1
        stacksAtRest += being == .rest ? 1 : 0
    }

    private static func position(of being: LoopStory.Being) -> ThreadPosition {
        switch being {
        case .rest: .calling(WaitPlace(call: 232, argument: 5, stackPointer: 0x7000, programCounter: 0x400))
        case .running: .running
        case .calling(let number):
            .calling(
                WaitPlace(call: 35, argument: UInt64(number), stackPointer: 0x6000, programCounter: 0x500)
            )
        case .stopped: .halted(stackPointer: 0x6000, programCounter: 0x600)
        }
    }
}

extension StallSpan {
    /// The interval in which the stall began.
    var began: ClosedRange<MonotonicInstant> { earliestStart...latestStart }
    /// The interval in which it ended.
    var ended: ClosedRange<MonotonicInstant> { earliestEnd...latestEnd }
}
