#ifndef C_STALL_CORPUS_H
#define C_STALL_CORPUS_H

#include <pthread.h>
#include <stdint.h>

// The GNU extensions of the C library that the scenarios need and that Swift does not export. No function here may be called in a
// signal handler; none keeps its arguments.

#pragma clang assume_nonnull begin

/// Names the calling thread, 15 bytes at most (pthread_setname_np(3)). Does not change errno.
void corpus_name_thread(const char *name);

/// Binds the calling thread to one CPU (sched_setaffinity(2)). 0, or -1 and errno.
int corpus_bind_thread(int cpu);

/// Waits for a mutex until CLOCK_MONOTONIC reaches `nanoseconds`. 0, or an error number (pthread_mutex_clocklock(3)).
int corpus_lock_until(pthread_mutex_t *mutex, uint64_t nanoseconds);

/// A pipe that is closed on exec (pipe2(2)). 0, or -1 and errno.
int corpus_pipe(int *ends);

/// Calls `visit` for each file under a directory until it returns a value other than 0 (nftw(3)).
int corpus_walk_files(const char *directory, int (*visit)(void));

/// Waits for `milliseconds` in a separate epoll set in which nothing happens (epoll_wait(2)). 0, or -1 and errno.
int corpus_wait_for_events(int milliseconds);

/// fork(2). In a process with several threads the child may only call async-signal-safe functions.
pid_t corpus_fork(void);

#pragma clang assume_nonnull end

#endif
