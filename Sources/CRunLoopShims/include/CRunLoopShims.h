#pragma once

// What RunLoopKit needs from C: libdispatch's and the concurrency runtime's loop hooks, two system calls in frames of their
// own, and facts about the main thread. Nothing here allocates or locks unless it says so.

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "run_loop_messages.h"

#pragma clang assume_nonnull begin

/// Waits for events of `epoll_fd`: at most `timeout_ns`, for ever if negative, not at all if zero. Nanosecond precision where the
/// kernel has epoll_pwait2 (5.11), else rounded up to milliseconds.
/// Returns the number of events written to `events` (room for `capacity`, at least 1), or -errno; never restarts after EINTR.
/// Its frame stays on the stack while it waits, and is what a reader of stacks knows a loop at rest by.
/// Async-signal-safe; leaves errno alone.
int event_run_loop_wait(int epoll_fd, struct epoll_event *events, int capacity, int64_t timeout_ns);

/// The events out of `events` (epoll's bits) that `fd` has now, without waiting; POLLNVAL if it is closed. Async-signal-safe; leaves
/// errno alone.
uint32_t run_loop_poll(int fd, uint32_t events);

/// A new eventfd, non-blocking, closed on exec; the caller owns it. -1 and errno if the process has no descriptors left.
int run_loop_make_eventfd(void);

/// Adds one to the eventfd `fd`. If the counter is full the eventfd is ready already, so errors do not matter.
/// Async-signal-safe; leaves errno alone.
void run_loop_post_eventfd(int fd);

/// A new timerfd that becomes readable when CLOCK_REALTIME is set, and at no time else; non-blocking, closed on exec; the caller owns it.
/// -1 and errno if the process has no descriptors left.
int run_loop_make_clock_fd(void);

/// Makes the descriptor from `run_loop_make_clock_fd` wait for the next time the clock is set. Async-signal-safe; leaves errno alone.
void run_loop_rearm_clock_fd(int fd);

/// The kernel's id of the main thread: that of the process. Async-signal-safe.
int32_t run_loop_main_tid(void);

/// The kernel's id of the calling thread. One system call. Async-signal-safe.
int32_t run_loop_current_tid(void);

/// Whether the caller runs on the main thread. No system call when the main thread has loaded this image, else one.
/// Async-signal-safe.
bool run_loop_is_main_thread(void);

/// Writes the main thread's pthread_t to `thread`. False if another thread loaded this image: then the main thread is only
/// found when it calls. Async-signal-safe.
bool run_loop_main_pthread(pthread_t *thread);

/// Writes the bounds of the stack of `thread`, a live one. Returns 0 or an errno. Allocates, locks; reads /proc for main.
int run_loop_stack_bounds(pthread_t thread, uintptr_t *low, uintptr_t *high);

/// Copies the name of the thread `tid` of this process, NUL-terminated. False if there is no such thread. Allocates nothing.
bool run_loop_thread_name(int32_t tid, char name[_Nonnull 16]);

/// Opens the latch `word` (0 closed, 1 open) for good, and wakes all who wait for it. What the caller did before is visible to who
/// sees it open. The caller owns the word, which must outlive the call. Async-signal-safe; leaves errno alone.
void run_loop_latch_open(uint32_t *word);

/// Waits until the latch is open, or CLOCK_MONOTONIC has reached `deadline_ns` (UINT64_MAX: for ever). Whether it is open. Goes on
/// after signals; leaves errno alone.
bool run_loop_latch_wait(uint32_t *word, uint64_t deadline_ns);

/// The same, in a frame of its own: a captured stack shows that the thread waits for a request that it made to another loop.
bool event_run_loop_wait_for_a_perform_request(uint32_t *word, uint64_t deadline_ns);

/// Starts a thread that runs `body(context)`, named before that. `name`: up to 15 bytes count. Its signal mask is the caller's, with
/// all blocked besides but those a thread brings upon itself, and SIGPROF. Returns 0 and the thread, to be joined or detached, or
/// an errno. Allocates.
int run_loop_start_worker(pthread_t *thread, const char *name, void (*body)(void *_Nonnull context), void *context);

/// Writes one line to stderr, prefixed with the module's name. Async-signal-safe.
void run_loop_complain(const char *message);

/// libdispatch: the eventfd that becomes readable when the main queue wants to be drained. The first call hands the main queue
/// over to a loop: from then on
/// `event_run_loop_is_servicing_the_main_dispatch_queue` is the only way its work is done.
int run_loop_main_queue_eventfd(void);

// The ways by which a loop runs foreign code. Each calls `call(context)`, and has a frame of its own on the stack while it runs:
// readers of captured stacks classify by these names, so they are interface. What `call` does, they do.
typedef void (*run_loop_callout)(void *context);
/// Runs an observer.
void event_run_loop_is_calling_out_to_an_observer(run_loop_callout call, void *context);
/// Runs a block of `perform`.
void event_run_loop_is_calling_out_to_a_block(run_loop_callout call, void *context);
/// Runs a signalled source.
void event_run_loop_is_calling_out_to_a_source0(run_loop_callout call, void *context);
/// Runs a descriptor source's handler.
void event_run_loop_is_calling_out_to_a_descriptor_source(run_loop_callout call, void *context);
/// Runs a timer.
void event_run_loop_is_calling_out_to_a_timer(run_loop_callout call, void *context);
/// Runs a perform request.
void event_run_loop_is_calling_out_to_a_perform_request(run_loop_callout call, void *context);
/// Runs a Swift task's job.
void event_run_loop_is_running_a_task(run_loop_callout call, void *context);
/// Runs a port's handler.
void event_run_loop_is_calling_out_to_a_message_handler(run_loop_callout call, void *context);

/// Drains the main dispatch queue, and with it the main actor: does what is there now; work that comes meanwhile makes the eventfd
/// ready again. Main thread only. A frame with a name that lasts, like the callouts'.
void event_run_loop_is_servicing_the_main_dispatch_queue(void);

#pragma clang assume_nonnull end
