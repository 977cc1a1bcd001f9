/// The state of a thread, as /proc shows it, and the copy of a sleeping thread's stack: look.c, status.c, quiet_copy.c.
#pragma once

#include "unwinder.h"

#pragma clang assume_nonnull begin

// `tasks` is an open /proc/PID/task, or AT_FDCWD for this process's. Nothing here allocates or takes a lock; all change errno.

// look.c

stackcap_outcome stackcap_look_in(int tasks, pid_t thread, stackcap_look *look);

/// Reads the thread's run time, wait time and time slices. \returns 0 or an errno: ENOTSUP if the kernel does not count them.
int stackcap_read_schedule(int tasks, pid_t thread, uint64_t schedule[_Nonnull 3]);

/// Reads the thread's name, at most 15 bytes; empty if there is no such thread.
void stackcap_thread_name(pid_t thread, char name[_Nonnull 16]);

/// Opens a file of the thread for reading; to be closed by the caller. \returns −1 with errno set if that fails.
int stackcap_open_of_thread(int tasks, pid_t thread, const char *name);

/// The outcome of a sample that failed with this errno.
stackcap_outcome stackcap_look_failed(int error);

// status.c

stackcap_outcome stackcap_count_sleeps(int tasks, pid_t thread, uint64_t *sleeps);

/// Whether a signal has stopped the thread: the kernel shows only two of its registers then.
bool stackcap_is_stopped(int tasks, pid_t thread);

/// The thread that traces the thread; 0 if none does, or the thread is gone.
pid_t stackcap_tracer_of(int tasks, pid_t thread);

/// Whether the calling thread's system calls pass a filter (seccomp(2)). Checked again every 10 ms.
bool stackcap_is_filtered(void);

// quiet_copy.c

/// Copies the stack of a sleeping thread, with an unwinder whose reader is prepared. See stackcap_copy_blocked.
stackcap_outcome stackcap_copy_asleep(stackcap_unwinder *unwinder, int tasks, pid_t thread, uint64_t low, uint64_t high,
                                      const stackcap_look *seen);

/// Whether the thread that was last copied without a signal has not run since.
bool stackcap_sleeps_on(const stackcap_unwinder *unwinder);

#pragma clang assume_nonnull end
