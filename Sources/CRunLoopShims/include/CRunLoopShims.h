#pragma once

// The C part of RunLoopKit: the loop hooks of libdispatch and the concurrency runtime, system calls that Swift's C library
// module lacks or that must be safe in signal handlers, frames with stable names, and facts about threads and forks. No
// function here allocates or locks unless its comment says so.

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "task_pool.h"

#pragma clang assume_nonnull begin

/// Waits for events of `epoll_fd`: at most `timeout_ns`, without limit if negative, not at all if zero. Nanosecond precision
/// where the kernel has epoll_pwait2 (5.11), otherwise rounded up to milliseconds. Returns the number of events written to
/// `events` (room for `capacity`, at least 1), or -errno; never restarts after EINTR. Its frame stays on the stack while it
/// waits; readers of stacks recognise a loop at rest by it. Async-signal-safe; does not change errno.
int event_run_loop_wait(int epoll_fd, struct epoll_event *events, int capacity, int64_t timeout_ns);

/// Whether `return_address` lies in a wait function of this file, that is, in a wait that a run loop publishes itself. Two
/// comparisons. Async-signal-safe.
bool run_loop_publishes_wait_at(uintptr_t return_address);

/// The events out of `events` (epoll's bits) that `fd` has now, without waiting; POLLNVAL if it is closed. Async-signal-safe;
/// does not change errno.
uint32_t run_loop_poll(int fd, uint32_t events);

// A wake descriptor wakes a waiting loop. It is an eventfd that is always readable, is never read or written, and is registered
// edge-triggered in the loop's epoll sets. Signalling it means re-arming it in one set, which makes an edge in that set.
// Compared with write(2) to an eventfd this is no slower, and if a program has closed the loop's descriptors and other files
// have been given their numbers, signalling fails and changes nothing.

/// The token of a wake descriptor's event.
#define RUN_LOOP_WAKE_TOKEN 0xFFFFFFFFFFFFFFFFULL

/// A new wake descriptor, closed on exec, with a mark by which it can be recognised (not zero, not the greatest number); the
/// caller owns it. -1 and errno if there are no descriptors left.
int run_loop_make_wake_descriptor(uint32_t mark);

/// Adds the wake descriptor to an epoll set. Returns 0 or an errno.
int run_loop_add_wake_descriptor(int epoll_fd, int wake_fd);

/// Wakes the thread that waits for the epoll set, or the next one to wait for it. Returns 0, or an errno if the two are no
/// longer a set and the wake descriptor in it. One system call. Async-signal-safe; does not change errno.
int run_loop_signal_wake_descriptor(int epoll_fd, int wake_fd);

/// Whether the descriptor is the wake descriptor with this mark. Reads /proc; without it, or without a descriptor to read it
/// with, assumes that an open descriptor is. Changes errno.
bool run_loop_is_wake_descriptor(int fd, uint32_t mark);

/// A hexadecimal field of /proc's information about an eventfd: `eventfd-count:` or `eventfd-id:`. Zero for other files;
/// `unknown` if /proc cannot be read. Changes errno.
uint64_t run_loop_eventfd_field(int fd, const char *field, uint64_t unknown);

/// Identifies a descriptor's file as far as fstat(2) can: descriptors without a file system of their own (eventfd, timerfd) are
/// all equal.
struct run_loop_file {
    uint64_t device;
    uint64_t inode;
};
/// All zero if `fd` is closed. One system call. Async-signal-safe; does not change errno.
struct run_loop_file run_loop_identify(int fd);

/// Ends the wait of a thread of this process that no descriptor can wake any more. It sends SIGURG, whose default action is to
/// do nothing, and installs a handler that does nothing if the signal has none. No effect if the thread blocks the signal.
/// Async-signal-safe; does not change errno.
void run_loop_interrupt(int32_t tid);

/// Sleeps while the 32 bits at `word` are `seen`, until a wake, or until CLOCK_MONOTONIC has reached `deadline_ns` (UINT64_MAX:
/// no limit); may return spuriously. False if the deadline was reached. Async-signal-safe; does not change errno.
bool run_loop_futex_wait(void *word, uint32_t seen, uint64_t deadline_ns);

/// The same, in a frame of its own: a captured stack shows that the thread waits for a request that it made to another loop.
bool event_run_loop_wait_for_a_perform_request(void *word, uint32_t seen, uint64_t deadline_ns);

/// Likewise, for the end of a worker thread.
bool event_run_loop_wait_for_a_worker_to_end(void *word, uint32_t seen, uint64_t deadline_ns);

/// Wakes `count` of the threads that sleep on `word`. Async-signal-safe; does not change errno.
void run_loop_futex_wake(void *word, int32_t count);

/// Prints on stderr that a thread tried to take a lock that it already holds, or, in a forked child, that a parent's thread with the
/// same thread pointer held at the fork, and ends the process. Async-signal-safe.
_Noreturn void run_loop_trap_relocking(void);

/// The calling thread's thread pointer: even, not zero, different from that of every other live thread, and unchanged by a
/// fork. No call: one instruction. Async-signal-safe.
static inline uintptr_t run_loop_own_thread_pointer(void) {
    uintptr_t pointer;
    // Volatile: a function that continues on another thread must not use the value read on the first.
#if defined(__x86_64__)
    __asm__ volatile("movq %%fs:0, %0" : "=r"(pointer));
#elif defined(__aarch64__)
    __asm__ volatile("mrs %0, tpidr_el0" : "=r"(pointer));
#else
    pointer = (uintptr_t)pthread_self();
#endif
    return pointer;
}

/// Only for `run_loop_generation`.
extern _Atomic uint32_t run_loop_generation_counter;

/// The number of forks without exec between this process and the first one that loaded this image. What another generation has
/// made is shared with the parent. Forks that bypass fork(2)'s handlers (vfork, posix_spawn, clone) do not count.
/// Async-signal-safe.
static inline uint32_t run_loop_generation(void) {
    return atomic_load_explicit(&run_loop_generation_counter, memory_order_relaxed);
}

/// Whether `thread` is the thread that called fork: the only one of its parent's threads that this process has. Not in
/// generation 0.
bool run_loop_survived_fork(pthread_t thread);

/// A new timerfd that becomes readable only when CLOCK_REALTIME is set; non-blocking, closed on exec; the caller owns it. Each time
/// the clock is set wakes its pollers, even if it was not read since. -1 and errno if the process has no descriptors left.
int run_loop_make_clock_fd(void);

/// The kernel's id of the main thread, which is that of the process. Async-signal-safe.
int32_t run_loop_main_tid(void);

/// The kernel's id of the calling thread. One system call. Async-signal-safe.
int32_t run_loop_current_tid(void);

/// The same, without a system call except for the first call of a thread in a process. Not in a signal handler.
int32_t run_loop_own_tid(void);

/// Whether the caller runs on the main thread. No system call if the main thread has loaded this image, otherwise one.
/// Async-signal-safe.
bool run_loop_is_main_thread(void);

/// Begins a run of the calling thread's loop; runs may be nested. Returns what `run_loop_end_run` needs. Until then, what the thread
/// waits for elsewhere it waits for in a callout. Async-signal-safe.
uintptr_t run_loop_begin_run(void);
/// Ends the run, on the same thread. `outer` is what `run_loop_begin_run` returned. Async-signal-safe.
void run_loop_end_run(uintptr_t outer);
/// The height of the stack (an address) at which the calling thread's innermost run began. 0: it does not run its loop.
/// Async-signal-safe.
uintptr_t run_loop_height_of_run(void);

/// Writes the main thread's pthread_t to `thread`. False if another thread loaded this image: then the main thread is only
/// known when it calls. Async-signal-safe.
bool run_loop_main_pthread(pthread_t *thread);

/// Writes the bounds of the stack of `thread`, which must be alive. Returns 0 or an errno. Allocates, locks; reads /proc for
/// main.
int run_loop_stack_bounds(pthread_t thread, uintptr_t *low, uintptr_t *high);

/// Copies the name of the thread `tid` of this process, NUL-terminated. False if there is no such thread, or /proc cannot be
/// read. Changes errno.
bool run_loop_thread_name(int32_t tid, char name[_Nonnull 16]);

/// Starts a thread that runs `body(context)`; it is named before `body` runs. Up to 15 bytes of `name` are used. It begins with
/// the signals of `mask` blocked. Its stack is the process's default, but at least 1 MiB. Returns 0 and the thread, to be joined
/// or detached, or an errno. Allocates.
int run_loop_start_thread(
    pthread_t *thread, const char *name, const sigset_t *mask, void (*body)(void *_Nonnull context), void *context);

/// The same with a mask for threads that run the server's code: all signals are blocked except SIGURG, and those that a thread
/// causes itself and SIGPROF as far as the caller has them open.
int run_loop_start_worker(pthread_t *thread, const char *name, void (*body)(void *_Nonnull context), void *context);

/// Whether a line can be written to standard error, or to a file like it. False if the number seems to be that of another file by now; if
/// nobody reads the pipe for a second; and if it has no reader any more: writing to it would raise SIGPIPE. Async-signal-safe.
bool run_loop_takes_lines(int descriptor);

/// Writes one line to stderr, prefixed with the module's name, if that takes lines. Async-signal-safe.
void run_loop_warn(const char *message);

/// libdispatch: the eventfd that becomes readable when the main queue wants to be drained. The first call hands the main queue
/// over to a loop: from then on `event_run_loop_is_servicing_the_main_dispatch_queue` is the only way its work is done. Main
/// thread only, and not for each turn: it checks whether the eventfd is still the same file. If it was closed, it is reopened under
/// the same number. -1 if there is none: with EBADF, its number now belongs to another file; with another errno, no descriptors
/// are left. (Without descriptors libdispatch itself would end the process. So this opens one first as a test, which fails only if
/// another thread takes the last one at that very moment.)
int run_loop_main_queue_eventfd(void);

/// Consumes the readiness of the eventfd, and returns whether it was ready; to be called only after
/// `run_loop_main_queue_eventfd` returned it.
bool run_loop_main_queue_take(void);

/// The part of `run_loop_main_queue_is_usable` for a forked process.
bool run_loop_main_queue_survived_fork(void);

/// False in a child that was forked after the main queue had been handed over: its eventfd is the parent's. Async-signal-safe.
static inline bool run_loop_main_queue_is_usable(void) {
    return run_loop_generation() == 0 || run_loop_main_queue_survived_fork();
}

// The ways in which a loop runs foreign code. Each calls `call(context)`, and has its own frame on the stack while it runs.
// Readers of captured stacks classify by these names, so they are interface. Async-signal safety, allocation and locks are
// those of `call`.
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

/// Drains the main dispatch queue, and with it the main actor. Does the work that is there now; work that arrives in the
/// meantime makes the eventfd ready again. Main thread only. A frame with a stable name, like the callouts'.
void event_run_loop_is_servicing_the_main_dispatch_queue(void);

/// The name of the function among these that begins at the address, for a program without symbols; null for any other address.
const char *_Nullable run_loop_callout_name(uintptr_t function);

#pragma clang assume_nonnull end
