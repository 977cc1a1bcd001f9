#pragma once
// What the monitor's threads need of glibc's GNU extensions, which Swift's Glibc module does not show.
// Times are CLOCK_MONOTONIC nanoseconds. No function here is async-signal-safe unless it says so.

#include <stdbool.h>
#include <stdint.h>
#include <pthread.h>
#include <semaphore.h>

#pragma clang assume_nonnull begin

/// Makes a process-private semaphore at zero. Allocates; the caller owns it. Null when memory is short.
sem_t *_Nullable monitor_semaphore_create(void);
/// Frees it. No thread may be waiting on it or about to post it.
void monitor_semaphore_destroy(sem_t *semaphore);
/// Waits without a deadline: for the parked watchdog alone, which nothing but a post may wake. Repeats after EINTR.
void monitor_semaphore_wait(sem_t *semaphore);
/// Waits until `deadline_ns`. True: posted. False: the deadline passed. Repeats after EINTR.
bool monitor_semaphore_wait_until(sem_t *semaphore, uint64_t deadline_ns);

/// Starts a joinable thread that blocks every signal but those it raises itself, so that no handler of the host runs on it. `name` is cut to 15
/// bytes, the kernel's limit. Returns 0 or an errno.
int monitor_thread_start(pthread_t *thread, const char *name, void (*body)(void *context), void *context);
/// Joins it, waiting until `deadline_ns` at most. Returns 0, or ETIMEDOUT: the thread then still runs and stays joinable.
int monitor_thread_join(pthread_t thread, uint64_t deadline_ns);

/// Has exit(3) call `body` with its status, in this process and not in its children. Once a process is enough. It takes the place of an
/// earlier body. `body` runs on whichever thread calls exit, perhaps in a signal handler of the host's. Returns false when memory is short.
bool monitor_on_exit(void (*body)(int status));

/// Has a child of fork(2) close `descriptor` before fork returns there, if it is the same file still. No errno. False: no place is left, or
/// the descriptor is not open. Children of vfork(2), posix_spawn(3) and clone(2) are not reached.
bool monitor_close_in_child(int descriptor);
/// Takes that back, before the descriptor is closed.
void monitor_forget_in_child(int descriptor);

#pragma clang assume_nonnull end
