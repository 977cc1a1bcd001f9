import RunLoopKit
import StackCapture
import StallReports
import Testing

@testable import StallMonitor

/// Words as they were in memory: Debian 12, glibc 2.36, x86-64, libdispatch of Swift 6.3.
@Suite("What a futex and the memory around it show about a lock")
struct LockReadingTests {
    private let waiter: Int32 = 14_127
    private let owner: Int32 = 14_125

    private func memory(_ contents: [UInt: [UInt32]], threads: Set<Int32>? = nil) -> LockMemory {
        let threads = threads ?? [waiter, owner]
        var words: [UInt: UInt32] = [:]
        for (start, values) in contents {
            for (index, value) in values.enumerated() { words[start + UInt(index) * 4] = value }
        }
        let read = { (address: UInt, count: Int) -> [UInt32]? in
            let found = (0..<count).compactMap { words[address + UInt($0) * 4] }
            return found.count == count ? found : nil
        }
        var memory = LockMemory(words: read, hasThread: { threads.contains($0) })
        memory.threadNumberOffset = 720
        return memory
    }

    private func wait(_ address: UInt, _ operation: UInt, _ expected: UInt, timeout: UInt = 0) throws -> FutexWait {
        let number = try #require((0..<600).first { SystemCall(number: $0, arguments: []).name == "futex" })
        return try #require(
            FutexWait(SystemCall(number: number, arguments: [address, operation, expected, timeout, 0, 0]))
        )
    }

    private func words(_ pointer: UInt) -> [UInt32] {
        [UInt32(truncatingIfNeeded: pointer), UInt32(truncatingIfNeeded: pointer >> 32)]
    }

    @Test(
        "Each kind of pthread mutex is recognised; its owner is read from its owner field",
        arguments: [
            (0x200, .mutex), (0, .mutex), (1, .recursiveMutex), (2, .errorCheckingMutex), (3, .adaptiveMutex),
            (0x80, .mutex),
        ] as [(UInt32, LockKind)]
    )
    func mutex(_ bits: UInt32, _ kind: LockKind) throws {
        let memory = memory([0x1000: [2, 0, UInt32(owner), 1, bits, 0, 0, 0, 0, 0]])
        let reading = LockReading(try wait(0x1000, 0x80, 2), waiter: waiter, memory)
        #expect(
            reading.kind == kind && reading.owner == owner && reading.knownBy == .mutexOwner
                && reading.address == 0x1000
        )
        // pthread_mutex_timedlock's.
        let timed = try wait(0x1000, 0x189, 2, timeout: 0x7f00)
        #expect(timed.isTimed && LockReading(timed, waiter: waiter, memory) == reading)
    }

    @Test("A wait of the package's own names its thread; without the mark it does not count")
    func ownWait() throws {
        let wait = try wait(0x1000, 0x89, 0)
        let (low, high) = (UInt32(truncatingIfNeeded: WaitPoint.mark), UInt32(truncatingIfNeeded: WaitPoint.mark >> 32))
        let thread = UInt32(owner)
        for (reason, kind) in [(WaitPoint.Reason.loopRequest, LockKind.loopRequest), (.workerEnd, .workerEnd)] {
            let words: [UInt32] = [0, reason.rawValue, low, high, thread]
            let reading = LockReading(wait, waiter: waiter, memory([0x1000: words]))
            #expect(reading.kind == kind && reading.owner == owner && reading.knownBy == .waitPoint)
            // The thread is unknown or gone: it does not matter which one it was.
            let unknown: [UInt32] = [0, reason.rawValue, low, high, 0]
            #expect(LockReading(wait, waiter: waiter, memory([0x1000: unknown])).owner == nil)
            #expect(LockReading(wait, waiter: waiter, memory([0x1000: words], threads: [waiter])).owner == nil)
        }
        let others: [[UInt32]] = [
            [0, 2, low, high ^ 1, thread], [1, 2, low, high, thread], [0, 1, low, high, thread],
            [0, 77, low, high, thread], [0, 2, low, high],
        ]
        for words in others {
            #expect(LockReading(wait, waiter: waiter, memory([0x1000: words])).owner == nil)
        }
    }

    /// As a thread's memory has it that waits in the mode with index 3 for a port in the modes 0 and 3.
    private func portWords(_ reason: PortWait.Reason, mode: UInt32 = 3, process: UInt32 = 0, name: UInt = 0) -> [UInt32]
    {
        words(UInt(PortWait.mark)) + [reason.rawValue, UInt32(owner), process, mode] + words(0b1001) + words(name)
            + words(0x5000)
    }

    private func call(_ name: String, _ arguments: UInt...) throws -> SystemCall {
        let number = try #require((0..<600).first { SystemCall(number: $0, arguments: []).name == name })
        return SystemCall(number: number, arguments: arguments)
    }

    @Test(
        "A wait for a port says whose thread it is for, in the words beside what the call gets; without their mark it is none"
    )
    func port() throws {
        let epoll = try call("epoll_pwait2", 5, 0x2000, 64, 0)
        let poll = try call("ppoll", 0x1000, 1, 0)
        for (call, address, reason, kind) in [
            (epoll, 0x2000 - 48, PortWait.Reason.reply, LockKind.portReply), (poll, 0x1008, .room, .portRoom),
        ] as [(SystemCall, UInt, PortWait.Reason, LockKind)] {
            let memory = memory([address: portWords(reason)])
            let known = try #require(KnownWait(call, memory))
            guard case .port(let port) = known else { return #expect(Bool(false), "\(known)") }
            let reading = LockReading(port, memory)
            #expect(reading.kind == kind && reading.owner == owner && reading.knownBy == .waitPoint)
            #expect(reading.address == 0x5000 && reading.label == nil && !known.isTimed)
            // The thread is gone.
            #expect(LockReading(port, self.memory([address: portWords(reason)], threads: [waiter])).owner == nil)
            for word in [0, 1, 2] {
                var others = portWords(reason)
                others[word] ^= 4
                #expect(KnownWait(call, self.memory([address: others])) == nil)
            }
            #expect(KnownWait(call, self.memory([:])) == nil)
        }
        #expect(KnownWait(try self.call("ppoll", 0x1000, 2, 0), memory([0x1008: portWords(.room)])) == nil)
        #expect(KnownWait(try self.call("read", 0x1000, 0x2000, 1), memory([0x1fd0: portWords(.reply)])) == nil)
    }

    @Test("A port is named by its name and, if that is another one, its process")
    func portNames() throws {
        let name: [UInt32] = [0x7665_7473, 0]
        for (process, name, label) in [(0, name, "stev"), (77, name, "stev in process 77"), (77, [], "process 77")]
            as [(UInt32, [UInt32], String)]
        {
            let words = portWords(.reply, process: process, name: name.isEmpty ? 0 : 0x9000)
            let memory = memory([0x1000: words, 0x9000: name])
            let port = try #require(PortWait.Words(words))
            #expect(LockReading(port, memory).label == label)
        }
    }

    @Test(
        "A port in a mode that its thread runs meanwhile can be served; one in another mode, or of a thread that only waits, cannot"
    )
    func servedPort() throws {
        let port = try #require(PortWait.Words(portWords(.reply)))
        for (mode, isServed) in [(0, true), (3, true), (1, false), (.max, false), (64, false)] as [(UInt32, Bool)] {
            let other = try #require(PortWait.Words(portWords(.reply, mode: mode)))
            #expect(port.isServed(during: other) == isServed)
        }
    }

    @Test("A robust mutex has its owner in its word, with the waiters bit")
    func robust() throws {
        let word = UInt32(owner) | 0x8000_0000
        let memory = memory([0x1000: [word, 1, UInt32(owner), 1, 0x90, 0, 0xaf72_9a0, 0x7f19, 0xaf72_9a0, 0x7f19]])
        let reading = LockReading(try wait(0x1000, 0, UInt(word)), waiter: waiter, memory)
        #expect(reading.kind == .robustMutex && reading.owner == owner && reading.knownBy == .lockWord)
    }

    @Test("A PI futex has its owner in its word; pthread's is a PI mutex, any other is a plain PI futex")
    func inheriting() throws {
        let word = UInt32(owner) | 0x8000_0000
        let mutex = memory([0x1000: [word, 1, UInt32(owner), 1, 0x20, 0, 0, 0, 0, 0]])
        let reading = LockReading(try wait(0x1000, 0x86, 0), waiter: waiter, mutex)
        #expect(reading.kind == .piMutex && reading.owner == owner && reading.knownBy == .lockWord)
        // The word names no thread of this process.
        let gone = LockReading(try wait(0x1000, 0x86, 0), waiter: waiter, memory([0x1000: [word]], threads: [waiter]))
        #expect(gone.kind == .piFutex && gone.owner == nil && gone.knownBy == nil)
        // Swift's Mutex may be the last word before unmapped memory.
        let swift = LockReading(try wait(0x1000, 0x86, 0), waiter: waiter, memory([0x1000: [word]]))
        #expect(swift.kind == .piFutex && swift.owner == owner && swift.knownBy == .lockWord)
    }

    @Test(
        "A rwlock is recognised at each of its words; its writer is its owner, readers are not",
        arguments: [
            (8, 3, [0xb, 0, 3, 1], true), (12, 3, [3, 0, 1, 3], true), (8, 2, [0xa, 0, 2, 1], false),
            (0, 0xe, [0xe, 0, 2, 1], false), (12, 3, [0xe, 1, 2, 3], false),
        ] as [(UInt, UInt, [UInt32], Bool)]
    )
    func readWriteLock(_ offset: UInt, _ expected: UInt, _ head: [UInt32], _ isWritten: Bool) throws {
        let writer = isWritten ? UInt32(owner) : 0
        let memory = memory([0x1000: head + [0, 0, writer, 0, 0, 0, 0, 0, isWritten ? 0 : 2, 0]])
        let reading = LockReading(try wait(0x1000 + offset, 0x189, expected), waiter: waiter, memory)
        #expect(reading.kind == .readWriteLock && reading.address == 0x1000)
        #expect(reading.owner == (isWritten ? owner : nil) && reading.knownBy == (isWritten ? .writer : nil))
    }

    @Test("An owner that is no thread has ended; in another pid namespace its number says nothing")
    func goneOwner() throws {
        let mutex: [UInt32] = [2, 0, UInt32(owner), 1, 0, 0, 0, 0, 0, 0]
        let lock: [UInt32] = [0xb, 0, 3, 1, 0, 0, UInt32(owner), 0, 0, 0, 0, 0, 0, 0]
        for (words, futex) in [(mutex, try wait(0x1000, 0x80, 2)), (lock, try wait(0x1008, 0x189, 3))] {
            var memory = memory([0x1000: words], threads: [waiter])
            #expect(LockReading(futex, waiter: waiter, memory).goneOwner == owner)
            memory.knowsThreads = false
            let reading = LockReading(futex, waiter: waiter, memory)
            #expect(reading.goneOwner == nil && reading.owner == nil)
        }
    }

    @Test("A joined thread is the one whose id is in a futex that is not private")
    func join() throws {
        let memory = memory([0x1990: [UInt32(owner)]])
        let reading = LockReading(try wait(0x1990, 0x109, UInt(owner)), waiter: waiter, memory)
        #expect(reading.kind == .threadJoin && reading.owner == owner && reading.knownBy == .joinedThread)
        #expect(LockReading(try wait(0x1990, 0x189, UInt(owner)), waiter: waiter, memory).owner == nil)
    }

    /// `dispatch_sync_context_s` at 0x5000, its event at + 96.
    private func context(queue: UInt, itself: UInt = 0x5000, waiter: Int32 = 14_127) -> [UInt32] {
        let head = words(0x13) + words(0x1000_0000) + words(0) + words(0) + words(0x7fe8_a240_5550)
        let middle = words(itself) + words(UInt.max - 3) + words(queue)
        return head + middle + words(1) + words(2) + words(0) + words(0) + [.max, UInt32(waiter)]
    }

    private func queue(target: UInt, state: UInt, label: UInt) -> [UInt32] {
        words(0x7fe8_a242_bb50) + words(2) + words(0xffff_ffff_89ab_cdef) + words(target) + words(0) + words(0)
            + words(0x5000) + words(state) + words(0x11) + words(label)
    }

    private let label: [UInt32] = [0x2e62_616c, 0x0000_0071]

    @Test("A busy queue is found through the context on the stack, its owner in its state")
    func busyQueue() throws {
        let memory = memory([
            0x5000: context(queue: 0x6000),
            0x6000: queue(target: 0x7000, state: 0x60_0094_8000_0000 | UInt(owner), label: 0x8000), 0x8000: label,
        ])
        let reading = LockReading(try wait(0x5060, 0x80, 0xffff_ffff), waiter: waiter, memory)
        #expect(reading.kind == .dispatchQueue && reading.address == 0x6000 && reading.label == "lab.q")
        #expect(reading.owner == owner && reading.knownBy == .queueState)
    }

    @Test("A queue that the waiting thread has taken already leads to its target queue")
    func targetQueue() throws {
        let memory = memory([
            0x5000: context(queue: 0x6000),
            0x6000: queue(target: 0x7000, state: 0x60_0000_0000_0000 | UInt(waiter), label: 0),
            0x7000: queue(target: 0, state: 0x60_0090_0000_0000 | UInt(owner), label: 0x8000), 0x8000: label,
        ])
        let reading = LockReading(try wait(0x5060, 0x80, 0xffff_ffff), waiter: waiter, memory)
        #expect(reading.address == 0x7000 && reading.owner == owner && reading.label == "lab.q")
    }

    @Test("A thread event without its context, or with another thread's, belongs to no queue")
    func noQueue() throws {
        let queue = queue(target: 0, state: UInt(owner), label: 0)
        let wait = try wait(0x5060, 0x80, 0xffff_ffff)
        for context in [context(queue: 0x6000, itself: 0x5008), context(queue: 0x6000, waiter: 1)] {
            let reading = LockReading(wait, waiter: waiter, memory([0x5000: context, 0x6000: queue]))
            #expect(reading.kind == .futex && reading.owner == nil)
        }
        let unmapped = LockReading(wait, waiter: waiter, memory([0x5000: context(queue: 0x6000)]))
        #expect(unmapped.kind == .futex && unmapped.owner == nil)
    }

    #if arch(x86_64)
        @Test("A stream's lock points to its owner's descriptor")
        func stream() throws {
            var descriptor = [UInt32](repeating: 0, count: 200)
            (descriptor[4], descriptor[180]) = (0x9000, UInt32(owner))
            let memory = memory([0x1000: [2, 1] + words(0x9000) + [0, 0], 0x9000: descriptor])
            let reading = LockReading(try wait(0x1000, 0x80, 2), waiter: waiter, memory)
            #expect(reading.kind == .stream && reading.owner == owner && reading.knownBy == .streamOwner)
        }
    #endif

    @Test("dispatch_once has its owner in its word")
    func onceWord() throws {
        let word = UInt32(owner) | 0x8000_0000
        let reading = LockReading(try wait(0x1000, 0x80, UInt(word)), waiter: waiter, memory([0x1000: [word, 0]]))
        #expect(reading.owner == owner && reading.knownBy == .lockWord)
    }

    @Test(
        "An unknown lock, or one that names no thread, has no owner",
        arguments: [
            [2, 0, 99, 1, 0], [2, 0, 14_125, 0, 0], [2, 0, 14_125, 1, 0x4000], [2, 0, 0, 1, 0], [1, 0, 14_125, 1, 0],
            [2],
            [0, 0, 14_125, 1, 0],
        ] as [[UInt32]]
    )
    func notALock(_ words: [UInt32]) throws {
        let memory = memory([0x1000: words + [0]])
        #expect(LockReading(try wait(0x1000, 0x80, 2), waiter: waiter, memory).owner == nil)
    }

    @Test("The futex of a semaphore or a condition has no owner, whatever is around it")
    func ownerless() throws {
        let memory = memory([0x0fd8: [UInt32](repeating: UInt32(owner), count: 40)])
        #expect(LockReading(try wait(0x1000, 0x189, 0), waiter: waiter, memory).owner == nil)
    }

    @Test("A semaphore is recognised whatever its padding contains, but not if that is a thread's number")
    func semaphore() throws {
        let (local, shared) = (try wait(0x1000, 0x189, 0), try wait(0x1000, 0x109, 0))
        let kind = { (wait: FutexWait, words: [UInt32], threads: Set<Int32>?) in
            LockReading(wait, waiter: waiter, memory([0x1000: words], threads: threads)).kind
        }
        for padding: UInt32 in [0, 0x7f, 0xdead_beef] {
            #expect(kind(local, [0, 1, 0, padding], nil) == .semaphore)
            #expect(kind(shared, [0, 1, 128, padding], nil) == .semaphore)
        }
        // A condition's last word, and a mutex behind it that a thread holds.
        #expect(kind(local, [0, 1, 0, UInt32(owner)], nil) == .futex)
        #expect(kind(local, [0, 1, 0, UInt32(owner)], [waiter]) == .semaphore)
        #expect(kind(local, [0, 1, 128, 0], nil) == .futex && kind(shared, [0, 1, 0, 0], nil) == .futex)
        #expect(kind(local, [1, 1, 0, 0], nil) == .futex && kind(local, [0, 0, 0, 0], nil) == .futex)
        // Where numbers are another namespace's, any word may be a thread's.
        var elsewhere = memory([0x1000: [0, 1, 0, 7]])
        elsewhere.knowsThreads = false
        #expect(LockReading(local, waiter: waiter, elsewhere).kind == .futex)
    }

    @Test("An unreadable address gives a plain futex; another call gives none")
    func unreadable() throws {
        let reading = LockReading(try wait(0x1000, 0x86, 0), waiter: waiter, memory([:]))
        #expect(reading.kind == .futex && reading.owner == nil && reading.address == 0x1000)
        #expect(FutexWait(SystemCall(number: 0, arguments: [0x1000, 0x80, 2, 0, 0, 0])) == nil)
        // FUTEX_WAKE does not wait.
        let number = try #require((0..<600).first { SystemCall(number: $0, arguments: []).name == "futex" })
        #expect(FutexWait(SystemCall(number: number, arguments: [0x1000, 0x81, 1, 0, 0, 0])) == nil)
    }

    @Test("A wait with a timeout that goes on after a stop of the process, by another call, is the same wait")
    func continued() throws {
        let number = try #require(SystemCall.numbers(of: ["restart_syscall"]).first)
        func continued(_ arguments: UInt...) -> FutexWait? {
            FutexWait(SystemCall(number: number, arguments: arguments))
        }
        // FUTEX_WAIT and FUTEX_WAIT_BITSET, private, by the monotonic or the wall clock.
        for operation: UInt in [0x80, 0x89, 0x189] {
            let before = try wait(0x1000, operation, 2, timeout: 0x2000)
            #expect(continued(0x1000, operation, 2, 0x2000, 0, 0) == before, "\(operation)")
        }
        // clock_nanosleep(2), nanosleep(2) without and with room for the rest, poll(2).
        #expect(continued(1, 1, 0x1000, 0) == nil && continued(0x1000, 0, 2, 0x2000) == nil)
        #expect(continued(0x1000, 0x7ffc_1234_5680, 2, 0x2000) == nil && continued(0x1000, 9, 2, 0x2000) == nil)
        // What the kernel continues by the same call.
        #expect(continued(0x1000, 0x80, 2, 0, 0, 0) == nil && continued(0x1000, 0x86, 2, 0x2000, 0, 0) == nil)
    }
}
