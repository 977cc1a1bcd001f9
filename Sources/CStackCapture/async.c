/// Finds the functions that await the asynchronous function on the stack. Such functions return by a jump, so their callers are
/// not on the stack, but in a chain of contexts on the heap (async_chain.c).
///
/// Names are not known here. An asynchronous frame is recognised by the call that started it (job_call.c).
///
/// A context does not change, and lives until its function returns. For a thread that has not moved, the whole chain can be
/// read after its stack has been unwound. For a thread that may have moved, the chain's beginning is read immediately after the
/// stack (glimpse.c).
#include "async_task.h"

#include <string.h>

// Observations during the walk

void stackcap_async_begin(stackcap_unwinder *unwinder) {
    unwinder->async.site_count = 0;
    memset(unwinder->async.other_calls, 0, sizeof unwinder->async.other_calls);
}

void stackcap_async_notice(stackcap_unwinder *unwinder, const struct stackcap_async_registers *callee,
                           struct stackcap_walk *caller) {
    struct stackcap_async *async = &unwinder->async;
    size_t index = unwinder->frame_count - 1;
    uint64_t address = caller->address;
    uint64_t *other = &async->other_calls[address / 2 % STACKCAP_OTHER_CALLS];
    uint8_t before[STACKCAP_JOB_CALL_BYTES];
    if (*other == address)
        return;  // most likely a recursion
    if (async->site_count == STACKCAP_ASYNC_SITES || address < sizeof before ||
        !stackcap_peek(unwinder, address - sizeof before, before, sizeof before))
        return;
    int number = stackcap_job_register(before);
    if (number < 0) {
        *other = address;
        return;
    }
    async->sites[async->site_count++] = (struct stackcap_async_site){
        .frame = index - 1,
        .low = stackcap_frame_at(unwinder, index - 1)->stack_pointer,
        .high = caller->stack_pointer,
        .return_address = address,
        .registers = *callee,
        .job = stackcap_walk_register(caller, number),
    };
}

// The chain

static stackcap_async_end end_of(const struct stackcap_chain *chain, uint32_t flags) {
    if (chain->root == 0 && !chain->is_cut)
        return STACKCAP_ASYNC_UNKNOWN;
    if (chain->is_cut || chain->length > STACKCAP_MAX_AWAITING)
        return STACKCAP_ASYNC_LIMIT;
    return flags & FLAG_ASYNC_LET     ? STACKCAP_ASYNC_LET
           : flags & FLAG_GROUP_CHILD ? STACKCAP_ASYNC_TASK_GROUP
                                      : STACKCAP_ASYNC_TASK;
}

/// Records where the next capture will look. The return address follows the asynchronous frame's record, and on x86-64 is
/// always last.
static void learn_job_call(stackcap_unwinder *unwinder, const struct stackcap_async_site *site) {
    struct stackcap_async *async = &unwinder->async;
    uint64_t places[] = {site->high - 8, site->registers.frame_pointer + 8}, word;
    async->job_call = site->return_address;
    async->job_call_at = 0;
    for (int i = 0; i < 2; i++)
        if (stackcap_copy_read(unwinder, places[i], &word, sizeof word) == PLACE_COPIED && word == site->return_address) {
            async->job_call_at = places[i];
            return;
        }
}

static void describe(stackcap_unwinder *unwinder, const struct stackcap_async_site *site, const struct stackcap_chain *chain) {
    struct stackcap_async *async = &unwinder->async;
    struct stackcap_job task;
    if (!stackcap_task_read(unwinder, chain->task, &task))
        return;
    learn_job_call(unwinder, site);
    async->first = chain->first;
    async->low = site->low;
    async->high = site->high;
    async->is_exact = chain->is_exact && chain->root != 0;
    async->callers = (stackcap_async_callers){
        .awaiting = async->awaiting,
        .count = chain->length < STACKCAP_MAX_AWAITING ? chain->length : STACKCAP_MAX_AWAITING,
        .frame = site->frame,
        .end = end_of(chain, task.flags),
        .task_number = task.number,
    };
}

void stackcap_async_read(stackcap_unwinder *unwinder) {
    struct stackcap_async *async = &unwinder->async;
    async->callers = (stackcap_async_callers){.end = STACKCAP_ASYNC_NONE};
    async->contexts_left = MAX_CONTEXTS_TRIED;
    struct stackcap_chain chain;
    for (size_t i = 0; i < async->site_count; i++)
        if (stackcap_chain_find(unwinder, &async->sites[i], &chain)) {
            describe(unwinder, &async->sites[i], &chain);
            return;
        }
}

/// Checks the outer end of a frame, which holds the return address, the caller's frame pointer and the context: they do not
/// change while the function runs.
static bool frame_holds(const stackcap_unwinder *unwinder, uint64_t low, uint64_t high) {
    enum { FIXED_BYTES = 24 };
    uint8_t now[FIXED_BYTES];
    uint8_t then[FIXED_BYTES];
    uint64_t start = high - low < sizeof now ? low : high - sizeof now;
    if (stackcap_copy_read(unwinder, start, then, high - start) != PLACE_COPIED)
        return false;
    ssize_t count = stackcap_read_live(&unwinder->reader, start, now, high - start);
    return count == (ssize_t)(high - start) && memcmp(now, then, high - start) == 0;
}

bool stackcap_async_holds(const stackcap_unwinder *unwinder) {
    const struct stackcap_async *async = &unwinder->async;
    struct stackcap_context glimpsed;
    if (async->is_exact)
        return true;
    // A task's memory is reused for its next contexts, at the same addresses, by functions called from the same place: what
    // shows that a chain is still the same must have been read immediately after the stack.
    if (!stackcap_glimpse_context(async, async->first, &glimpsed))
        return false;
    for (size_t i = 0; i < async->callers.count; i++) {
        struct stackcap_context context;
        ssize_t count = stackcap_read_live(&unwinder->reader, async->contexts[i], &context, sizeof context);
        if (count != (ssize_t)sizeof context || context.resume != async->awaiting[i])
            return false;
    }
    return frame_holds(unwinder, async->low, async->high);
}

void stackcap_async_doubt(stackcap_unwinder *unwinder) {
    struct stackcap_async *async = &unwinder->async;
    async->callers.count = 0;
    async->callers.end = STACKCAP_ASYNC_UNKNOWN;
    async->callers.is_missed = async->job_call_at != 0 && async->glimpsed_at != async->job_call_at;
}
