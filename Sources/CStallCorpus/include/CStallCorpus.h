#ifndef C_STALL_CORPUS_H
#define C_STALL_CORPUS_H

#include <pthread.h>
#include <stdint.h>

// What the scenarios need of the C library that Swift does not see: GNU's extensions. Nothing here is for signal handlers; nothing keeps
// what it is given.

#pragma clang assume_nonnull begin

/// Names the calling thread, 15 bytes at most (pthread_setname_np(3)). errno is untouched.
void corpus_name_thread(const char *name);

/// Lets the calling thread run on one CPU only (sched_setaffinity(2)). 0, or -1 and errno.
int corpus_bind_thread(int cpu);

/// Waits for a mutex until CLOCK_MONOTONIC shows so many nanoseconds. 0, or an error number (pthread_mutex_clocklock(3)).
int corpus_lock_until(pthread_mutex_t *mutex, uint64_t nanoseconds);

/// A pipe that is closed on exec (pipe2(2)). 0, or -1 and errno.
int corpus_pipe(int *ends);

/// Walks over the files under a directory, and calls back for each until something else than 0 is returned (nftw(3)).
int corpus_walk_files(const char *directory, int (*visit)(void));

/// Waits so long in an epoll set of its own, in which nothing happens (epoll_wait(2)). 0, or -1 and errno.
int corpus_wait_for_events(int milliseconds);

/// fork(2). In a process with several threads the child may only do what is async-signal-safe.
pid_t corpus_fork(void);

#pragma clang assume_nonnull end

#endif
