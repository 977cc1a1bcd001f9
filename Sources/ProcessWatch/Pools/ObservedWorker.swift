import RunLoopKit
import StackCapture
import StallMonitor

/// One worker of a task pool of another process. Carries out what ``WorkerRule`` decides. Confined to the watcher's thread.
final class ObservedWorker {
    let threadID: Int32
    let priority: PoolPriority
    private let files: ThreadFiles
    private let code: PoolCode
    private var rule: WorkerRule
    /// Hit when it begins another job.
    private var next: Breakpoint?
    /// Hit when its present job returns.
    private var returned: Breakpoint?
    /// It has begun another job since the last look, which that look did not see.
    private var begun: MonotonicInstant?
    private var lastSchedule: Schedule?
    private(set) var lastLook: MonotonicInstant
    /// When it left a job in this look, as exactly as it is known.
    private(set) var end: ClosedRange<MonotonicInstant>?
    /// The kernel's counts from when its present job was first seen on its stack.
    private(set) var account: OutsideProcess.Account?
    /// Whether it has ever begun a job of the pool, as far as was seen.
    private(set) var hasRunJobs = false

    /// - Parameter time: when it did not exist yet, or was last known to be at nothing.
    init(
        threadID: Int32,
        _ files: ThreadFiles,
        _ priority: PoolPriority,
        _ code: PoolCode,
        freeAt time: MonotonicInstant
    ) {
        (self.threadID, self.files, self.priority, self.code, lastLook) = (threadID, files, priority, code, time)
        rule = WorkerRule(freeAt: time)
    }

    /// What it is at. Nil while it rests.
    var present: PoolRule.Worker? { rule.job.map { PoolRule.Worker(threadID: threadID, job: $0) } }

    /// - Returns: false once the thread has ended.
    func look(_ context: WatchContext) -> Bool {
        guard let schedule = files.readSchedule() else { return false }
        var look = WorkerRule.Look(time: .now, schedule: schedule, position: nil, rests: false)
        look.began = begun ?? takeBegin(at: look.time)
        begun = nil
        if rule.needsPosition(schedule) {
            guard let position = files.readPosition() else { return false }
            (look.position, look.rests) = (position, code.isRest(position, files.readCall))
            let mayBeStopped = !look.rests && position != .running && rule.job != nil
            look.isStopped = mayBeStopped && (files.isStopped() || context.process.isFrozen)
        }
        if context.lateness > .zero { rule.exclude(context.lateness) }
        let before = rule.job?.number
        let order = rule.look(look)
        end = nil
        if let before, rule.job?.number != before { leave(look) }
        (lastLook, lastSchedule) = (look.time, schedule)
        carryOut(order, context)
        return true
    }

    private func takeBegin(at time: MonotonicInstant) -> MonotonicInstant? {
        switch next?.take() {
        case nil: return nil
        case .own(let hit)?:
            hasRunJobs = true
            return hit
        case .other?: return time
        }
    }

    /// The job is over.
    private func leave(_ look: WorkerRule.Look) {
        let latest = max(lastLook, min(look.began ?? look.time, look.time))
        end = lastLook...latest
        if case .own(let time)? = returned?.take(), (lastLook...latest).contains(time) { end = time...time }
        (returned, account) = (nil, nil)
    }

    private func carryOut(_ order: WorkerRule.Order?, _ context: WatchContext) {
        switch order {
        case nil: break
        case .release?: (next, returned) = (nil, nil)
        case .arm?:
            next = nil
            if context.hasBreakpoints { next = Breakpoint(onThread: threadID, atAny: UInt64(code.job.lowerBound)) }
            rule.armed(next != nil, at: .now)
        }
    }

    // Stacks

    /// Takes the stack, and finds out whether the worker is at a job.
    ///
    /// - Returns: `raced` for the stack of a worker that is at something else, or at another job by now.
    func capture(_ context: WatchContext, within patience: Duration, isSample: Bool) -> OutsideStack {
        let process = context.process
        return context.reporter.capture(threadID, of: process, within: patience, isSample: isSample) { stack in
            guard !hasMoved else { return .raced }
            guard let frame = code.caller(ofJobIn: stack) else {
                // If it is just between two jobs, the breakpoint or the next look will show that.
                if stack.isComplete { rule.saw(.other) }
                return .raced
            }
            hasRunJobs = true
            if rule.job?.shows == nil { noteJob(stack, frame, context) }
            var sample = process.sample(stack, ofThread: threadID, at: .now, loopFrame: frame)
            sample.threadID = threadID
            return .captured(sample)
        }
    }

    /// Whether the worker may have begun another job since the last look. To be asked after its stack was taken.
    private var hasMoved: Bool {
        guard let job = rule.job else { return true }
        if job.isArmed {
            begun = begun ?? takeBegin(at: .now)
            return begun != nil
        }
        return job.callSince != nil && files.readSchedule() != lastSchedule
    }

    private func noteJob(_ stack: CapturedStack, _ frame: Int, _ context: WatchContext) {
        rule.saw(.job)
        account = context.process.account(ofThread: threadID, at: .now)
        guard context.hasBreakpoints, stack.stackPointers.indices.contains(frame) else { return }
        let address = UInt64(stack.frames[frame].address)
        let place = RestStack.Place(address: address, stackPointer: UInt64(stack.stackPointers[frame]))
        returned = Breakpoint(onThread: threadID, at: place)
    }
}
