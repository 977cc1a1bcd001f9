/// The state of a thread, as /proc shows it: look.c.
#pragma once

#include "unwinder.h"

#pragma clang assume_nonnull begin

// `tasks` is an open /proc/PID/task, or AT_FDCWD for this process's.

stackcap_outcome stackcap_look_in(int tasks, pid_t thread, stackcap_look *look);
stackcap_outcome stackcap_count_sleeps(int tasks, pid_t thread, uint64_t *sleeps);

/// Whether a signal has stopped the thread: the kernel shows only two of its registers then.
bool stackcap_is_stopped(int tasks, pid_t thread);

/// The thread that traces the thread; 0 if none does, or the thread is gone.
pid_t stackcap_tracer_of(int tasks, pid_t thread);

/// Copies the stack of a sleeping thread, with an unwinder whose reader is prepared. See stackcap_copy_blocked.
stackcap_outcome stackcap_copy_asleep(stackcap_unwinder *unwinder, int tasks, pid_t thread, uint64_t low, uint64_t high,
                                      const stackcap_look *seen);

/// Whether the calling thread's system calls pass a filter (seccomp(2)). Checked again every 10 ms.
bool stackcap_is_filtered(void);

/// Reads the thread's name, at most 15 bytes; empty if there is no such thread.
void stackcap_thread_name(pid_t thread, char name[_Nonnull 16]);

/// Whether the thread that was last copied without a signal has not run since.
bool stackcap_sleeps_on(const stackcap_unwinder *unwinder);

#pragma clang assume_nonnull end
