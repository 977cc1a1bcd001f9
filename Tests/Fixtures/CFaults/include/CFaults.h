#pragma once

// Faults that a program cannot make by itself: it stands between the program's libraries and the kernel for a few system calls.

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#pragma clang assume_nonnull begin

enum faults_call { faults_eventfd, faults_epoll_create, faults_epoll_add };

/// From now on the call fails with `error`; 0 lets it through again. For `faults_epoll_add`: only if it is for `fd`, or `fd` is -1.
void faults_inject(enum faults_call call, int error, int fd);

/// How many waits for epoll sets have returned in this process.
int64_t faults_waits(void);

/// fork(2), which Swift does not import.
pid_t faults_fork(void);

/// Closes every descriptor from `first` on, as a careless program does.
void faults_close_from(int first);

/// A new eventfd that is ready and does not block, or -1.
int faults_make_ready_descriptor(void);

/// Bytes that malloc has given out and not got back.
size_t faults_allocated(void);

#pragma clang assume_nonnull end
