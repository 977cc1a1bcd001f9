/// Follows the chain of contexts on the heap: {caller's context, function that resumes it}. It begins with the context of the
/// asynchronous function on the stack, which is looked for in its frame, in its register, and among its task's allocations.
///
/// A chain is distinguished from old memory by two conditions: every resume function is a function's start, and the last context
/// is the first one of a running task.
#include "async_task.h"

enum {
    MAX_TASK_BYTES = 64 * 1024,    ///< From a task to its first context: the result is between them.
    SEARCH_BYTES = 4096,           ///< … if the task has to be searched for.
    STACK_SEARCH_BYTES = 1024,     ///< The distance beyond the call of a job in which the runtime keeps its address.
    MAX_ALLOCATIONS = 16,
};

// Tasks

bool stackcap_task_read(stackcap_unwinder *unwinder, uint64_t address, struct stackcap_job *task) {
    uint64_t kind;
    return address % 16 == 0 && address != 0 && stackcap_peek(unwinder, address, task, sizeof *task) &&
           (task->flags & JOB_KIND_MASK) == 0 && task->metadata % 8 == 0 &&
           stackcap_peek(unwinder, task->metadata, &kind, sizeof kind) && kind == TASK_METADATA_KIND;
}

static bool is_running(stackcap_unwinder *unwinder, uint64_t address) {
    struct stackcap_job task;
    return stackcap_task_read(unwinder, address, &task) && (task.status & STATUS_RUNNING);
}

/// A task's first context follows it in the same allocation. \returns the running task, or 0.
static uint64_t task_before(stackcap_unwinder *unwinder, uint64_t context) {
    uint64_t start = context & ~UINT64_C(15);
    if (start <= 2 * SEARCH_BYTES)
        return 0;  // nothing is allocated there
    for (uint64_t distance = 16; distance <= SEARCH_BYTES; distance += 16)
        if (is_running(unwinder, start - distance))
            return start - distance;
    return 0;
}

/// The running task whose address the runtime has left near its call. \returns 0 if there is none.
static uint64_t task_on_stack(stackcap_unwinder *unwinder, const struct stackcap_async_site *site) {
    for (uint64_t at = site->high; at < site->high + STACK_SEARCH_BYTES && stackcap_in_copy(unwinder, at, 8); at += 8) {
        uint64_t value;
        if (stackcap_peek(unwinder, at, &value, sizeof value) && is_running(unwinder, value))
            return value;
    }
    return 0;
}

// Chains

static bool read_context(stackcap_unwinder *unwinder, uint64_t at, struct stackcap_context *context, bool *is_exact) {
    if (at % 8 != 0 || at == 0)
        return false;
    if (stackcap_glimpse_context(&unwinder->async, at, context))
        return true;
    *is_exact = false;
    return stackcap_peek(unwinder, at, context, sizeof *context);
}

static void keep(struct stackcap_async *async, size_t index, uint64_t context, uint64_t resume) {
    if (index < STACKCAP_MAX_AWAITING) {
        async->awaiting[index] = resume;
        async->contexts[index] = context;
    }
}

/// Follows the contexts outwards. \returns whether all of them are contexts, as far as this can be checked here.
static bool follow(stackcap_unwinder *unwinder, uint64_t first, struct stackcap_chain *chain) {
    *chain = (struct stackcap_chain){.first = first, .is_exact = true};
    struct stackcap_context context;
    for (uint64_t at = first; chain->length < MAX_CONTEXTS; at = context.parent, chain->length++) {
        if (unwinder->async.contexts_left-- <= 0)
            return false;
        if (!read_context(unwinder, at, &context, &chain->is_exact) || !stackcap_may_start_function(unwinder, context.resume))
            return false;
        if (context.parent == 0) {
            chain->root = at;
            return true;
        }
        keep(&unwinder->async, chain->length, at, context.resume);
    }
    chain->is_cut = true;
    return true;
}

/// Whether the chain belongs to a running task: to the given one, unless that is 0.
static bool belongs(stackcap_unwinder *unwinder, struct stackcap_chain *chain, uint64_t task) {
    if (chain->is_cut)
        chain->task = task;
    else if (task == 0)
        chain->task = task_before(unwinder, chain->root);
    else if (chain->root > task && chain->root - task < MAX_TASK_BYTES)
        chain->task = task;
    return chain->task != 0;
}

static bool try_context(stackcap_unwinder *unwinder, uint64_t context, uint64_t task, struct stackcap_chain *chain) {
    return context != 0 && follow(unwinder, context, chain) && belongs(unwinder, chain, task);
}

/// The word in which functions with a frame pointer keep their context.
static bool try_frame(stackcap_unwinder *unwinder, const struct stackcap_async_site *site, uint64_t task, struct stackcap_chain *chain) {
    uint64_t slot = site->registers.frame_pointer - 8, context;
    bool is_inside = slot >= site->low && slot < site->high;
    return is_inside && stackcap_peek(unwinder, slot, &context, sizeof context) && try_context(unwinder, context, task, chain);
}

/// The context is in no known register and in no fixed place, but it is the task's last allocation, or near it.
static bool try_allocations(stackcap_unwinder *unwinder, uint64_t address, struct stackcap_chain *chain) {
    struct stackcap_job task;
    if (!stackcap_task_read(unwinder, address, &task))
        return false;
    // From the last to earlier ones.
    uint64_t allocation = task.last_allocation;
    for (int count = 0; allocation != 0 && count < MAX_ALLOCATIONS; count++) {
        if (try_context(unwinder, allocation + ALLOCATION_HEADER, address, chain))
            return true;
        if (!stackcap_peek(unwinder, allocation, &allocation, sizeof allocation))
            return false;
    }
    return false;
}

bool stackcap_chain_find(stackcap_unwinder *unwinder, const struct stackcap_async_site *site, struct stackcap_chain *chain) {
    struct stackcap_job job;
    if (site->job != 0 && !stackcap_task_read(unwinder, site->job, &job))
        return false;  // it was another kind of call
    if (try_frame(unwinder, site, site->job, chain) || try_context(unwinder, site->registers.context, site->job, chain))
        return true;
    uint64_t task = site->job ? site->job : task_on_stack(unwinder, site);
    if (task == 0)
        return false;
    if (try_allocations(unwinder, task, chain))
        return true;
    *chain = (struct stackcap_chain){.task = task};
    return true;
}
