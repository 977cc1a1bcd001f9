import Glibc

/// Plays one script on one engine and records the events. All decisions depend only on the script and the trace so far: two
/// players whose engines behave equally behave equally.
///
/// Unchecked: used by one thread at a time. This is the loop's thread, or its helper while the loop's thread waits for it. The
/// helper's semaphores order the two, and the thread that created the player reads it after it has joined the loop's thread.
final class Player: @unchecked Sendable {
    /// One run that is in progress.
    struct Frame {
        let mode: Int
        /// Nil means forever.
        let timeout: UInt64?
        /// On the simulated clock, once the run's time has begun; nil for never.
        var deadline: UInt64?
        let returnsAfterSource: Bool
        var hasEntered = false
        var isStopped = false
        var isStoppedFromElsewhere = false
        /// Foundation's timer for the deadline has fired.
        var hasTimedOut = false
        /// The run has consumed a wake-up that was meant for the loop, not for this run's timeout.
        var hasTakenWakeUp = false
        /// The sources of the current pass in their order; nil if none has been performed in this turn.
        var pass: [Int]?
        /// Blocks with a smaller number were already enqueued when the current pass over the blocks began.
        var blockLimit = 0
        var isInBlock = false
        /// The observers are being notified that the sleep is over.
        var isWoken = false
        /// The wait, or the poll, of the current turn is still ahead. For Foundation.
        var waitsAhead = false
        /// The current turn has checked the main queue and found nothing, and nothing has arrived since then.
        var hasLookedAtMainQueue = false
    }

    struct PendingBlock {
        let number: Int
        let places: [Place]
    }

    static let turnLimit = 60
    private static let operationLimit = 300
    static let depthLimit = 3
    /// Ten seconds: longer than anything that ends automatically.
    private static let longTime: UInt64 = 10_000_000_000

    let script: Script
    /// Known differences whose handling is disabled.
    let without: Set<KnownDifference>
    private(set) var kernel: SimulatedKernel! = nil
    var loop: (any LoopUnderTest)!
    var frames: [Frame] = []
    /// Whether this is the main thread's loop, which has played other scripts before.
    let isOnMain: Bool
    /// Distinguishes this script's modes from those of others.
    let suffix: String
    private(set) var trace: [String] = []
    var meetings = Meetings()
    private(set) var tally = Tally()
    private(set) var isOnOtherThread = false

    var calls: [Item: Int] = [:]
    var notices: [String] = []
    var turns = 0
    var operationsLeft = Player.operationLimit
    /// From now on operations are left out, and runs are stopped.
    var isEnding = false
    private var isCut = false
    var whenAsleep: [[Operation]] = []
    private lazy var helper = HelperThread(kernel: kernel)
    private var hasHelper = false

    var signalNumber = 0
    var signals: [Int]
    /// Sources in their callout, with the number of runs that were in progress.
    var performing: [(source: Int, depth: Int)] = []
    var firing: [Int] = []
    /// For each firing timer, the timers that have fired in its callout.
    var firedInside: [[Int]] = []
    /// For each firing timer, the number of runs that were in progress.
    var firingDepths: [Int] = []
    /// Due timers that the callouts of the current pass have removed from a mode.
    var takenOut: Set<Int> = []
    var pending: [PendingBlock] = []
    var nextBlock = 0
    var commonModes: Set<Int> = [0]
    /// Writes each operation into the trace.
    let isVerbose: Bool

    init(_ script: Script, without: Set<KnownDifference>, isVerbose: Bool, mainNumber: Int? = nil) {
        isOnMain = mainNumber != nil
        suffix = mainNumber.map { " of script \($0)" } ?? ""
        self.script = script
        self.without = without
        self.isVerbose = isVerbose
        signals = Array(repeating: 0, count: script.sources.count)
        kernel = SimulatedKernel { [unowned self] until in rest(until: until) }
    }

    /// Plays the whole script on the calling thread, with that thread's
    /// loop. Events at the end of the thread are recorded as they occur.
    func play(on engine: Engine) {
        kernel.enter()
        loop = engine == .kit ? KitLoop(self) : FoundationLoop(self)
        for operation in script.thread { execute(operation) }
        // Foundation may destroy a loop after its thread; by then only
        // sources, which have been cancelled, may still point to this object.
        for item in script.items {
            if case .source = item { continue }
            loop.invalidate(item)
        }
        note("the thread ends")
        if isOnMain { clear() }
        if hasHelper { helper.end() }
    }

    /// Leaves nothing behind on the main loop: no item, no pending block
    /// of a mode that remains, no wake-up, no work of the main queue.
    private func clear() {
        for source in script.sources.indices { loop.invalidate(.source(source)) }
        flushNotices()
        isCut = true
        isEnding = true
        // The recorders stop the runs of a script that is ending, at their entry: then these would do nothing.
        loop.end()
        for _ in 0..<6 { run(.mode(0), for: .poll, returnAfterSource: false) }
        SimulatedKernel.leave()
    }

    /// Called after the thread has been joined.
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

    func count(_ event: Tally.Event) {
        if !isCut { tally[event] += 1 }
    }

    func flushNotices() {
        for notice in notices.sorted() { note(notice) }
        notices = []
    }

    func cut(_ difference: KnownDifference) {
        guard meets(difference) else { return }
        note("cut: \(difference)")
        isCut = true
        isEnding = true
    }
}

// MARK: - Time

extension Player {
    /// The loop's thread is about to sleep, and nothing is ready.
    func rest(until: UInt64) -> Bool {
        guard until > kernel.now else { return true }
        if !whenAsleep.isEmpty, !isEnding {
            let operations = whenAsleep.removeFirst()
            count(.doneWhileAsleep)
            note("asleep\(loop.isWaiting ? "" : ", not waiting")")
            playElsewhere(operations)
            return false
        }
        guard until < SimulatedKernel.horizon else {
            // One engine may detect that later than the other, without a turn: it slept for a timer that has been removed.
            kernel.now = (kernel.now / Player.longTime + 1) * Player.longTime
            count(.nothingToWakeFor)
            note("nothing to wake for")
            stop()
            return false
        }
        kernel.advance(past: until)
        return true
    }

    func playElsewhere(_ operations: [Operation]) {
        hasHelper = true
        isOnOtherThread = true
        helper.perform { for operation in operations { self.execute(operation) } }
        isOnOtherThread = false
    }

    /// A date whose microseconds are unique to this timer, half a microsecond after a value that the clock can have.
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

    /// The timeout of the innermost run begins now.
    func beginTime() {
        guard let timeout = frames.last?.timeout else { return }
        frames[frames.count - 1].deadline = kernel.now + timeout
    }

    func stop() {
        if !frames.isEmpty {
            frames[frames.count - 1].isStopped = true
            if isOnOtherThread { frames[frames.count - 1].isStoppedFromElsewhere = true }
        }
        loop.stop()
    }
}
