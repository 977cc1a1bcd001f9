/// The stack of a thread of another process: look, copy, let go, unwind the copy.
///
/// Every function here is for one caller at a time per process, none of them may be called from a signal handler, and all may
/// allocate. errno is not part of the interface. What holds the target up is said of each.
///
/// Threads are stopped by a thread of ours, made on first need, since the kernel lets a stopped thread go when the thread that
/// stopped it ends: whatever goes wrong, and be it that our process is killed, the target runs on. That thread takes
/// the lowest real-time priority if it may, so that no stopped thread waits while ours waits for a processor. A thread of this process that
/// waits for any child (waitpid(−1)) can take the notice of a stop away; the stop then ends as if it had not happened.
#pragma once

#include "CStackCapture.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma clang assume_nonnull begin

typedef struct stackcap_process stackcap_process;

/// Opens the process's files in /proc and reads what is mapped in it. About 1.7 MiB. The target does not notice.
/// \param read_through_file reads memory through /proc/PID/mem even where process_vm_readv works.
/// \returns STACKCAP_GONE, STACKCAP_REFUSED, STACKCAP_OTHER_ARCHITECTURE; STACKCAP_FAILED with ENOMEM and the like.
stackcap_outcome stackcap_process_open(pid_t process, bool read_through_file,
                                       stackcap_process *_Nullable *_Nonnull opened);

/// Frees everything.
void stackcap_process_close(stackcap_process *process);

/// An open /proc/PID, owned by the process object. It goes on meaning this process when its number is given to another one.
int stackcap_process_directory(const stackcap_process *process);

/// Takes note of what has been loaded and unloaded, and of an execve(2). Reads /proc/PID/maps, but never more than 5 % of the time.
/// \returns as stackcap_process_open.
stackcap_outcome stackcap_process_refresh(stackcap_process *process);

/// stackcap_look_at for a thread of the process. The target does not notice.
stackcap_outcome stackcap_process_look(stackcap_process *process, pid_t thread, stackcap_look *look);

/// Times the thread went to sleep: voluntary_ctxt_switches in /proc/PID/task/TID/status. The target does not notice.
stackcap_outcome stackcap_process_count_sleeps(stackcap_process *process, pid_t thread, uint64_t *sleeps);

/// stackcap_copy_blocked for a thread of the process. The target does not notice.
stackcap_outcome stackcap_process_copy_blocked(stackcap_process *process, pid_t thread, const stackcap_look *seen);

/// Stops a running thread, copies its registers and stack, and lets it go: PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH. Looks
/// once more directly before it. Signals that arrive meanwhile are passed on.
/// \param deadline_ns on stackcap_now_ns's clock; not waited beyond.
/// \returns STACKCAP_MOVED when the thread is no longer running, and was not stopped; STACKCAP_NOT_STOPPED; STACKCAP_REFUSED.
stackcap_outcome stackcap_process_copy_stopped(stackcap_process *process, pid_t thread, uint64_t deadline_ns);

/// The same for a thread that a signal has stopped outside of system calls: it stays stopped, and all its registers are known.
/// STACKCAP_MOVED, also for one that stands still for another reason.
stackcap_outcome stackcap_process_copy_halted(stackcap_process *process, pid_t thread, uint64_t deadline_ns);

/// stackcap_unwind for the last copy. The target plays no part.
/// \returns STACKCAP_REPLACED when the memory it was read by is another program's by now.
stackcap_outcome stackcap_process_unwind(stackcap_process *process, stackcap_unwound *unwound);

/// What the target has noticed so far. They only grow.
typedef struct stackcap_process_counters {
    uint64_t stops;
    /// How long threads stood at most, all together: from the last moment at which each was seen not to stand yet until it was let go.
    uint64_t held_ns;
    uint64_t longest_held_ns;
    /// What they waited for a processor besides, before they could stop and after they were let go; 0 where the kernel does not count it.
    uint64_t waited_ns;
    uint64_t calls_mended;     ///< System calls that a stop would have cut short; they were made to start again.
    uint64_t given_up;         ///< Stops that did not come in time.
    uint64_t programs;         ///< Programs that it has run: 1, and one more for each execve(2) noticed.
} stackcap_process_counters;

stackcap_process_counters stackcap_process_read_counters(const stackcap_process *process);

#pragma clang assume_nonnull end

#ifdef __cplusplus
}
#endif
