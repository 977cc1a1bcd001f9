#pragma once

// A clock that moves only when somebody waits or says so, for the run loops of chosen threads, so that a script of loop operations
// ends the same way each time it runs.
//
// This object defines, for its whole process, what run loops ask the kernel for: clock_gettime, gettimeofday, epoll_wait, epoll_pwait2,
// epoll_ctl, ppoll, eventfd, timerfd_create, timerfd_settime, and libdispatch's dispatch_source_set_timer and
// _dispatch_main_queue_callback_4CF. On a thread that has entered a simulated kernel they go by its clock, or tell of themselves; on all
// others they do what they always do. To be linked into test programs only.

#include <stdbool.h>
#include <stdint.h>

#pragma clang assume_nonnull begin

struct simulated_kernel {
    /// CLOCK_MONOTONIC. CLOCK_REALTIME is the beginning of 2001 plus this: dates that Core Foundation's doubles hold exactly.
    uint64_t now_ns;
    void *_Nullable context;
    /// Nothing is ready and the thread goes to sleep until `until_ns` (UINT64_MAX: for ever). Moves the clock there and returns true; or
    /// has something happen that may have made a descriptor ready, and returns false.
    bool (*rest)(void *_Nullable context, uint64_t until_ns);
    /// Set if the engine waits as Foundation does, with ppoll on an epoll set. Which descriptor of it is ready; -1 if none. Does the
    /// sleeping itself. Null for an engine that waits with epoll alone.
    int (*_Nullable arrival)(void *_Nullable context, bool may_sleep);
    /// Set with it: a run's time begins now.
    void (*_Nullable timed)(void *_Nullable context);
    /// Set with it: the engine has looked at the main queue alone.
    void (*_Nullable looked_at_main_queue)(void *_Nullable context, bool is_ready);
    /// Set with it: the main queue is about to be drained.
    void (*_Nullable drains)(void *_Nullable context);
    /// What `arrival` has said, for the epoll_wait that follows.
    int arrived_fd;
    /// The main queue's, or -1; and whether the present wait has it in its set.
    int main_queue_fd;
    bool serves_main_queue;
    /// The latest ones that this kernel has made. Its timerfds are eventfds: `arrival` makes them readable.
    int last_eventfd;
    int last_timerfd;
};

/// Puts the calling thread under a simulated kernel, or with null back under the real one. The kernel's memory must outlive the thread.
void simulated_kernel_enter(struct simulated_kernel *_Nullable kernel);

/// Whether `fd` can be read now. The real kernel's word.
bool simulated_kernel_is_readable(int fd);

/// Makes an eventfd readable or unreadable. Returns whether it was readable before.
bool simulated_kernel_set_readable(int fd, bool readable);

/// When the engine has asked for the simulated timerfd `fd` to be ready; 0 for never.
uint64_t simulated_kernel_armed_ns(int fd);

/// Takes back what the engine has asked for, as an expiry does.
void simulated_kernel_disarm(int fd);

#pragma clang assume_nonnull end
