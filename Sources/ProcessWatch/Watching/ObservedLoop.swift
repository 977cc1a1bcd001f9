import RunLoopKit
import StackCapture
import StallDetection
import StallDiagnosis
import StallMonitor
import StallReports

/// One watched loop of another process. It carries out what ``LoopRule`` decides. Confined to the watcher's thread.
final class ObservedLoop {
    let threadID: Int32
    let label: String
    private let watchNumber: Int
    private var rule: LoopRule
    private var rest: RestStack
    private var breakpoints: LoopBreakpoints
    /// Whether the process had only one thread when the loop's wait was found.
    private var isAlone = false
    private var account: OutsideProcess.Account?
    private var samples: [StackSample] = []
    private var pace = SamplePace()
    private var stall: (number: Int, times: StallSpan)?
    private(set) var isUnproven = false
    private var row: RepeatedTurns
    /// The descriptors of a loop that uses poll(2), read when it was last found at rest after it had run.
    private var polled: [Int32] = []

    /// - Parameter time: When it was last seen at rest there.
    init(threadID: Int32, label: String, place: WaitPlace, at time: MonotonicInstant, _ context: WatchContext) {
        (self.threadID, self.label, rule) = (threadID, label, context.rule)
        breakpoints = LoopBreakpoints(onThread: threadID)
        row = RepeatedTurns(context.stallRule)
        rule.foundAtRest(at: time)
        rest = RestStack(waitingAt: place)
        watchNumber = context.reporter.enter(label, of: context.process)
        learn(place, context)
    }

    /// Remembers the loop's stack while it rests. The thread is not stopped: if it no longer rests, the stack is discarded.
    private func learn(_ place: WaitPlace, _ context: WatchContext) {
        rest = RestStack(waitingAt: place)
        isAlone = ProcessFiles(processID: context.processID).threads.map { $0.count < 2 } ?? true
        guard case .success(let stack) = context.process.sampler.capture(threadID: threadID), stack.method == .quiet
        else {
            return
        }
        rest = RestStack(stack, waitingAt: place) ?? rest
    }

    /// - Returns: False once the thread, or its loop, has ended.
    func look(_ files: ThreadFiles, _ search: inout LoopFinder, _ context: WatchContext) -> Bool {
        guard let schedule = files.readSchedule() else { return false }
        var look = LoopRule.Look(time: .now, schedule: schedule, position: nil, rests: false)
        look.turn = breakpoints.takeTurn()
        if case .own? = look.turn { search.hasTurned() }
        if rule.needsPosition(schedule) {
            guard let position = files.readPosition() else { return false }
            let reading = LoopFinder.Reading(position: position, schedule: schedule, time: look.time)
            let place = search.note(reading) { context.isOfLoop($0, files) }
            if let place { learn(place, context) }
            (look.position, look.rests) = (position, search.isRest(position))
            if look.rests, search.descriptor == nil { notePolled(files, context) }
            look.isStopped = !look.rests && position != .running && (files.isStopped() || context.process.isFrozen)
        }
        if context.lateness > .zero { rule.exclude(context.lateness) }
        look.returns = breakpoints.takeReturns()
        let orders = rule.look(look)
        // What the thread does after its loop has ended, and has closed its epoll set, is no stall.
        if rule.isStalled, let set = search.epollSet, files.hasClosed(epollSet: set) { return false }
        followRow(look.time, search, context)
        for order in orders { carryOut(order, look.time, search, context) }
        return true
    }

    /// Before the orders: the stall of a row ends where a longer one begins.
    private func followRow(_ time: MonotonicInstant, _ search: LoopFinder, _ context: WatchContext) {
        switch row.look(at: time, rule, account, isLate: context.lateness > .zero) {
        case .began(let found)?: beginRow(found, time, search, context)
        case .grew(let found)?: row.grow(found, context.reporter)
        case .ended(let found)?: row.end(found, as: .recovered, context.reporter)
        case nil: break
        }
        let present = rule.presentTurn(at: time)
        if row.wantsSample(of: present, at: time), pace.isDue(at: time, context.rule.tick) { keepSample(time, context) }
    }

    private func beginRow(
        _ found: RowRule.Row,
        _ time: MonotonicInstant,
        _ search: LoopFinder,
        _ context: WatchContext
    ) {
        if let descriptor = search.descriptor, context.isServed(descriptor, threadID) { return }
        let isUnderWay = rule.presentTurn(at: time) != nil
        let stall = OutsideStall(
            loop: watchNumber,
            threadID: threadID,
            awaited: search.descriptor.map { .set($0) } ?? .list(polled),
            category: .repeated,
            span: found.times,
            detectedAt: time,
            account: row.account,
            stack: isUnderWay ? capture(time, context, within: .milliseconds(150)).outcome : .raced,
            samples: row.takeSamples(),
            busy: found.busy
        )
        row.number = context.reporter.begin(stall)
    }

    /// Reads the descriptors. Only while the loop rests: it may overwrite the array later.
    private func notePolled(_ files: ThreadFiles, _ context: WatchContext) {
        guard let call = files.readCall() else { return }
        let found = context.process.polledDescriptors(in: call)
        if files.readCall() == call { polled = found }
    }

    var maturity: MonotonicInstant? { rule.maturity }
    func isSuspect(at time: MonotonicInstant) -> Bool { rule.isSuspect(at: time) }

    /// Ends the watching of this loop.
    func release(as state: StallState, _ context: WatchContext) {
        if let stall = stall.take() { context.reporter.end(stall.number, stall.times, as: state) }
        row.release(as: state, context.reporter)
        context.reporter.leave(watchNumber)
        breakpoints.remove()
    }

    private func carryOut(
        _ order: LoopRule.Order,
        _ time: MonotonicInstant,
        _ search: LoopFinder,
        _ context: WatchContext
    ) {
        switch order {
        case .release:
            breakpoints.remove()
            (account, samples, pace) = (nil, [], SamplePace())
        case .armTurn: armTurn(search.descriptor, context)
        case .armReturn(let index):
            if let isArmed = breakpoints.armReturn(index) { rule.armedReturn(index, isArmed) }
        case .account:
            account = context.process.account(ofThread: threadID, at: time)
            (samples, pace) = ([], SamplePace())
        case .locate: locate(time, search, context)
        case .sample:
            if pace.isDue(at: time, context.rule.tick) { keepSample(time, context) }
        case .began(let isCongested, let times): begin(isCongested, times, time, search, context)
        case .continues(let times, let isWorthReporting): continueStall(times, isWorthReporting, time, context)
        case .ended(let times): end(times, context)
        case .unproven:
            guard !isUnproven else { return }
            isUnproven = true
            let (process, hasBreakpoints) = (context.processID, context.hasBreakpoints)
            context.tell(.unproven(processID: process, threadID: threadID, loop: label, hasBreakpoints: hasBreakpoints))
        }
    }

    private func armTurn(_ descriptor: Int32?, _ context: WatchContext) {
        let places = context.hasBreakpoints ? rest.turnPlaces(on: descriptor, mayWaitElsewhere: isAlone) : []
        rule.armed(breakpoints.armTurn(at: places), at: .now)
    }

    // Stacks

    /// A stack, and what it shows about the loop.
    private typealias Capture = (outcome: OutsideStack, finding: RestStack.Finding)

    /// - Parameter patience: How long the capture may take. No other loop is looked at meanwhile.
    private func capture(
        _ time: MonotonicInstant,
        _ context: WatchContext,
        within patience: Duration = .milliseconds(20),
        isSample: Bool = false
    ) -> Capture {
        pace.note(time)
        var finding = RestStack.Finding.unknown
        let process = context.process
        let outcome = context.reporter.capture(threadID, of: process, within: patience, isSample: isSample) { stack in
            finding = rest.find(in: stack)
            // The loop has turned, so the stack does not show the stall.
            if finding == .inWait { return .raced }
            return .captured(process.sample(stack, ofThread: threadID, at: .now, loopFrame: finding.loopFrame))
        }
        return (outcome, finding)
    }

    private func keepSample(_ time: MonotonicInstant, _ context: WatchContext) {
        guard case .captured(let sample) = capture(time, context, isSample: true).outcome else { return }
        samples.append(sample)
        row.keep(sample, context.reporter)
    }

    private func locate(_ time: MonotonicInstant, _ search: LoopFinder, _ context: WatchContext) {
        let (outcome, finding) = capture(time, context)
        if case .captured(let sample) = outcome { samples.append(sample) }
        switch finding {
        case .inWait:
            for order in rule.foundInWait(at: time) { carryOut(order, time, search, context) }
        case .callout(let places, _):
            let pending = rule.span?.returns.prefix { $0 == .pending }.count ?? 0
            rule.located(watching: breakpoints.watchReturns(to: places, keeping: pending))
        case .inLoop, .unknown: break
        }
    }

    // The stall

    private func begin(
        _ isCongested: Bool,
        _ times: StallSpan,
        _ time: MonotonicInstant,
        _ search: LoopFinder,
        _ context: WatchContext
    ) {
        if let descriptor = search.descriptor, context.isServed(descriptor, threadID) { return }
        let found = OutsideStall(
            loop: watchNumber,
            threadID: threadID,
            awaited: search.descriptor.map { .set($0) } ?? .list(polled),
            category: isCongested ? .congested : .blocked,
            span: times,
            detectedAt: time,
            account: account,
            // This is the report's only stack, so it may take longer: a thread of low priority needs a while to stop.
            stack: capture(time, context, within: .milliseconds(150)).outcome,
            samples: samples
        )
        samples = []
        stall = context.reporter.begin(found).map { ($0, times) }
    }

    private func continueStall(
        _ times: StallSpan,
        _ isWorthReporting: Bool,
        _ time: MonotonicInstant,
        _ context: WatchContext
    ) {
        guard let number = stall?.number else { return }
        stall = (number, times)
        context.reporter.see(number, times)
        if pace.isDue(at: time, context.rule.tick),
            case .captured(let sample) = capture(time, context, isSample: true).outcome
        {
            context.reporter.add(sample, to: number)
        }
        if isWorthReporting { context.reporter.grow(number, times) }
    }

    private func end(_ times: StallSpan, _ context: WatchContext) {
        guard let number = stall.take()?.number else { return }
        context.reporter.end(number, times, as: .recovered)
    }
}
