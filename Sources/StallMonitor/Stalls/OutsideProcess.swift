import CMonitorShims
import Glibc
package import RunLoopKit
package import StackCapture
import StallDetection
import StallDiagnosis
package import StallReports
package import Symbolication
import Synchronization

/// Another process, while it runs one program: its identity, its symbols, and what is read of it while one of its loops is
/// stalled. Any thread.
package final class OutsideProcess: Sendable {
    package let identity: ProcessIdentity
    /// Its name in reports, which is the name that it has given itself; if the dynamic loader runs the program, the program's.
    package let service: ServiceIdentity
    package let sampler: ProcessSampler
    let symbolicator: Symbolicator
    private let supply: SupplyLocation
    private let meter: Mutex<SupplyMeter>

    /// - Parameters:
    ///   - sampler: Takes its stacks.
    ///   - search: Where to look for its symbols.
    package init(processID: Int32, sampler: ProcessSampler, search: SymbolSearch) {
        identity = .of(processID)
        self.sampler = sampler
        symbolicator = Symbolicator(processID: processID, search: search)
        // A file may have many names. The process's own name is the relevant one, but it is cut to 15 bytes.
        let file = identity.executable.map(fileName(ofPath:))
        let name = ProcessThread(threadID: processID, ofProcess: processID).name
        let isCut = file.map { file in name.map { $0.utf8.count >= 15 && file.hasPrefix($0) } ?? true } ?? false
        let isLoaders = name?.hasPrefix("ld-") == true
        service = ServiceIdentity(name: (isCut || isLoaders ? file : name) ?? file ?? "unknown")
        supply = SupplyLocation(of: ObservedProcess(otherID: processID))
        meter = Mutex(SupplyMeter(location: supply))
        supply.locate()
    }

    /// The options with which its interpreter would write the names of its script's functions. Nil if it writes them, or is none that
    /// can. Reads the file with the names.
    package var missingScriptOptions: String? {
        let interpreter = identity.executable.map(fileName(ofPath:)) ?? ""
        var options: String?
        if ["node", "nodejs"].contains(interpreter) { options = "--perf-basic-prof --interpreted-frames-native-stack" }
        if interpreter.hasPrefix("python3."), Int(interpreter.dropFirst("python3.".count)).map({ $0 >= 12 }) == true {
            options = "-X perf"
        }
        return symbolicator.knowsGeneratedCode ? nil : options
    }

    var observed: ObservedProcess { ObservedProcess(otherID: identity.pid) }

    /// Whether its control group is frozen now (cgroups(7)), for example by `docker pause`. Reads one or two files.
    package var isFrozen: Bool {
        supply.search()
        return supply.found?.freezer.isFrozen == true
    }

    /// The kernel's counts for a thread now. Nil if the thread has ended. Takes some tens of microseconds.
    package func account(ofThread threadID: Int32, at time: MonotonicInstant) -> Account? {
        ThreadEvidence.read(threadID: threadID, of: observed).map {
            Account(time: time, evidence: $0, supply: meter.withLock { $0.reading(at: time) })
        }
    }

    /// The change since an earlier account, without excluded time. Counts that are read after the stall include what came after it.
    func window(since before: Account, threadID: Int32, at time: MonotonicInstant, of span: StallSpan)
        -> EvidenceWindow?
    {
        guard let now = ThreadEvidence.read(threadID: threadID, of: observed) else { return nil }
        var window = EvidenceWindow(length: time - before.time, before: before.evidence, after: now)
            .leavingOut(span.excluded + max(.zero, time - span.latestEnd), unobserved: span.unobserved)
        window.supply = meter.withLock { $0.window(since: before.supply, threadID: threadID, at: time) }
        return window
    }

    /// A stack that was just taken, with the call in which its thread waits, if any.
    ///
    /// - Parameter loopFrame: The innermost frame that is also on the stack while the loop rests, if known.
    package func sample(
        _ stack: CapturedStack,
        ofThread threadID: Int32,
        at time: MonotonicInstant,
        loopFrame: Int?
    ) -> StackSample {
        remember(stack)
        let state = stack.systemCall.flatMap { _ in ThreadEvidence.read(threadID: threadID, of: observed)?.state }
        let site = stack.systemCall.map { call in
            WaitSite(call, state: state, of: observed) { read($0, $1) }
        }
        return StackSample(time: time, stack: stack, site: site, loopFrame: loopFrame)
    }

    /// The stack gets its names later, when the process may have ended.
    private func remember(_ stack: CapturedStack) {
        symbolicator.remember(stack.addresses)
    }

    /// The process runs another program now. Stacks of this one keep their names.
    package func noteReplaced() { symbolicator.noteReplaced() }

    /// Takes the stack of a thread that may own a lock.
    fileprivate func captureOwner(_ threadID: Int32) -> Result<CapturedStack, CaptureError> {
        let stack = sampler.capture(threadID: threadID)
        if case .success(let stack) = stack { remember(stack) }
        return stack
    }

    /// The number of jobs that Swift's task pool runs at once: libdispatch counts the processors that the process may use. It does so once, so the
    /// figure is wrong if that has changed since.
    package var poolWidth: Int {
        let (all, allowed) = (sysconf(Int32(_SC_NPROCESSORS_CONF)), Int(monitor_allowed_processors(identity.pid)))
        return max(1, allowed > 0 ? min(all, allowed) : all)
    }

    /// Where functions of the process are: see ``Symbolicator``. Takes milliseconds.
    package func functions(_ names: Set<String>, inModule prefix: String?) -> [String: FunctionPlace] {
        symbolicator.functions(names, inModule: prefix)
    }

    /// The process's memory now. Nil if not all of it can be read. Changes nothing.
    func read(_ address: UInt, _ count: Int) -> [UInt8]? {
        guard count > 0, count <= 1 << 20, address <= UInt(Int.max) else { return nil }
        let file = unsafe open(observed.livingDirectory + "/mem", O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { return nil }
        defer { close(file) }
        var bytes = [UInt8](repeating: 0, count: count)
        let done = unsafe bytes.withUnsafeMutableBytes { unsafe pread(file, $0.baseAddress, count, off_t(address)) }
        return done == count ? bytes : nil
    }

    /// The owners of the lock that a thread waits for, if its stack was just captured in such a wait. Takes up to 100 ms.
    func lock(awaitedBy threadID: Int32, _ stack: CapturedStack) -> LockFinding? {
        LockProbe(of: self).follow(threadID, capturedIn: stack.systemCall)
    }

    /// The kernel's counts for a thread at one moment.
    package struct Account: Sendable {
        let time: MonotonicInstant
        let evidence: ThreadEvidence
        let supply: SupplyMeter.Reading?
    }
}

/// What a thread of another process waits for in poll or select: distinguishes a server's loop from a client's wait.
package struct PolledSet: Hashable, Sendable {
    /// The kinds of the descriptors. Of a long list, the first few.
    package var kinds: [DescriptorKind]
    /// Whether one of them is a listening socket.
    package var hasListener: Bool
    /// Whether the wait has no timeout.
    package var isUnbounded: Bool

    package init(kinds: [DescriptorKind], hasListener: Bool = false, isUnbounded: Bool) {
        (self.kinds, self.hasListener, self.isUnbounded) = (kinds, hasListener, isUnbounded)
    }

    /// A client does not poll this many descriptors.
    private static let many = 8
    /// Kinds for which only loops wait.
    private static let own: Set<DescriptorKind> = [.epoll, .timerfd, .signalfd, .inotify]

    /// Servers poll descriptors that announce clients, times and other threads. A client polls its connection, its terminal or a
    /// child's output when it expects an answer. Between two requests it may do anything, so its waits do not belong to a loop.
    ///
    /// `CLoopHooks/rule.c` uses the same rule inside a process.
    package var isOfLoop: Bool {
        if hasListener || kinds.count >= Self.many { return true }
        if kinds.contains(where: Self.own.contains) { return true }
        // Clients also poll these, to be cancelled or to read a child's output, but seldom in this combination and without a
        // timeout.
        return isUnbounded && (kinds.contains(.eventfd) || (kinds.contains(.pipe) && kinds.contains(.socket)))
    }
}

extension OutsideProcess {
    /// How many descriptors of a poll are read.
    private static let pollLimit = 1024

    /// The descriptors for which a poll or select waits. Call it while a thread sleeps in that call.
    package func polledDescriptors(in call: SystemCall) -> [Int32] {
        guard ["poll", "ppoll"].contains(call.name), call.arguments.count > 1 else {
            return WaitSite(call, state: nil, of: observed) { read($0, $1) }.descriptors.map(\.number)
        }
        // struct pollfd: the number, and four bytes of events.
        let count = Int(min(call.arguments[1], UInt(Self.pollLimit)))
        let bytes = read(call.arguments[0], count * 8) ?? []
        return stride(from: 0, to: bytes.count - 7, by: 8).map { Int32(truncatingIfNeeded: bytes.number(at: $0, 4)) }
    }

    /// What a poll or select waits for, by its arguments. Call it while a thread sleeps in that call: the memory may be reused
    /// later.
    package func polled(in call: SystemCall) -> PolledSet {
        let site = WaitSite(call, state: nil, of: observed) { read($0, $1) }
        // A descriptor that is selected for reading and for writing is listed twice.
        let each = Dictionary(site.descriptors.map { ($0.number, $0.kind) }) { first, _ in first }
        return PolledSet(
            kinds: Array(each.values),
            hasListener: site.descriptors.contains { $0.isListener() },
            isUnbounded: site.decoded.argument("timeout") == "none"
        )
    }
}

extension LockProbe {
    /// Searches among the threads of another process. Its running threads are stopped briefly while their stacks are copied.
    init(of process: OutsideProcess) {
        let observed = process.observed
        let knowsThreads = observed.sharesOurNumbers
        var memory = LockMemory(
            words: { address, count in process.read(address, count * 4).map(Self.words) },
            hasThread: { unsafe knowsThreads && access("\(observed.directory)/task/\($0)", F_OK) == 0 }
        )
        memory.knowsThreads = knowsThreads
        // The result counts only if it is the number of a thread.
        memory.threadNumberOffset = GlibcThread.numberOffset
        self.memory = memory
        capture = { process.captureOwner($0) }
        sighting = { process.sampler.sighting(ofThread: $0) }
        evidence = { .read(threadID: $0, of: observed) }
        site = { call, state in WaitSite(call, state: state, of: observed) { process.read($0, $1) } }
    }

    private static func words(_ bytes: [UInt8]) -> [UInt32] {
        stride(from: 0, to: bytes.count - 3, by: 4).map { UInt32(truncatingIfNeeded: bytes.number(at: $0, 4)) }
    }
}
