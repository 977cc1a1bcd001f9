/// Capturing the stack of a thread of another process: sample, copy, release, unwind the copy.
///
/// Every function here is for one caller at a time per process, none of them may be called from a signal handler, and all may
/// allocate. errno is not part of the interface. Each function says whether it holds up the target.
///
/// Threads are stopped by a thread of ours, created on first use, because the kernel releases a stopped thread when the thread
/// that stopped it ends: whatever goes wrong, even if our process is killed, the target continues. That thread takes the lowest
/// real-time priority if it may, so that no stopped thread waits while ours waits for a processor. A thread of this process
/// that waits for any child (waitpid(−1)) can consume the notification of a stop; the stop then ends as if it had not happened.
#pragma once

#include "CStackCapture.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma clang assume_nonnull begin

typedef struct stackcap_process stackcap_process;

/// Opens the process's files in /proc and reads its mappings. About 1.9 MiB. The target is not affected.
/// \param read_through_file reads memory through /proc/PID/mem even if process_vm_readv works.
/// \returns STACKCAP_GONE, STACKCAP_REFUSED, STACKCAP_OTHER_ARCHITECTURE; STACKCAP_FAILED with ENOMEM and similar errors.
stackcap_outcome stackcap_process_open(pid_t process, bool read_through_file,
                                       stackcap_process *_Nullable *_Nonnull opened);

/// Frees everything. If the kernel still holds the tracing thread, this happens as soon as it releases that thread.
void stackcap_process_close(stackcap_process *process);

/// An open /proc/PID, owned by the process object. It continues to refer to this process when the number is reused for another.
int stackcap_process_directory(const stackcap_process *process);

/// Updates the loaded modules, and detects an execve(2). Reads /proc/PID/maps, but spends at most 5 % of the time on it.
/// \returns as stackcap_process_open.
stackcap_outcome stackcap_process_refresh(stackcap_process *process);

/// stackcap_look_at for a thread of the process. The target is not affected.
stackcap_outcome stackcap_process_look(stackcap_process *process, pid_t thread, stackcap_look *look);

/// How often the thread went to sleep: voluntary_ctxt_switches in /proc/PID/task/TID/status. The target is not affected.
stackcap_outcome stackcap_process_count_sleeps(stackcap_process *process, pid_t thread, uint64_t *sleeps);

/// stackcap_copy_blocked for a thread of the process. The target is not affected.
stackcap_outcome stackcap_process_copy_blocked(stackcap_process *process, pid_t thread, const stackcap_look *seen);

/// Stops a running thread, copies its registers and stack, and releases it: PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH.
/// Samples once more directly before it. Signals that arrive in the meantime are passed on.
/// \param deadline_ns on stackcap_now_ns's clock. The call does not wait beyond it; if the kernel holds the tracing thread, it
/// may wait up to a second longer. Until the kernel releases that thread, every further call returns STACKCAP_NOT_STOPPED at
/// once.
/// \returns STACKCAP_MOVED if the thread is no longer running, and was not stopped; STACKCAP_NOT_STOPPED; STACKCAP_REFUSED.
stackcap_outcome stackcap_process_copy_stopped(stackcap_process *process, pid_t thread, uint64_t deadline_ns);

/// The same for a thread that a signal has stopped outside of system calls: it stays stopped, and all its registers are known.
/// \returns STACKCAP_MOVED also if the thread does not run for another reason.
stackcap_outcome stackcap_process_copy_halted(stackcap_process *process, pid_t thread, uint64_t deadline_ns);

/// stackcap_unwind for the last copy. The target is not involved.
/// \returns STACKCAP_REPLACED if the memory from which it was read now belongs to another program.
stackcap_outcome stackcap_process_unwind(stackcap_process *process, stackcap_unwound *unwound);

/// The effects on the target so far. The counts only grow.
typedef struct stackcap_process_counters {
    uint64_t stops;
    /// An upper bound of the total time for which threads were stopped: for each, from the last moment at which it was seen not
    /// yet stopped until it was released.
    uint64_t held_ns;
    uint64_t longest_held_ns;
    /// The additional time that they waited for a processor, before they could stop and after they were released; 0 if the
    /// kernel does not count it.
    uint64_t waited_ns;
    uint64_t calls_mended;     ///< System calls that a stop would have cut short; they were restarted.
    uint64_t given_up;         ///< Stops that did not happen in time.
    uint64_t programs;         ///< Programs of this architecture that it has run: 1, plus one for each execve(2) noticed.
} stackcap_process_counters;

stackcap_process_counters stackcap_process_read_counters(const stackcap_process *process);

#pragma clang assume_nonnull end

#ifdef __cplusplus
}
#endif
