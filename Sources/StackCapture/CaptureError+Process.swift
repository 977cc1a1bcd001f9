// The reasons why another process's stacks cannot be captured.

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
