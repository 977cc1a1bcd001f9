/// Asynchronous functions of Swift that await others: async.c, async_chain.c, glimpse.c, job_call.c.
#pragma once

#include "rows.h"

#pragma clang assume_nonnull begin

enum {
    STACKCAP_ASYNC_SITES = 8,
    STACKCAP_GLIMPSES = 3,
    STACKCAP_GLIMPSE_BYTES = 2048,
    STACKCAP_OTHER_CALLS = 64,
};

/// The part of the heap that ends with a context, as it was immediately after the stack was copied.
struct stackcap_glimpse {
    uint64_t start, length;
    uint8_t bytes[STACKCAP_GLIMPSE_BYTES];
};

/// The registers of a frame by which its context may be found; 0 if unknown.
struct stackcap_async_registers {
    uint64_t frame_pointer, context;
};

/// A frame that was started in the way the Swift concurrency runtime starts jobs.
struct stackcap_async_site {
    size_t frame;
    uint64_t low, high;       ///< Its part of the stack.
    uint64_t return_address;  ///< After the job's call.
    struct stackcap_async_registers registers;
    uint64_t job;  ///< In the calling frame; 0 if unknown.
};

/// The asynchronous functions seen during the walk, and the results.
struct stackcap_async {
    struct stackcap_async_site sites[STACKCAP_ASYNC_SITES];  ///< Innermost first.
    size_t site_count;
    uint64_t other_calls[STACKCAP_OTHER_CALLS];  ///< Return addresses seen in this walk that are not a job's call. Direct-mapped.
    uint64_t awaiting[STACKCAP_MAX_AWAITING];
    uint64_t contexts[STACKCAP_MAX_AWAITING];
    uint64_t first;     ///< The context with which the chain begins.
    uint64_t low, high; ///< The stack range of the frame that awaits it.
    uint64_t job_call;     ///< The return address of the last job's call. It is the same for nearly all.
    uint64_t job_call_at;  ///< Its position on the stack. The same for most captures of a thread.
    uint64_t glimpsed_at;  ///< Its position in this copy; 0 if it was not found.
    bool is_exact;      ///< The chain is as it was at the time of the copy.
    int contexts_left;  ///< How many contexts may still be tried.
    struct stackcap_glimpse glimpses[STACKCAP_GLIMPSES];
    stackcap_async_callers callers;
};

/// Reads the probable innermost contexts of a thread immediately after its stack: when the stack has been unwound, they may be
/// gone. At most 25 system calls, usually three; the results are checked later. Async-signal-safe; changes errno.
/// \param context_register 0 if unknown.
void stackcap_async_glimpse(stackcap_unwinder *unwinder, uint64_t context_register);
/// Drops the glimpses that differ from current memory: the thread has run in the meantime.
void stackcap_async_recheck_glimpses(stackcap_unwinder *unwinder);
/// Drops what an earlier walk saw.
void stackcap_async_begin(stackcap_unwinder *unwinder);
/// Checks whether the walk's latest frame started the one before it as a job. Reads a few bytes of code.
void stackcap_async_notice(stackcap_unwinder *unwinder, const struct stackcap_async_registers *callee,
                           struct stackcap_walk *caller);
/// Follows the contexts of the innermost asynchronous frame into async.callers. Reads the live heap; never faults.
void stackcap_async_read(stackcap_unwinder *unwinder);
/// Whether the chain is that of the moment of the copy: its beginning was read then, and the rest of it and the frame are
/// unchanged.
bool stackcap_async_holds(const stackcap_unwinder *unwinder);
/// Drops the chain, but not the frame.
void stackcap_async_doubt(stackcap_unwinder *unwinder);

// job_call.c

#if defined(__x86_64__)
#define stackcap_job_register stackcap_job_register_x86_64
#else
#define stackcap_job_register stackcap_job_register_aarch64
#endif

#pragma clang assume_nonnull end
