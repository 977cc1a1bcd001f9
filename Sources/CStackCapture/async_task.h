/// Swift's tasks and the contexts of asynchronous functions, as they are in memory; for async.c, async_chain.c, glimpse.c.
#pragma once

#include "walk.h"

#pragma clang assume_nonnull begin

/// Layouts: swift/ABI/Task.h, known to the compiler, up to `context`; swift/stdlib/public/Concurrency/TaskPrivate.h from there on.
struct stackcap_job {
    uint64_t metadata, references, scheduler[2];
    uint32_t flags, number;
    uint64_t voucher, reserved, resume, context, reserved_64;
    uint64_t exclusivity[2];
    uint32_t status, status_high;
    uint64_t record, last_allocation;
};
_Static_assert(offsetof(struct stackcap_job, flags) == 32 && offsetof(struct stackcap_job, resume) == 56, "ABI");
_Static_assert(offsetof(struct stackcap_job, status) == 96, "of Swift 5.7 to 6.3");
_Static_assert(offsetof(struct stackcap_job, last_allocation) == 112, "of Swift 5.7 to 6.3");

enum {
    TASK_METADATA_KIND = 0x502,  // swift/ABI/MetadataKind.def
    JOB_KIND_MASK = 0xff,        // 0: a task
    FLAG_GROUP_CHILD = 1 << 26,  // swift/ABI/MetadataValues.h, JobFlags
    FLAG_ASYNC_LET = 1 << 28,
    STATUS_RUNNING = 0x800,
};

/// A task's memory is a stack of allocations; each of its contexts is one. In front of each is a header of this size, which begins with
/// the address of the header of the allocation before: swift/stdlib/public/runtime/StackAllocator.h.
enum { ALLOCATION_HEADER = 16 };

/// Of an asynchronous function: its caller's context, and the function that resumes it.
struct stackcap_context {
    uint64_t parent, resume;
};

// async_chain.c

enum {
    MAX_CONTEXTS = 16 * 1024,               ///< Followed to the end; STACKCAP_MAX_AWAITING are kept.
    MAX_CONTEXTS_TRIED = 4 * MAX_CONTEXTS,  ///< In all attempts of one capture: old memory may form a cycle.
};

/// A chain that was followed to its end.
struct stackcap_chain {
    uint64_t first, root, task;
    size_t length;
    bool is_cut;   ///< It continues beyond MAX_CONTEXTS.
    bool is_exact;  ///< All of it is as it was when the stack was copied.
};

/// Finds the chain of the frame that was started as a job: async.awaiting and async.contexts get its links. \returns false if it was
/// another kind of call, or nothing is known. If only the task is known, the chain has no root. Reads the live heap; never faults.
/// Not in the handler.
bool stackcap_chain_find(stackcap_unwinder *unwinder, const struct stackcap_async_site *site, struct stackcap_chain *chain);

/// Reads a task. \returns false if there is none at the address. Not in the handler.
bool stackcap_task_read(stackcap_unwinder *unwinder, uint64_t address, struct stackcap_job *task);

// glimpse.c: stackcap_async_glimpse and stackcap_async_recheck_glimpses of async.h, and

/// The context as it was when the stack was copied. \returns false if it was not read then. Reads only what was copied.
bool stackcap_glimpse_context(const struct stackcap_async *async, uint64_t at, struct stackcap_context *context);

#pragma clang assume_nonnull end
