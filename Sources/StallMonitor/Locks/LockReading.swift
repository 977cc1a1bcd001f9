import RunLoopKit
import StackCapture
import StallDiagnosis
import StallReports

/// What one reading of a futex, or of a wait for a port, shows about its lock. Pure, for given memory.
struct LockReading: Hashable, Sendable {
    var kind: LockKind = .futex
    var address: UInt
    var label: String?
    /// The owner, an existing thread of this process, and how it was determined.
    var owner: Int32?
    var knownBy: OwnerEvidence?
    /// An owner that is no longer a thread of this process.
    var goneOwner: Int32?

    init(_ wait: FutexWait, waiter: Int32, _ memory: LockMemory) {
        address = wait.address
        guard let word = memory.word(at: wait.address) else { return }
        switch wait.operation {
        case .lockPI:
            seeInheriting(word, memory)
        case .wait, .waitBitset:
            if wait.expected == .max {
                seeQueue(wait, waiter, memory)
            } else if wait.expected & FutexWait.waiters != 0 {
                seeOwnWord(wait, word, memory)
            } else if wait.expected == 2, word == 2, seeMutex(memory) || seeStream(memory) {
                return
            } else if wait.operation == .waitBitset {
                seeOthers(wait, word, memory)
            }
        }
    }

    init(_ port: PortWait.Words, _ memory: LockMemory) {
        address = port.connection
        let place = port.process == 0 ? nil : "process \(port.process)"
        let name = port.name == 0 ? nil : memory.label(at: port.name)
        label = name == nil && place == nil ? nil : [name, place].compactMap(\.self).joined(separator: " in ")
        hold(port.reason == .reply ? .portReply : .portRoom, port.thread, .waitPoint, memory)
    }

    private mutating func hold(_ kind: LockKind, _ owner: Int32, _ evidence: OwnerEvidence, _ memory: LockMemory) {
        self.kind = kind
        guard owner > 0, memory.hasThread(owner) else { return }
        (self.owner, knownBy) = (owner, evidence)
    }

    /// Handles a lock whose owner the kernel itself writes.
    private mutating func seeInheriting(_ word: UInt32, _ memory: LockMemory) {
        let owner = FutexWait.owner(of: word)
        let mutex = GlibcMutex(at: address, memory).flatMap { $0.isInheriting && $0.owner == owner ? $0 : nil }
        hold(mutex?.kind ?? .piFutex, owner, .lockWord, memory)
    }

    /// Handles a word with the owner in which the waiting thread has set a mark, as for robust mutexes and dispatch_once.
    private mutating func seeOwnWord(_ wait: FutexWait, _ word: UInt32, _ memory: LockMemory) {
        let owner = FutexWait.owner(of: word)
        guard word == wait.expected, memory.hasThread(owner) else { return }
        let mutex = GlibcMutex(at: address, memory).flatMap { $0.isRobust && $0.owner == owner ? $0 : nil }
        hold(mutex?.kind ?? .futex, owner, .lockWord, memory)
    }

    private mutating func seeMutex(_ memory: LockMemory) -> Bool {
        guard let mutex = GlibcMutex(at: address, memory), mutex.word == 2, !mutex.isRobust, !mutex.isInheriting else {
            return false
        }
        let isThere = memory.hasThread(mutex.owner)
        if isThere { hold(mutex.kind, mutex.owner, .mutexOwner, memory) }
        // A number that is not a thread's may be any data.
        if !isThere, memory.knowsThreads, mutex.users == 1, !mutex.isShared {
            (kind, goneOwner) = (mutex.kind, mutex.owner)
        }
        return isThere || goneOwner != nil
    }

    private mutating func seeStream(_ memory: LockMemory) -> Bool {
        guard let stream = GlibcStreamLock(at: address, memory), memory.hasThread(stream.owner) else { return false }
        hold(.stream, stream.owner, .streamOwner, memory)
        return true
    }

    private mutating func seeQueue(_ wait: FutexWait, _ waiter: Int32, _ memory: LockMemory) {
        guard let queue = DispatchQueueWait(wait, waiter: waiter, memory) else { return }
        (kind, address, label) = (.dispatchQueue, queue.queue, queue.label)
        if let owner = queue.owner { hold(.dispatchQueue, owner, .queueState, memory) }
    }

    private mutating func seeOthers(_ wait: FutexWait, _ word: UInt32, _ memory: LockMemory) {
        let joined = Int32(truncatingIfNeeded: wait.expected)
        if let point = LoopWait(wait, memory) {
            hold(point.kind, point.thread, .waitPoint, memory)
        } else if let lock = GlibcReadWriteLock(ofFutex: wait, memory) {
            address = lock.address
            hold(.readWriteLock, lock.writer, .writer, memory)
            if owner == nil, memory.knowsThreads, lock.writer > 0, !lock.isShared { goneOwner = lock.writer }
        } else if !wait.isPrivate, word == wait.expected, joined > 0, memory.hasThread(joined) {
            // A joined thread's number, which the kernel clears when the thread ends, with a wake-up that is not private.
            hold(.threadJoin, joined, .joinedThread, memory)
        } else if wait.expected == 0, GlibcSemaphore.isOne(wait, memory) {
            kind = .semaphore
        }
    }
}

/// The waits and owners, beginning with the stalled thread, as the watchdog found them. Kinds are checked against function names
/// later.
struct LockFinding: Sendable {
    /// A thread's wait for another one.
    struct Wait: Sendable {
        var threadID: Int32
        /// The thread's name and state.
        var evidence: ThreadEvidence?
        var known: KnownWait
        var reading: LockReading
        /// Where the thread was asleep. It shows whether it still is.
        var sighting: ThreadSighting
        /// The owner or the thread's place was different at each reading.
        var changedHands = false
    }

    /// A thread that another one waits for.
    struct Owner: Sendable {
        var threadID: Int32
        var evidence: ThreadEvidence?
        var time: MonotonicInstant
        var stack: Result<CapturedStack, CaptureError>
        /// Where it was waiting. Nil for one that ran.
        var site: WaitSite?

        var captured: CapturedStack? { try? stack.get() }
        /// The system call it was in.
        var call: SystemCall? { captured?.systemCall }
    }

    /// The stalled thread's wait first. Each wait's owner is the next one's thread. Never empty.
    var waits: [Wait]
    /// All threads but the stalled one, in the order in which they were found.
    var owners: [Owner] = []
    /// Index of the wait whose thread is the last wait's owner.
    var closing: Int?

    /// The cost of taking the owners' stacks.
    var costs: [CapturedStack.Cost] { owners.compactMap { $0.captured?.cost } }
}
