#pragma once

// A clock that moves only when a thread waits or sets it, for the run loops of chosen threads, so that a script of loop
// operations has the same result each time it runs.
//
// This object replaces, for its whole process, the kernel functions that run loops call: clock_gettime, gettimeofday, epoll_wait,
// epoll_pwait2, epoll_ctl, ppoll, eventfd, timerfd_create, timerfd_settime, and libdispatch's dispatch_source_set_timer and
// _dispatch_main_queue_callback_4CF. On a thread that has entered a simulated kernel they use its clock, or notify it of the
// call; on all other threads they behave as usual. To be linked into test programs only.

#include <stdbool.h>
#include <stdint.h>

#pragma clang assume_nonnull begin

struct simulated_kernel {
    /// CLOCK_MONOTONIC. CLOCK_REALTIME is the beginning of 2001 plus
    /// this value: such dates are exact in Core Foundation's doubles.
    uint64_t now_ns;
    void *_Nullable context;
    /// Called when nothing is ready and the thread sleeps until `until_ns` (UINT64_MAX: forever). Either moves the clock to that
    /// time and returns true, or causes an event that may have made a descriptor ready, and returns false.
    bool (*rest)(void *_Nullable context, uint64_t until_ns);
    /// Set if the engine waits like Foundation, with ppoll on an epoll set. Returns the ready descriptor of the set; -1 if there
    /// is none. Performs the sleep itself. Null for an engine that waits only with epoll.
    int (*_Nullable arrival)(void *_Nullable context, bool may_sleep);
    /// Set together with `arrival`: the time of a run begins now.
    void (*_Nullable timed)(void *_Nullable context);
    /// Set together with `arrival`: the engine has polled only the main queue.
    void (*_Nullable looked_at_main_queue)(void *_Nullable context, bool is_ready);
    /// Set together with `arrival`: the main queue is about to be drained.
    void (*_Nullable drains)(void *_Nullable context);
    /// The last result of `arrival`, for the epoll_wait that follows.
    int arrived_fd;
    /// The main queue's descriptor, or -1; and whether the current wait has it in its set.
    int main_queue_fd;
    bool serves_main_queue;
    /// The latest descriptors that this kernel has created. Its timerfds are eventfds: `arrival` makes them readable.
    int last_eventfd;
    int last_timerfd;
};

/// Switches the calling thread to a simulated kernel, or with null
/// back to the real one. The kernel's memory must outlive the thread.
void simulated_kernel_enter(struct simulated_kernel *_Nullable kernel);

/// Whether `fd` can be read now, according to the real kernel.
bool simulated_kernel_is_readable(int fd);

/// Makes an eventfd readable or unreadable. Returns whether it was readable before.
bool simulated_kernel_set_readable(int fd, bool readable);

/// The time for which the engine has armed the simulated timerfd `fd`; 0 for never.
uint64_t simulated_kernel_armed_ns(int fd);

/// Disarms the timer, like an expiry.
void simulated_kernel_disarm(int fd);

#pragma clang assume_nonnull end
