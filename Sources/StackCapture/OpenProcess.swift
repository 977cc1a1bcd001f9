import CStackCapture
import Glibc

/// Another process, opened by the C part. Safe: the pointer is passed only to C calls, and freed once.
@safe struct OpenProcess: ~Copyable {
    private let handle: OpaquePointer
    private let processID: Int32
    private let owner = getpid()

    init(processID: Int32, readsThroughFile: Bool) throws(CaptureError) {
        let obstacle = ProcessObstacle(processID: processID)
        if let code = obstacle.beforehand() { throw CaptureError(code) }
        var opened: OpaquePointer?
        let outcome = unsafe stackcap_process_open(processID, readsThroughFile, &opened)
        guard let opened = unsafe opened else {
            throw CaptureError(outcome)?.explained(by: obstacle) ?? CaptureError(.systemCallFailed)
        }
        unsafe handle = opened
        self.processID = processID
    }

    deinit {
        // A forked child does not have the thread that this ends, and may have its lock held forever.
        if getpid() == owner { unsafe stackcap_process_close(handle) }
    }

    func threads() throws(CaptureError) -> [ProcessThread] {
        let directory = directory
        return try ProcessThread.numbers(in: directory).map { ProcessThread(threadID: $0, in: directory) }
    }

    /// The open one: the process's number may belong to another process by now.
    private var directory: String { unsafe "/proc/thread-self/fd/\(stackcap_process_directory(handle))" }

    func capture(_ threadID: Int32, within deadline: Duration) -> Result<CapturedStack, CaptureError> {
        let end = stackcap_now_ns() &+ deadline.nanoseconds
        var result = attempt(threadID, until: end)
        // The process runs another program now, and the handle has recorded that.
        if case .failure(let error) = result, error.code == .processReplaced {
            result = attempt(threadID, until: end)
        }
        return result.mapError { $0.explained(by: ProcessObstacle(processID: processID, openedAs: directory)) }
    }

    private func attempt(_ threadID: Int32, until deadline: UInt64) -> Result<CapturedStack, CaptureError> {
        if let error = unsafe CaptureError(stackcap_process_refresh(handle)) { return .failure(error) }
        return take(threadID, until: deadline).completed(before: deadline) { take(threadID, until: deadline) }
    }

    private func take(_ threadID: Int32, until deadline: UInt64) -> Result<UnwoundStack, CaptureError> {
        let attempt = unsafe ProcessAttempt(handle: handle, threadID: threadID, deadline: deadline)
        return unsafe attempt.copy().flatMap { copied in
            unsafe UnwoundStack.unwinding(copied) { unsafe stackcap_process_unwind(handle, $0) }
        }
    }

    func sighting(ofThread threadID: Int32) -> ThreadSighting? {
        var look = stackcap_look()
        guard unsafe stackcap_process_look(handle, threadID, &look).status == STACKCAP_OK else { return nil }
        return ThreadSighting(look)
    }

    var programsRun: UInt64 { unsafe stackcap_process_read_counters(handle).programs }

    var cost: SamplingCost {
        let counters = unsafe stackcap_process_read_counters(handle)
        return SamplingCost(
            stops: counters.stops,
            heldNanoseconds: counters.held_ns,
            longestHeldNanoseconds: counters.longest_held_ns,
            waitedNanoseconds: counters.waited_ns,
            callsRestarted: counters.calls_mended,
            stopsGivenUp: counters.given_up
        )
    }
}

extension CaptureError {
    /// Replaces "not permitted" by the actual reason, and likewise for a process that has ended.
    fileprivate func explained(by obstacle: ProcessObstacle) -> CaptureError {
        switch code {
        case .accessRefused: CaptureError(obstacle.behindRefusal(), underlying: underlying)
        case .threadGone: obstacle.beforehand().map { CaptureError($0) } ?? self
        default: self
        }
    }
}

/// Determines why a process's stacks cannot be captured from its files in `/proc`, which are more specific than an errno.
private struct ProcessObstacle {
    let processID: Int32
    private let directory: String
    private let isOpen: Bool

    /// Of the process that has the number now.
    init(processID: Int32) {
        (self.processID, directory, isOpen) = (processID, "/proc/\(processID)", false)
    }

    /// Of the process with this directory, which may have ended since it was opened.
    init(processID: Int32, openedAs directory: String) {
        (self.processID, self.directory, isOpen) = (processID, directory, true)
    }

    /// The reason that is known before a capture is tried. Nil if nothing prevents it so far.
    func beforehand() -> CaptureError.Code? {
        if processID == getpid() { return .ownProcess }
        guard processID > 0, let status = ProcessFile("\(directory)/status") else {
            // Without a free descriptor no file of a living process can be read, either: its opening says so.
            return unsafe processID > 0 && access(directory, F_OK) == 0 ? nil : withoutFiles()
        }
        if status.number(of: "Tgid") != Int(processID) { return .notAProcess }
        // A first thread that has ended is in state Z too, while other threads of the process live.
        let isAlone = status.number(of: "Threads").map { $0 <= 1 } ?? true
        if let state = status.words(of: "State").first, state == "Z" || state == "X", isAlone { return .zombie }
        return isKernelThread ? .kernelProcess : nil
    }

    /// The cause of an errno that means "not permitted".
    func behindRefusal() -> CaptureError.Code {
        guard let status = ProcessFile("\(directory)/status") else { return withoutFiles() }
        if let tracer = status.number(of: "TracerPid"), tracer != 0, mayReadMemory { return .alreadyTraced }
        // Real, effective and saved ids: ptrace(2) requires all of them to be the caller's.
        let users = status.words(of: "Uid").prefix(3).allSatisfy { $0 == String(getuid()) }
        let groups = status.words(of: "Gid").prefix(3).allSatisfy { $0 == String(getgid()) }
        if !users || !groups { return .otherUser }
        if scope > 0 { return .ptraceScope }
        return isProtected ? .protectedProcess : .accessRefused
    }

    /// A process may exist without visible files: `/proc` can be mounted so that other users' processes are hidden.
    private func withoutFiles() -> CaptureError.Code {
        if !isOpen, processID > 0, kill(processID, 0) != 0, errno == EPERM { return .otherUser }
        return .noSuchProcess
    }

    private var isKernelThread: Bool {
        let kernelThread: UInt = 0x0020_0000  // PF_KTHREAD, in the ninth field of /proc/PID/stat
        guard let stat = ProcessFile("\(directory)/stat") else { return false }
        let fields = stat.text.split(separator: ")").last?.split(separator: " ") ?? []
        return fields.count > 6 && UInt(fields[6]).map { $0 & kernelThread != 0 } == true
    }

    /// Whether only stopping its threads is refused.
    private var mayReadMemory: Bool {
        let file = unsafe open("\(directory)/mem", O_RDONLY | O_CLOEXEC)
        if file >= 0 { close(file) }
        return file >= 0
    }

    /// 0 if the kernel has no Yama.
    private var scope: Int {
        ProcessFile("/proc/sys/kernel/yama/ptrace_scope").flatMap { Int($0.text.prefix { $0 != "\n" }) } ?? 0
    }

    /// The files of a process that may not be dumped belong to root.
    private var isProtected: Bool {
        var status = stat()
        return unsafe stat("\(directory)/mem", &status) == 0 && status.st_uid != getuid()
    }
}
