#pragma once
// Parts of Linux's interface that are needed to watch another process and cannot be called from Swift: perf's hardware
// breakpoints on threads, and signals with their senders. Times are CLOCK_MONOTONIC nanoseconds. Any thread may call these
// functions, but only one at a time for the same breakpoint or descriptor. None is async-signal-safe; errno is undefined afterwards.

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#pragma clang assume_nonnull begin

/// A hardware breakpoint on one thread. The first hit disables it, so the thread pays for one hit only. Nothing is written to the
/// process. The kernel removes the breakpoint when the descriptor is closed, even if this process is killed (perf_event_open(2)).
typedef struct process_watch_breakpoint {
    int descriptor;
    void *_Nullable ring;
} process_watch_breakpoint;

/// Sets a breakpoint that is hit when the thread is about to execute `address`. It takes one of the thread's debug registers: most machines
/// have four.
/// \returns 0 or an error number: EACCES or EPERM if it is not permitted, ENOSPC if no register is free, ESRCH if there is no
/// such thread.
int process_watch_breakpoint_open(pid_t thread, uint64_t address, process_watch_breakpoint *opened);

/// When the thread hit the breakpoint, its stack pointer, and the register of the first argument. All are 0 if the kernel did not
/// record them. The time is the one outside of time namespaces (time_namespaces(7)).
typedef struct process_watch_hit {
    uint64_t time_ns, stack_pointer, first_argument;
    bool has_registers;
} process_watch_hit;

/// Whether the register of the first argument keeps its value in a system call. If not, it contains the result afterwards.
#if defined(__aarch64__)
enum { PROCESS_WATCH_KEEPS_ARGUMENT = 0 };
#else
enum { PROCESS_WATCH_KEEPS_ARGUMENT = 1 };
#endif

/// Takes the hit, if there was one. \returns whether there was one.
bool process_watch_breakpoint_take(process_watch_breakpoint *breakpoint, process_watch_hit *hit);

/// Removes the breakpoint. The owner calls it once.
void process_watch_breakpoint_close(process_watch_breakpoint *breakpoint);

/// Opens an event that counts nothing. While it is open, the kernel opens other events without waiting for a grace period.
/// \returns a descriptor, which the caller closes, or a negative error number.
int process_watch_hold_events(void);

/// Tries to set a breakpoint on the calling thread. \returns 0 or an error number.
int process_watch_try_breakpoint(void);

/// Opens a descriptor that becomes readable when the process ends: pidfd_open(2).
/// \returns a descriptor, which the caller closes, or a negative error number.
int process_watch_open_process(pid_t process);

/// Makes signals readable, whichever thread receives them: SIGINT, SIGTERM, SIGHUP and SIGQUIT, unless they are ignored, and
/// SIGCHLD. Call it once in a process.
/// \returns a descriptor, or a negative error number.
int process_watch_open_signals(void);

typedef struct process_watch_signal {
    int number;
    bool is_from_terminal;  ///< The kernel has sent it to the whole foreground process group, including our children.
} process_watch_signal;

/// From now on the calling thread, and each thread that it starts, has SIGTSTP blocked.
void process_watch_hold_stop(void);

/// Ends that for the calling thread, unless this program was started with the signal blocked. One that has come stops this process now.
void process_watch_release_stop(void);

/// Reads one signal, without waiting. \returns whether there was one.
bool process_watch_take_signal(int descriptor, process_watch_signal *signal);

/// From now on, descendants whose parents end become children of this process: PR_SET_CHILD_SUBREAPER (prctl(2)).
/// \returns 0 or an error number.
int process_watch_adopt_orphans(void);

/// Starts a program in this process group, with these standard descriptors, and with the signal mask that this program was
/// started with.
/// \param arguments ends with null. The program is the first one, found in PATH.
/// \returns 0 or an error number.
int process_watch_start(char *_Nullable const *_Nonnull arguments, pid_t *process);

/// Takes the exit status of a child that has ended, once. \returns 1 and the status in the form that shells use; 0 if the child
/// still runs; -1 if there is no such child.
int process_watch_take_status(pid_t process, int *status);

/// Waits until one of the first 1,024 descriptors is readable, or until the deadline.
/// \param may_stop SIGTSTP that is held stops this process while this waits.
/// \returns how many are readable, 0 at the deadline or after an error.
int process_watch_wait(const int *_Nullable descriptors, int count, uint64_t deadline_ns, bool may_stop);

#pragma clang assume_nonnull end
