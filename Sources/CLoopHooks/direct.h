#pragma once

// The waits as system calls, for a fully static program: there the linker uses the hooks in place of the C library's functions,
// which are not in the program. They behave like those functions, but are no cancellation points. Async-signal-safe.

#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

#pragma clang assume_nonnull begin

int direct_epoll_wait(int set, struct epoll_event *events, int capacity, int timeout);
int direct_epoll_pwait(int set, struct epoll_event *events, int capacity, int timeout, const sigset_t *_Nullable mask);
int direct_epoll_pwait2(
    int set, struct epoll_event *events, int capacity, const struct timespec *_Nullable timeout, const sigset_t *_Nullable mask
);
int direct_poll(struct pollfd *descriptors, nfds_t count, int timeout);
int direct_ppoll(
    struct pollfd *descriptors, nfds_t count, const struct timespec *_Nullable timeout, const sigset_t *_Nullable mask
);
int direct_poll_chk(struct pollfd *descriptors, nfds_t count, int timeout, size_t length);
int direct_ppoll_chk(
    struct pollfd *descriptors, nfds_t count, const struct timespec *_Nullable timeout, const sigset_t *_Nullable mask, size_t length
);
int direct_select(
    int count, fd_set *_Nullable readable, fd_set *_Nullable writable, fd_set *_Nullable exceptional, struct timeval *_Nullable timeout
);
int direct_pselect(
    int count, fd_set *_Nullable readable, fd_set *_Nullable writable, fd_set *_Nullable exceptional,
    const struct timespec *_Nullable timeout, const sigset_t *_Nullable mask
);

#pragma clang assume_nonnull end
