import Glibc

/// Why there is no stack. A failed capture leaves target and capturer unchanged; the next one may succeed.
public struct CaptureError: Error, Sendable, Hashable {
    /// What went wrong.
    public var code: Code
    /// The errno of the system call that failed, if one did.
    public var underlying: Int32?

    /// Creates an error, by default without an errno.
    public init(_ code: Code, underlying: Int32? = nil) {
        self.code = code
        self.underlying = underlying
    }

    /// An open set: later versions may add codes.
    public struct Code: Sendable, Hashable {
        /// For logs and JSON; stable: `thread_gone`.
        public let name: String
        /// What happened and what to do about it, in one sentence.
        let advice: String

        init(_ name: String, _ advice: String) {
            self.name = name
            self.advice = advice
        }
    }
}

extension CaptureError.Code {
    /// The thread has exited, or never belonged to this process.
    public static let threadGone = Self("thread_gone", "the thread has exited: watch a thread that is alive")
    /// The thread never leaves the kernel: io_uring's workers and pollers are threads of the process, but have no stack in it.
    public static let kernelThread = Self(
        "kernel_thread",
        "the thread is the kernel's own, for io_uring, and has no stack in this process: leave it out"
    )
    /// The signal did not reach the running thread within the deadline.
    public static let notDelivered = Self(
        "not_delivered",
        "the thread was not scheduled within the deadline: allow more time, or look at the machine's load"
    )
    /// The signal cannot reach the running thread, because the thread blocks it.
    public static let signalBlocked = Self(
        "signal_blocked",
        "the thread has the capture signal blocked: unblock it, or choose another signal"
    )
    /// The signal handler began and did not finish within the deadline, in this or in an earlier capture.
    public static let handlerStuck = Self(
        "handler_stuck",
        "the thread was interrupted while it copied its stack: it needs the processor or memory to go on"
    )
    /// The stack pointer lies outside the range given, and nothing can be read there.
    public static let stackOutOfBounds = Self(
        "stack_out_of_bounds",
        "the thread's stack pointer is damaged, or it left that stack while it was looked at"
    )
    /// The stack could not be read.
    public static let memoryUnreadable = Self(
        "memory_unreadable",
        "the stack could not be read: take its bounds anew, and allow process_vm_readv or /proc/self/mem"
    )
    /// The state of the thread cannot be read from `/proc`, so it can be neither copied nor signalled safely.
    public static let stateUnreadable = Self(
        "state_unreadable",
        "/proc/self/task/TID/syscall or schedstat could not be read: mount /proc, on a kernel that has both"
    )
    /// libunwind rejects even the first frame.
    public static let unwinderFailed = Self(
        "unwinder_failed",
        "the unwinder found no first frame: the thread's program counter is damaged"
    )
    /// The thread went to sleep and woke so often that no copy was consistent within the deadline.
    public static let threadKeptMoving = Self(
        "thread_kept_moving",
        "the thread sleeps and wakes too often for a quiet copy: it is not stalled; if you need its stack, allow more time"
    )
    /// The signal belongs to another capturer, or another handler was installed over ours and does not forward signals.
    public static let signalInUse = Self(
        "signal_in_use",
        "something else handles the capture signal: choose another signal"
    )
    /// The process is a fork of the process that made the capturer or sampler.
    public static let forked = Self(
        "forked",
        "it belongs to the process that was forked: make a new capturer or sampler in this process"
    )
    /// The time limit for all threads passed before this one's turn.
    public static let notReached = Self(
        "not_reached",
        "the time was up before this thread's turn: allow more time, or look at the machine's load"
    )
    /// The stacks of other threads have filled the reserved memory.
    public static let tooMuch = Self(
        "too_much",
        "there are too many frames on too many threads for one capture of all: leave threads out"
    )
    /// `invalidate()` was called.
    public static let invalidated = Self("invalidated", "the capturer has been invalidated: make a new one")
    /// The target is the calling thread.
    public static let ownThread = Self("own_thread", "a thread cannot capture itself: call from another thread")
    /// The signal number cannot be handled.
    public static let unusableSignal = Self(
        "unusable_signal",
        "the signal cannot be handled: choose another, SIGPROF by default"
    )
    /// A system call failed that is not expected to fail.
    public static let systemCallFailed = Self("system_call_failed", "a system call failed: see the error number")
}

extension CaptureError: CustomStringConvertible {
    /// The meaning and the remedy, without any data of the host.
    public var description: String {
        guard let underlying else { return "\(code.name): \(advice)" }
        return "\(code.name): \(advice) (errno \(underlying))"
    }

    /// The same for people: without the code, and with the errno's text only where the code does not say what is wrong.
    package var sentence: String {
        guard code == .systemCallFailed, let underlying else { return advice }
        return unsafe "a system call failed: \(String(cString: strerror(underlying)))"
    }

    /// Although `/proc` is mounted, the files of a process that has changed its user, or whose program has more rights than its user, belong to
    /// root: PR_SET_DUMPABLE(2const).
    private var advice: String {
        guard code == .stateUnreadable, underlying == EACCES else { return code.advice }
        return "only root may read the state of this process's threads, because the process has changed its user, "
            + "or its program has capabilities (setcap): call prctl(PR_SET_DUMPABLE, 1), after a change of the user"
    }
}

// MARK: - Why another process's stacks cannot be captured

extension CaptureError.Code {
    /// There is no process with this number, or it ended during the capture.
    public static let noSuchProcess = Self(
        "no_such_process",
        "there is no such process, or it has ended: look the number up again"
    )
    /// The number is that of a thread.
    public static let notAProcess = Self(
        "not_a_process",
        "this is the number of a thread, not of a process: give its process's, Tgid in /proc/NUMBER/status"
    )
    /// The process has ended and waits for its parent to collect its exit status.
    public static let zombie = Self(
        "zombie",
        "the process has ended already and has no stacks: it waits for its parent to collect its exit code"
    )
    /// It is one of the kernel's own processes.
    public static let kernelProcess = Self(
        "kernel_process",
        "this is a thread of the kernel and has no stack of a program: read /proc/PID/stack as root instead"
    )
    /// The target is the calling process.
    public static let ownProcess = Self(
        "own_process",
        "this is the calling process itself: within a process use StackCapturer"
    )
    /// A 32-bit program, or a program for another processor.
    public static let otherArchitecture = Self(
        "other_architecture",
        "the process runs a program for another architecture, such as a 32-bit one: only this machine's own can be read"
    )
    /// A debugger, strace or another sampler traces the thread.
    public static let alreadyTraced = Self(
        "already_traced",
        "another program traces the process already (TracerPid in /proc/PID/status), and a running thread has only one tracer: "
            + "end that one first"
    )
    /// Yama's setting forbids it.
    public static let ptraceScope = Self(
        "ptrace_scope",
        "/proc/sys/kernel/yama/ptrace_scope forbids it: run as root or with CAP_SYS_PTRACE, or set it to 0 until the next start"
    )
    /// The process belongs to another user.
    public static let otherUser = Self(
        "other_user",
        "the process belongs to another user: run as that user, as root, or with CAP_SYS_PTRACE"
    )
    /// The kernel protects the process from its own user.
    public static let protectedProcess = Self(
        "protected_process",
        "the process has or had privileges (set-user-ID, capabilities, PR_SET_DUMPABLE), so the kernel protects it: run as root, "
            + "with CAP_SYS_PTRACE"
    )
    /// Another security mechanism forbids it.
    public static let accessRefused = Self(
        "access_refused",
        "the kernel refuses access to the process: in a container allow CAP_SYS_PTRACE, and look for a seccomp or security policy"
    )
    /// The running thread did not stop in time. It continues to run.
    public static let notStopped = Self(
        "not_stopped",
        "the thread did not stop within the deadline: allow more time, or look at the machine's load"
    )
    /// The process replaced its program during the capture.
    public static let processReplaced = Self(
        "process_replaced",
        "the process was just replacing its program (execve): try again"
    )
}
