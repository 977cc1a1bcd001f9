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

/// How often this process was forked off: a fork's child reads another number than its parent. One relaxed load;
/// async-signal-safe. It is counted by pthread_atfork, so not for a raw clone(2).
uint32_t monitor_fork_generation(void);

#pragma clang assume_nonnull end
