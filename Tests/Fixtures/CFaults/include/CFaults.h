#pragma once

// Simulates faults that a program cannot cause itself: intercepts a few system calls of the program's libraries.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#pragma clang assume_nonnull begin

enum faults_call { faults_eventfd, faults_epoll_create, faults_epoll_add };

/// From now on the call fails with `error`; 0 makes it succeed again.
/// `faults_epoll_add` fails only if it is for `fd`, or `fd` is -1.
void faults_inject(enum faults_call call, int error, int fd);

/// The number of waits for epoll sets that have returned in this process.
int64_t faults_waits(void);

/// fork(2), which Swift does not import.
pid_t faults_fork(void);

/// Closes every descriptor from `first` on, like a careless program.
void faults_close_from(int first);

/// Makes fcntl(2) fail with EPERM in all threads from now on, like a sandbox (seccomp(2)).
///
/// \returns false if that is not possible.
bool faults_forbid_fcntl(void);

/// The same for epoll_pwait2(2): older sandboxes do not know it. Waits for epoll sets then end on whole milliseconds.
bool faults_forbid_exact_waits(void);

/// A new nonblocking eventfd that is ready, or -1.
int faults_make_ready_descriptor(void);

/// The number of bytes that are allocated by malloc.
size_t faults_allocated(void);

#pragma clang assume_nonnull end
