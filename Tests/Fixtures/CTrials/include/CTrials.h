/// What captures are tried on: threads that block, compute, storm or stand still in ways that are known exactly. For tests alone:
/// whatever is not expected aborts.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma clang assume_nonnull begin

/// A thread, as a capture wants it.
typedef struct trial_thread {
    pid_t number;
    uint64_t low, high;
} trial_thread;

/// Of the calling thread. Allocates.
trial_thread trial_own_thread(void);

/// CLOCK_MONOTONIC.
uint64_t trial_now_ns(void);
/// CLOCK_THREAD_CPUTIME_ID.
uint64_t trial_own_cpu_ns(void);
/// Standard output by lines, into pipes too.
void trial_buffer_lines(void);

// Blocking calls (blocking*.c)

/// One call that blocks, on a thread of its own.
typedef struct trial_block trial_block;

typedef struct trial_block_end {
    bool as_expected;  ///< Result and error number are those of a call that was left alone.
    bool early;        ///< It returned before its time, or before it was released.
    int64_t result;
    int error;
    uint64_t lasted_ns;
} trial_block_end;

size_t trial_block_count(void);
const char *trial_block_name(size_t index);
/// Whether the call returns by itself after its time.
bool trial_block_is_timed(size_t index);
/// Whether the number is that of the call as the kernel gets it. A page fault is no call.
bool trial_block_is_call(size_t index, int64_t number);
bool trial_block_is_page_fault(size_t index);

/// Starts the thread. \returns NULL, with the reason in `error`, where the kernel or a sandbox does not offer the call.
trial_block *_Nullable trial_block_start(size_t index, uint64_t time_ns, int *error);
trial_thread trial_block_thread(const trial_block *block);
/// Waits until /proc shows the thread asleep in its call. \returns false at the deadline.
bool trial_block_await(trial_block *block, uint64_t deadline_ns);
bool trial_block_has_returned(const trial_block *block);
/// Releases what waits to be released, waits for the thread and frees everything.
trial_block_end trial_block_finish(trial_block *block);

// A thread that makes many short calls (callers.c)

typedef enum trial_caller_kind {
    TRIAL_CALLS_POLL,   ///< poll with no time: it never sleeps, yet returns EINTR if a signal is pending.
    TRIAL_CALLS_READ,   ///< read of a byte that is there.
    TRIAL_CALLS_SLEEP,  ///< nanosleep of a microsecond, with the least timer slack.
    TRIAL_CALLS_EPOLL,  ///< epoll_wait with no time.
} trial_caller_kind;

typedef struct trial_caller trial_caller;

/// Starts a thread that makes `per_second` calls a second, if they take no time, and computes in between.
trial_caller *trial_caller_start(trial_caller_kind kind, uint64_t per_second);
trial_thread trial_caller_thread(const trial_caller *caller);
uint64_t trial_caller_calls(const trial_caller *caller);
/// Calls that returned EINTR.
uint64_t trial_caller_cut_short(const trial_caller *caller);
void trial_caller_finish(trial_caller *caller);

#pragma clang assume_nonnull end

#ifdef __cplusplus
}
#endif
