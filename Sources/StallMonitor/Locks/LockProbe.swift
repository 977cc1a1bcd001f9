import Glibc
import RunLoopKit
import StackCapture
import StallDiagnosis

/// Finds the owner of what a thread waits for in futex(2), or for a port, then what that owner waits for, and so on. Runs on the
/// watchdog's thread: it uses only reads that cannot fault, and captures of stacks.
struct LockProbe {
    let memory: LockMemory
    let capture: (Int32) -> Result<CapturedStack, CaptureError>
    let sighting: (Int32) -> ThreadSighting?
    let evidence: (Int32) -> ThreadEvidence?
    /// Where a thread waits, by its call and its state.
    let site: (SystemCall, Character?) -> WaitSite

    /// How many owners in a row are followed.
    private static let longestChain = 8
    /// How often one wait is read until the owner is the same before and after its stack was taken.
    private static let tries = 3
    /// No new step is begun after this time.
    private static let budget: Duration = .milliseconds(100)

    /// Searches among the threads of this process.
    ///
    /// - Parameter words: Reads memory. Tests replace it by memory that changes meanwhile.
    init(capturer: StackCapturer, words: ((_ address: UInt, _ count: Int) -> [UInt32]?)? = nil) {
        var memory = LockMemory(
            words: words ?? { capturer.words(at: $0, count: $1) },
            hasThread: { unsafe access("/proc/self/task/\($0)", F_OK) == 0 }
        )
        memory.threadNumberOffset = GlibcThread.numberOffset(
            ofSelf: UInt(pthread_self()),
            StackCapturer.callingThread,
            memory
        )
        self.memory = memory
        capture = { capturer.capture(threadID: $0) }
        sighting = { StackCapturer.sighting(ofThread: $0) }
        evidence = { .read(threadID: $0) }
        site = { call, state in WaitSite(call, state: state) { capturer.readMemory(at: $0, count: $1) } }
    }

    /// What the thread waits for, if it is still in the call in which its stack was captured. Nil otherwise.
    func follow(_ threadID: Int32, capturedIn call: SystemCall?) -> LockFinding? {
        let deadline = MonotonicInstant.now + Self.budget
        guard let known = knownWait(call), let first = link(from: threadID, in: [], known, by: deadline)
        else { return nil }
        var finding = LockFinding(waits: [first.wait], owners: [first.owner].compactMap { $0 })
        while let owner = finding.waits.last?.reading.owner, finding.waits.count < Self.longestChain {
            if let index = finding.waits.firstIndex(where: { $0.threadID == owner }) {
                finding.closing = isClosed(finding.waits[index...]) ? index : nil
                break
            }
            // What the owner waits for counts only if its stack was taken in that wait.
            guard let known = knownWait(finding.owners.last?.call),
                finding.waits.last?.known.canEnd(during: known) == false,
                let next = link(from: owner, in: finding.waits, known, by: deadline)
            else { break }
            finding.waits.append(next.wait)
            if let owner = next.owner { finding.owners.append(owner) }
        }
        return finding
    }

    private func knownWait(_ call: SystemCall?) -> KnownWait? { call.flatMap { KnownWait($0, memory) } }

    /// Whether the first thread of the waits, which the last one waits for, cannot end that wait, and all are still asleep.
    private func isClosed(_ waits: ArraySlice<LockFinding.Wait>) -> Bool {
        guard let first = waits.first, waits.last?.known.canEnd(during: first.known) == false else { return false }
        return waits.allSatisfy { sighting($0.threadID)?.sleepsOn(since: $0.sighting) == true }
    }

    /// One wait, and its owner with a stack, unless the owner itself waits.
    private func link(
        from threadID: Int32,
        in waits: [LockFinding.Wait],
        _ known: KnownWait,
        by deadline: MonotonicInstant
    ) -> (wait: LockFinding.Wait, owner: LockFinding.Owner?)? {
        var last: LockFinding.Wait?
        var changedHands = false
        for _ in 0..<Self.tries where last == nil || MonotonicInstant.now < deadline {
            guard var wait = wait(of: threadID, in: known) else { return nil }
            guard let number = wait.reading.owner else { return (wait, nil) }
            let waitsItself = number == threadID || waits.contains { $0.threadID == number }
            let owner = waitsItself ? nil : owner(number)
            let again = reading(known, of: threadID)
            // The order matters: the lock was read again while the thread was still asleep.
            let after = sighting(threadID)
            if again == wait.reading, after?.sleepsOn(since: wait.sighting) == true { return (wait, owner) }
            // Otherwise only the waiting thread has moved.
            changedHands = changedHands || again?.owner != number
            (wait.reading.owner, wait.reading.knownBy, wait.changedHands) = (nil, nil, changedHands)
            last = wait
        }
        return last.flatMap { wait in
            knownWait(sighting(threadID)?.systemCall) == known ? (wait, nil) : nil
        }
    }

    /// What the memory says now. Nil if it is no longer that wait.
    private func reading(_ known: KnownWait, of threadID: Int32) -> LockReading? {
        switch known {
        case .futex(let futex): LockReading(futex, waiter: threadID, memory)
        case .port(let port):
            knownWait(sighting(threadID)?.systemCall) == known ? LockReading(port, memory) : nil
        }
    }

    private func wait(of threadID: Int32, in known: KnownWait) -> LockFinding.Wait? {
        guard let sighting = sighting(threadID), knownWait(sighting.systemCall) == known,
            let reading = reading(known, of: threadID)
        else { return nil }
        return LockFinding.Wait(
            threadID: threadID,
            evidence: evidence(threadID),
            known: known,
            reading: reading,
            sighting: sighting
        )
    }

    private func owner(_ threadID: Int32) -> LockFinding.Owner {
        let stack = capture(threadID)
        var owner = LockFinding.Owner(
            threadID: threadID,
            evidence: evidence(threadID),
            time: .now,
            stack: stack
        )
        owner.site = owner.call.map { site($0, owner.evidence?.state) }
        return owner
    }
}
