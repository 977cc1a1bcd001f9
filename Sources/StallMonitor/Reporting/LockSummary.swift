import RunLoopKit
import StackCapture
import StallDiagnosis
import StallReports

/// The locks between the stalled thread and the thread that could let it continue: the watchdog's finding, checked against the
/// names on the stacks. Pure.
struct LockSummary {
    private(set) var waits: [StallReport.LockWait] = []
    private(set) var cycle: ArraySlice<StallReport.LockWait> = []
    private let finding: LockFinding
    private let descriptors: (WaitSite) -> [StallReport.Descriptor]

    /// - Parameters:
    ///   - stacks: The report's stacks with names; the stalled thread's first.
    ///   - processID: The process of the threads, which is also the number of its main thread.
    ///   - descriptors: Looks up the descriptors that an owner itself waits for.
    init(
        _ finding: LockFinding,
        _ stacks: [StallReport.Stack],
        processID: Int32 = 0,
        descriptors: @escaping (WaitSite) -> [StallReport.Descriptor] = { DescriptorLookup($0).unasked }
    ) {
        (self.finding, self.descriptors) = (finding, descriptors)
        for (index, wait) in finding.waits.enumerated() {
            let names = Self.names(of: wait.threadID, index == 0 ? .stalled : .lockOwner, stacks)
            let owner = finding.owners.first { $0.threadID == wait.reading.owner }
            waits.append(.init(wait, names, owner, owner?.site.map(descriptors) ?? []))
            // Waits beyond something that turns out not to be an owner do not count.
            if waits[index].lock.owner == nil { break }
        }
        // The lock contains only the number of an owner that itself waits.
        for index in waits.indices {
            guard let owner = waits[index].lock.owner, owner.name == nil else { continue }
            waits[index].lock.owner = waits.first { $0.thread.id == owner.id }?.thread ?? owner
        }
        for index in waits.indices where waits[index].lock.isAtLoop && waits[index].lock.label == nil {
            guard let owner = waits[index].lock.owner else { continue }
            waits[index].lock.label = owner.id == processID ? "main" : owner.name
        }
        guard let closing = finding.closing, waits.count == finding.waits.count, waits.last?.lock.owner != nil else {
            return
        }
        cycle = waits[closing...]
    }

    /// The names on the thread's stack. If it has several, the one that waits in something known: the others were taken
    /// elsewhere.
    private static func names(of thread: Int32, _ role: StackRole, _ stacks: [StallReport.Stack]) -> LockNames {
        let all = stacks.filter { $0.role == role && $0.isOf(thread) }.map { LockNames($0.frames) }
        return all.first { $0.named != nil } ?? all.first ?? LockNames([])
    }

    /// The stacks without those of threads that turned out not to own anything.
    func kept(_ stacks: [StallReport.Stack]) -> [StallReport.Stack] {
        let owners = Set(waits.compactMap { $0.lock.owner?.id })
        return stacks.filter { $0.role != .lockOwner || owners.contains($0.thread.id) }
    }

    /// Without the locks if the thread was asleep elsewhere for longer: it waited for the first one too, but that is not the cause.
    ///
    /// - Parameter longest: Where it was asleep for longest.
    func relevant(to cause: StallReport.Cause, _ longest: WaitSite?) -> LockSummary {
        guard cause.verdict == .blocked, cycle.isEmpty, let longest, !finding.isWait(at: longest) else { return self }
        var summary = self
        summary.waits = []
        return summary
    }

    /// The cause with the locks: a cycle is a deadlock; otherwise the thread waits for the first lock.
    func cause(from cause: StallReport.Cause) -> StallReport.Cause {
        var cause = cause
        cause.lock = waits.first?.lock
        cause.chain = waits.count > 1 ? waits : nil
        guard cause.verdict != .paused else { return cause }
        if !cycle.isEmpty {
            cause.cycle = Array(cycle)
            (cause.verdict, cause.summary) = (.deadlock, deadlock)
        } else if cause.verdict == .blocked, !waits.isEmpty {
            cause.summary = sentence
        }
        return cause
    }

    // MARK: Words

    private var sentence: String {
        var text = "The thread waited for " + waits[0].lock.phrase
        for (index, wait) in waits.enumerated() {
            text += tail(wait, next: waits.dropFirst(index + 1).first)
        }
        return text + "."
    }

    /// The text after a lock: its owner, and what that thread does.
    private func tail(_ wait: StallReport.LockWait, next: StallReport.LockWait?) -> String {
        guard let owner = wait.lock.owner else { return absence(wait) }
        let held = wait.lock.possession(owner)
        if let next { return held + ", which waited for " + next.lock.phrase }
        return held + activity(of: owner)
    }

    private func absence(_ wait: StallReport.LockWait) -> String {
        if let gone = wait.lock.abandonedBy { return ", held by thread \(gone), which has ended without releasing it" }
        if !wait.lock.kind.canHaveOwner { return ", which no thread owns" }
        // A port of another process, or one that no loop has.
        if wait.lock.kind == .portReply || wait.lock.kind == .portRoom { return "" }
        let changedHands = finding.waits.contains { $0.threadID == wait.thread.id && $0.changedHands }
        return changedHands ? ", which changed hands while it was looked at" : ", whose holder could not be told"
    }

    private func activity(of owner: StallReport.Thread) -> String {
        guard let found = finding.owners.first(where: { $0.threadID == owner.id }) else { return "" }
        if let call = found.call {
            let target = found.site.flatMap { descriptors($0).first?.words } ?? ""
            return ", which was in \(call.words)" + (target.isEmpty ? "" : " on \(target)")
        }
        return owner.state == "R" ? ", which was running" : ""
    }

    private var deadlock: String {
        let links = cycle.map { "\($0.thread.words) waits for \($0.lock.phrase)" }
        guard cycle.count > 1 else {
            return
                "Deadlock: \(links[0]), which \(cycle.first?.lock.isAtLoop == true ? "is its own to serve" : "it holds itself")."
        }
        let circle = zip(links, cycle).map { link, wait in link + (wait.lock.owner.map(wait.lock.possession) ?? "") }
        let outside = cycle.startIndex == 0 ? "" : "The thread waits behind others. "
        return "\(outside)Deadlock of \(cycle.count) threads: " + circle.joined(separator: "; ") + "."
    }
}

extension StallReport.Stack {
    /// Whether it is that thread's stack, possibly together with other threads.
    func isOf(_ threadID: Int32) -> Bool { thread.id == threadID || threads?.contains { $0.id == threadID } == true }
}

extension StallReport.Thread {
    init(_ threadID: Int32, _ evidence: ThreadEvidence?) {
        self.init(id: threadID, name: evidence?.name, state: evidence.map { String($0.state) })
    }

    fileprivate var words: String { "thread \(id)" + (plainName.map { " (\($0))" } ?? "") }
}

extension StallReport.Lock {
    /// Whether the owner is the thread of a loop, which has to run to end the wait.
    fileprivate var isAtLoop: Bool { [.loopRequest, .portReply, .portRoom].contains(kind) }

    fileprivate var phrase: String {
        kind.words + (label.map { " (\($0))" } ?? "") + " at \(address)" + (timed ? ", with a timeout" : "")
    }

    /// How the owner relates to the lock.
    fileprivate func possession(_ owner: StallReport.Thread) -> String {
        switch kind {
        case .threadJoin, .workerEnd: ": \(owner.words)"
        case .loopRequest, .portReply: ", to be served by \(owner.words)"
        case .portRoom: ", to be emptied by \(owner.words)"
        default: ", held by \(owner.words)"
        }
    }
}

extension StallReport.LockWait {
    /// - Parameters:
    ///   - owner: An owner with a stack. Nil for a thread that itself waits.
    ///   - descriptors: What the owner's call waits for.
    fileprivate init(
        _ wait: LockFinding.Wait,
        _ names: LockNames,
        _ owner: LockFinding.Owner?,
        _ descriptors: [StallReport.Descriptor]
    ) {
        let (kind, keepsOwner) = names.judge(wait.reading.kind, hasOwner: wait.reading.owner != nil)
        var lock = StallReport.Lock(
            kind: kind,
            address: Address(UInt64(wait.reading.kind == .futex ? wait.baseAddress(of: kind) : wait.reading.address)),
            label: wait.reading.label,
            timed: wait.known.isTimed
        )
        if keepsOwner, let number = wait.reading.owner {
            lock.owner = .init(number, owner?.evidence)
            lock.knownBy = wait.reading.knownBy
            lock.ownerCall =
                owner?.site.map { .init($0, descriptors) } ?? owner?.call.map(StallReport.SystemCall.init(_:))
        }
        if keepsOwner { lock.abandonedBy = wait.reading.goneOwner }
        self.init(thread: .init(wait.threadID, wait.evidence), lock: lock)
    }
}

extension LockFinding {
    /// Whether the first thread's wait is at that place. Conditions and rwlocks have several words at which threads wait.
    fileprivate func isWait(at site: WaitSite) -> Bool {
        switch waits.first?.known {
        case .futex(let futex):
            let address = site.call.arguments.first ?? 0
            return max(address, futex.address) - min(address, futex.address) <= 12
        case .port: return site.call.name?.contains("poll") == true
        case nil: return false
        }
    }
}

extension LockFinding.Wait {
    /// The address of the object that the futex is part of.
    fileprivate func baseAddress(of kind: LockKind) -> UInt {
        guard case .futex(let futex) = known else { return reading.address }
        // A condition's waiters wait at one of two words in its middle: `__g_signals` (glibc 2.25 to 2.41).
        return kind == .condition && futex.address > 44
            ? futex.address - (futex.address % 8 == 0 ? 40 : 44) : futex.address
    }
}

extension LockFinding.Owner {
    /// Its stack for the report, or why there is none.
    ///
    /// - Parameter name: Finds names for a captured stack's frames.
    func reportStack(
        _ clock: WallClockAnchor,
        _ name: (CapturedStack, StallReport.Thread, MonotonicInstant) -> StallReport.Stack
    ) -> StallReport.Stack {
        let thread = StallReport.Thread(threadID, evidence)
        switch stack {
        case .success(let captured):
            var stack = name(captured, thread, time)
            stack.role = .lockOwner
            return stack
        case .failure(let error):
            return .missing(.lockOwner, thread, clock.time(of: time), because: error.description)
        }
    }
}
