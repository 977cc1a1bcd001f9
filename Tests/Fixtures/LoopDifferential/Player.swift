import Glibc

/// Plays one script on one engine and writes down what happens. All that it decides, it decides by the script and the trace so far:
/// two players whose engines do the same do the same.
///
/// Unchecked: used by one thread at a time. That is the loop's thread, or its helper while the loop's thread waits for it; the helper's
/// semaphores order the two, and the thread that made the player reads it after it has joined the loop's.
final class Player: @unchecked Sendable {
    /// One run that is under way.
    struct Frame {
        let mode: Int
        /// Nil for ever.
        let timeout: UInt64?
        /// On the simulated clock, once the run's time has begun; nil for never.
        var deadline: UInt64?
        let returnsAfterSource: Bool
        var hasEntered = false
        var isStopped = false
        /// Foundation's timer for the deadline has gone off.
        var hasTimedOut = false
        /// It has taken a wake-up that was meant for the loop, not for this run's timeout.
        var hasTakenWakeUp = false
        /// The sources of the present pass in their order; nil if none has been performed in this turn.
        var pass: [Int]?
        /// Blocks enqueued before this number were there when the present pass over the blocks began.
        var blockLimit = 0
        var isInBlock = false
    }

    struct PendingBlock {
        let number: Int
        let places: [Place]
    }

    private static let turnLimit = 60
    private static let operationLimit = 300
    private static let depthLimit = 3
    /// Ten seconds: longer than anything lasts that comes to an end by itself.
    private static let longTime: UInt64 = 10_000_000_000

    let script: Script
    /// Known differences that are not met.
    let without: Set<KnownDifference>
    private(set) var kernel: SimulatedKernel! = nil
    private var loop: (any LoopUnderTest)!
    var frames: [Frame] = []
    private(set) var trace: [String] = []
    var meetings = Meetings()
    private(set) var isOnOtherThread = false

    private var calls: [Item: Int] = [:]
    private var notices: [String] = []
    private var turns = 0
    private var operationsLeft = Player.operationLimit
    /// Operations are left out from now on, and runs stopped.
    private var isEnding = false
    private var isCut = false
    private var whenAsleep: [[Operation]] = []
    private lazy var helper = HelperThread(kernel: kernel)
    private var hasHelper = false

    private var signalNumber = 0
    private var signals: [Int]
    /// Sources in their callout, with the number of runs that were under way.
    private var performing: [(source: Int, depth: Int)] = []
    private(set) var firing: [Int] = []
    private var pending: [PendingBlock] = []
    private var nextBlock = 0
    private(set) var commonModes: Set<Int> = [0]
    /// Writes each operation into the trace.
    let isVerbose: Bool

    init(_ script: Script, without: Set<KnownDifference>, isVerbose: Bool) {
        self.script = script
        self.without = without
        self.isVerbose = isVerbose
        signals = Array(repeating: 0, count: script.sources.count)
        kernel = SimulatedKernel { [unowned self] until in rest(until: until) }
    }

    /// Plays the whole script on the calling thread, with that thread's loop. What the end of the thread brings is noted when it comes.
    func play(on engine: Engine) {
        kernel.enter()
        loop = engine == .kit ? KitLoop(self) : FoundationLoop(self)
        for operation in script.thread { execute(operation) }
        // Foundation may destroy a loop after its thread; by then nothing of it may point here but sources, which have been cancelled.
        for item in script.items {
            if case .source = item { continue }
            loop.invalidate(item)
        }
        note("the thread ends")
        if hasHelper { helper.end() }
    }

    /// To be called after the thread has been joined.
    func close() {
        flushNotices()
        loop = nil
    }

    func meets(_ difference: KnownDifference) -> Bool {
        guard !without.contains(difference) else { return false }
        meetings[difference] += 1
        return true
    }

    func note(_ entry: @autoclosure () -> String) {
        guard !isCut else { return }
        let microseconds = (kernel.now - SimulatedKernel.start) / 1000
        trace.append("\(microseconds)  \(String(repeating: "| ", count: frames.count))\(entry())")
    }

    private func flushNotices() {
        for notice in notices.sorted() { note(notice) }
        notices = []
    }

    private func cut(_ difference: KnownDifference) {
        guard meets(difference) else { return }
        note("cut: \(difference)")
        isCut = true
        isEnding = true
    }
}

// MARK: - Time

extension Player {
    /// The loop's thread is about to sleep and nothing is ready.
    func rest(until: UInt64) -> Bool {
        guard until > kernel.now else { return true }
        if !whenAsleep.isEmpty, !isEnding {
            let operations = whenAsleep.removeFirst()
            note("asleep\(loop.isWaiting ? "" : ", not waiting")")
            playElsewhere(operations)
            return false
        }
        guard until < SimulatedKernel.horizon else {
            // An engine may find that out some time later than the other, without a turn: it slept for a timer that has been removed.
            kernel.now = (kernel.now / Player.longTime + 1) * Player.longTime
            note("nothing to wake for")
            stop()
            return false
        }
        kernel.advance(past: until)
        return true
    }

    private func playElsewhere(_ operations: [Operation]) {
        hasHelper = true
        isOnOtherThread = true
        helper.perform { for operation in operations { self.execute(operation) } }
        isOnOtherThread = false
    }

    /// A date whose microseconds belong to this timer alone, half a microsecond after what the clock can show.
    func date(of timer: Int, _ when: When) -> UInt64 {
        let own = UInt64(timer) * 7000 + 500
        let now = kernel.now
        var date = now / 1_000_000 * 1_000_000 + own
        if date < now { date += 1_000_000 }
        switch when {
        case .now: kernel.now = date - 500
        case .soon(let milliseconds): date += UInt64(milliseconds - 1) * 1_000_000
        case .never: date += 1_000_000_000_000_000
        }
        return date
    }

    /// The innermost run is under way.
    func beginTime() {
        guard let timeout = frames.last?.timeout else { return }
        frames[frames.count - 1].deadline = kernel.now + timeout
    }

    private func stop() {
        if !frames.isEmpty { frames[frames.count - 1].isStopped = true }
        loop.stop()
    }
}

// MARK: - What the engine tells

extension Player {
    func recorded(_ activity: UInt32, mode: Int) {
        guard !frames.isEmpty else { return note("activity \(activity) outside a run") }
        let last = frames.count - 1
        if activity == 1 { frames[last].hasEntered = true }
        if activity == 2 {
            turns += 1
            frames[last].pass = nil
            if turns > Player.turnLimit { isEnding = true }
        }
        frames[last].blockLimit = 0
        note("\(Player.name(of: activity)) mode \(mode)")
        if isEnding, activity <= 2 { stop() }
    }

    func observed(_ observer: Int, _ activity: UInt32) {
        note("observer \(observer) \(Player.name(of: activity))")
        act(.observer(observer))
    }

    func performed(_ source: Int) {
        guard !frames.isEmpty else { return note("source \(source) outside a run") }
        let last = frames.count - 1
        frames[last].blockLimit = 0
        if frames[last].pass == nil { frames[last].pass = pass(with: source, in: frames[last].mode) }
        note("source \(source)")
        performing.append((source, frames.count))
        act(.source(source))
        performing.removeLast()
        lookAtEnd(of: source)
    }

    func fired(_ timer: Int) {
        if !frames.isEmpty { frames[frames.count - 1].blockLimit = 0 }
        note("timer \(timer)")
        firing.append(timer)
        act(.timer(timer))
        firing.removeLast()
    }

    func scheduled(_ source: Int, in mode: String) { notices.append("source \(source) scheduled in \(mode)") }

    func cancelled(_ source: Int, in mode: String) { notices.append("source \(source) cancelled in \(mode)") }

    private func act(_ item: Item) {
        let call = calls[item, default: 0]
        calls[item] = call + 1
        for operation in script.acts[item]?[call] ?? [] { execute(operation) }
    }

    private func ran(_ block: Int, number: Int) {
        pending.removeAll { $0.number == number }
        note("block \(block)")
        guard !frames.isEmpty else { return note("outside a run") }
        let last = frames.count - 1
        if number >= frames[last].blockLimit { frames[last].blockLimit = nextBlock }
        frames[last].isInBlock = true
        for operation in script.blocks[block] { execute(operation) }
        frames[last].isInBlock = false
    }

    private static func name(of activity: UInt32) -> String {
        switch activity {
        case 1: "entry"
        case 2: "timers"
        case 4: "sources"
        case 32: "waiting"
        case 64: "woken"
        case 128: "exit"
        default: "activity \(activity)"
        }
    }
}

// MARK: - Sources

extension Player {
    /// The sources that the engine has collected for the pass whose first one has just been called.
    private func pass(with first: Int, in mode: Int) -> [Int] {
        script.sources.indices.filter { source in
            source == first
                || (loop.isSignalled(source) && loop.isValid(.source(source))
                    && loop.contains(.source(source), in: .mode(mode)))
        }.sorted { (script.sources[$0].order, signals[$0]) < (script.sources[$1].order, signals[$1]) }
    }

    /// If the last one of a pass has lost its signal meanwhile, Foundation takes the pass for one without a source.
    private func lookAtEnd(of source: Int) {
        let frame = frames[frames.count - 1]
        guard !frame.returnsAfterSource, let last = frame.pass?.last, last != source else { return }
        guard !loop.isValid(.source(last)) || !loop.isSignalled(last) else { return }
        cut(.lastSourceDecides)
    }

    private func signal(_ source: Int) {
        if performing.contains(where: { $0.source == source && $0.depth < frames.count }), meets(.sourceEntersItself) {
            return note("left out")
        }
        if !loop.isSignalled(source) {
            signalNumber += 1
            signals[source] = signalNumber
        }
        loop.signal(source)
    }
}

// MARK: - Operations

extension Player {
    func execute(_ operation: Operation) {
        guard !isEnding else { return }
        guard operationsLeft > 0 else {
            isEnding = true
            return
        }
        operationsLeft -= 1
        if isVerbose { note("\(isOnOtherThread ? "elsewhere" : "-"): \(operation)") }
        carryOut(operation)
        flushNotices()
        kernel.now += 1000
    }

    private func carryOut(_ operation: Operation) {
        switch operation {
        case .add(let item, let place): loop.add(item, to: place)
        case .remove(let item, let place): loop.remove(item, from: place)
        case .invalidate(let item): loop.invalidate(item)
        case .signal(let source): signal(source)
        case .move(let timer, let when): move(timer, to: when)
        case .enqueue(let block, let places): enqueue(block, for: places)
        case .addCommonMode(let place): addCommonMode(place)
        case .stop: stop()
        case .wake: loop.wake()
        case .run(let place, let span, let returns): run(place, for: span, returnAfterSource: returns)
        case .runForEver: runForEver()
        case .spend(let quarters): kernel.now += UInt64(quarters) * 250_000
        case .onOtherThread(let operations):
            // What another thread hands on, it does itself.
            if isOnOtherThread { operations.forEach(execute) } else { playElsewhere(operations) }
        case .whenAsleep(let operations): whenAsleep.append(operations)
        case .ask(let question): ask(question)
        case .dispatch: break
        }
    }

    private func move(_ timer: Int, to when: When) {
        // A timer in its callout does not wake the loop when it is moved; Foundation wakes it, now and then.
        guard !isOnOtherThread || !firing.contains(timer) else { return }
        loop.setFireDate(of: timer, to: date(of: timer, when))
    }

    private func enqueue(_ block: Int, for places: [Place]) {
        let number = nextBlock
        nextBlock += 1
        pending.append(PendingBlock(number: number, places: places))
        loop.enqueue(for: places) { self.ran(block, number: number) }
    }

    private func addCommonMode(_ place: Place) {
        guard case .mode(let mode) = place else { return }
        let isAwaited = frames.contains { frame in
            frame.isInBlock && frame.mode == mode
                && pending.contains { $0.number < frame.blockLimit && $0.places.contains(.common) }
        }
        if isAwaited, !commonModes.contains(mode), meets(.lateCommonMode) { return note("left out") }
        commonModes.insert(mode)
        loop.addCommonMode(place)
    }

    private func matches(_ block: PendingBlock, _ mode: Int) -> Bool {
        block.places.contains(.mode(mode)) || (block.places.contains(.common) && commonModes.contains(mode))
    }

    private func canRun(_ mode: Int) -> Bool {
        guard frames.count < Player.depthLimit, !isOnOtherThread else { return false }
        if performing.contains(where: { loop.isSignalled($0.source) }), meets(.sourceEntersItself) { return false }
        let hidesBlocks = frames.contains { frame in
            frame.isInBlock
                && pending.contains { $0.number < frame.blockLimit && matches($0, mode) && !matches($0, frame.mode) }
        }
        return !(hidesBlocks && meets(.hiddenBlocks))
    }

    private func run(_ place: Place, for span: Span, returnAfterSource: Bool) {
        let mode: Int = if case .mode(let index) = place { index } else { -1 }
        guard canRun(mode) else { return note("no run") }
        let timeout: UInt64? =
            switch span {
            case .poll: 0
            // A quarter of a microsecond more, so that a deadline is never a timer's date, nor what the clock shows.
            case .milliseconds(let milliseconds): UInt64(milliseconds) * 1_000_000 + 250
            case .forEver: nil
            }
        frames.append(Frame(mode: mode, timeout: timeout, returnsAfterSource: returnAfterSource))
        let result = loop.run(place, for: timeout, returnAfterSource: returnAfterSource)
        frames.removeLast()
        note("run ends: \(result)")
    }

    private func runForEver() {
        guard canRun(0) else { return note("no run") }
        frames.append(Frame(mode: 0, timeout: nil, returnsAfterSource: false))
        loop.runForEver()
        frames.removeLast()
        note("run ends")
    }

    private func ask(_ question: Question) {
        switch question {
        case .contains(let item, let place):
            if place == .common, case .timer = item, !(0..<Place.modeCount).contains(where: { loop.contains(item, in: .mode($0)) }),
                meets(.commonTimerInNoMode)
            {
                return
            }
            note("\(item) in \(place): \(loop.contains(item, in: place))")
        case .isValid(let item): note("\(item) valid: \(loop.isValid(item))")
        case .isSignalled(let source): note("source \(source) signalled: \(loop.isSignalled(source))")
        case .fireDate(let timer):
            guard loop.isValid(.timer(timer)) else { return note("timer \(timer) invalid") }
            note("timer \(timer) fires \(readable(loop.fireDate(of: timer)))")
        case .earliestFireDate(let place):
            if !firing.isEmpty, meets(.earliestOfFiringTimer) { return }
            note("earliest of \(place): \(loop.earliestFireDate(in: place).map(readable) ?? "none")")
        case .currentMode: note("current mode: \(loop.currentMode?.description ?? "none")")
        case .isWaiting: note("waiting: \(loop.isWaiting)")
        }
    }

    /// Half microseconds: what Core Foundation's dates are good for.
    private func readable(_ date: UInt64) -> String { "\((Int64(date) - Int64(SimulatedKernel.start) + 250) / 500)" }
}
