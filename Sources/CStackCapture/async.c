/// Finds the functions that await the asynchronous function on the stack. Such functions return by a jump, so their callers are
/// not on the stack, but in a chain of contexts on the heap: {caller's context, function that resumes it}.
///
/// Names are not known here. An asynchronous frame is recognised by the call that started it (job_call.c). A chain is
/// distinguished from old memory by two conditions: every resume function is a function's start, and the last context is the
/// first one of a running task.
///
/// A context does not change, and lives until its function returns. For a thread that has not moved, the whole chain can be
/// read after its stack has been unwound. For a thread that may have moved, the chain's beginning is read immediately after the
/// stack (a glimpse). This requires knowing where on the stack a job's call is, which the first capture learns for the next.
#include "walk.h"

#include <string.h>

enum {
    MAX_CONTEXTS = 16 * 1024,      ///< Followed to the end; STACKCAP_MAX_AWAITING are kept.
    MAX_CONTEXTS_TRIED = 4 * MAX_CONTEXTS,  ///< In all attempts of one capture: old memory may form a cycle.
    MAX_TASK_BYTES = 64 * 1024,    ///< From a task to its first context: the result is between them.
    SEARCH_BYTES = 4096,           ///< … if the task has to be searched for.
    STACK_SEARCH_BYTES = 1024,     ///< The distance beyond the call of a job in which the runtime keeps its address.
    MAX_ALLOCATIONS = 16,
    MAX_TASKS_TRIED = 8,
    FRAME_RECORD_REACH = 512,
    GLIMPSE_STACK_BYTES = 32 * 1024,  ///< How much of the stack is searched while the thread is held.
    BYTES_BEFORE_CALL = 16,           ///< In the asynchronous frame: its context, and its caller's frame pointer.
};

/// Layouts: swift/ABI/Task.h, known to the compiler, up to `context`; swift/stdlib/public/Concurrency/TaskPrivate.h from there on.
struct job {
    uint64_t metadata, references, scheduler[2];
    uint32_t flags, number;
    uint64_t voucher, reserved, resume, context, reserved_64;
    uint64_t exclusivity[2];
    uint32_t status, status_high;
    uint64_t record, last_allocation;
};
_Static_assert(offsetof(struct job, flags) == 32 && offsetof(struct job, resume) == 56, "ABI");
_Static_assert(offsetof(struct job, status) == 96 && offsetof(struct job, last_allocation) == 112, "of Swift 5.7 to 6.3");

enum {
    TASK_METADATA_KIND = 0x502,  // swift/ABI/MetadataKind.def
    JOB_KIND_MASK = 0xff,        // 0: a task
    FLAG_GROUP_CHILD = 1 << 26,  // swift/ABI/MetadataValues.h, JobFlags
    FLAG_ASYNC_LET = 1 << 28,
    STATUS_RUNNING = 0x800,
};

struct context {
    uint64_t parent, resume;
};

/// A chain that was followed to its end.
struct chain {
    uint64_t first, root, task;
    size_t length;
    bool is_cut;   ///< It continues beyond MAX_CONTEXTS.
    bool is_exact;  ///< All of it is as it was when the stack was copied.
};

// Reading immediately after the copy

static void glimpse_at(stackcap_unwinder *unwinder, uint64_t context, struct stackcap_glimpse *glimpse) {
    uint64_t end = context + sizeof(struct context);
    glimpse->length = 0;
    if (context % 8 != 0 || context < STACKCAP_GLIMPSE_BYTES)
        return;
    // A task's contexts are adjacent. The first of them may be at the start of a mapping.
    static const uint16_t sizes[] = {STACKCAP_GLIMPSE_BYTES, 64, sizeof(struct context)};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && glimpse->length == 0; i++) {
        glimpse->start = end - sizes[i];
        if (stackcap_read_live(&unwinder->reader, glimpse->start, glimpse->bytes, sizes[i]) == sizes[i])
            glimpse->length = sizes[i];
    }
}

/// The part of the copy from this address on, preceded by the words of an asynchronous frame; or an empty part.
static struct stackcap_part copy_from(const struct stackcap_part *part, uint64_t address) {
    uint64_t at = address - part->start;
    bool is_inside = at >= BYTES_BEFORE_CALL && part->length >= 8 && at <= part->length - 8;
    return is_inside ? (struct stackcap_part){part->bytes + at, address, part->length - at} : (struct stackcap_part){0};
}

/// The part of the copy from the return address of the job's call on, if the call is where it was last time at any depth, or
/// not far from the stack's inner end; or an empty part.
static struct stackcap_part find_job_call(const stackcap_unwinder *unwinder) {
    const struct stackcap_copy *copy = &unwinder->copy;
    const struct stackcap_async *async = &unwinder->async;
    const struct stackcap_part nowhere = {0}, *parts[] = {&copy->inner, &copy->outer};
    if (async->job_call == 0)
        return nowhere;
    for (int i = 0; i < 2; i++) {
        struct stackcap_part last = copy_from(parts[i], async->job_call_at);
        if (last.length > 0 && memcmp(last.bytes, &async->job_call, sizeof async->job_call) == 0)
            return last;
    }
    for (uint64_t at = BYTES_BEFORE_CALL; at < GLIMPSE_STACK_BYTES && at + 8 <= copy->inner.length; at += 8)
        if (memcmp(copy->inner.bytes + at, &async->job_call, sizeof async->job_call) == 0)
            return copy_from(&copy->inner, copy->inner.start + at);
    return nowhere;
}

/// The last allocation of the task whose address the runtime has left near its call. 0 if there is none.
static uint64_t likely_allocation(const stackcap_unwinder *unwinder, const struct stackcap_part *call) {
    const struct stackcap_copy *copy = &unwinder->copy;
    int tried = 0;
    for (uint64_t at = 8; tried < MAX_TASKS_TRIED && at < 24 * 8 && at + 8 <= call->length; at += 8) {
        struct job task;
        uint64_t address, kind;
        memcpy(&address, call->bytes + at, sizeof address);
        bool is_heap = address % 16 == 0 && address > PAGE_SIZE && (address < copy->inner.start || address >= copy->high);
        tried += is_heap;
        if (is_heap && stackcap_read_live(&unwinder->reader, address, &task, sizeof task) == (ssize_t)sizeof task &&
            stackcap_read_live(&unwinder->reader, task.metadata, &kind, sizeof kind) == (ssize_t)sizeof kind &&
            kind == TASK_METADATA_KIND)
            return task.last_allocation;
    }
    return 0;
}

void stackcap_async_glimpse(stackcap_unwinder *unwinder, uint64_t context_register) {
    struct stackcap_async *async = &unwinder->async;
    struct stackcap_part call = find_job_call(unwinder);
    uint64_t context, frame_pointer;
    async->glimpsed_at = call.start;
    if (call.length == 0)
        return;  // a thread without an asynchronous function only pays for the search
    memcpy(&context, call.bytes - BYTES_BEFORE_CALL, sizeof context);  // of a function with a frame pointer
    memcpy(&frame_pointer, call.bytes - 8, sizeof frame_pointer);
    glimpse_at(unwinder, context, &async->glimpses[0]);
    async->glimpses[1].length = async->glimpses[2].length = 0;
    // The runtime keeps a frame pointer. If its value is saved above its call, that is a frame record.
    if (stackcap_plain_frame_pointer(frame_pointer) - call.start < FRAME_RECORD_REACH && async->glimpses[0].length > 0)
        return;
    glimpse_at(unwinder, context_register, &async->glimpses[1]);
    uint64_t allocation = likely_allocation(unwinder, &call);
    glimpse_at(unwinder, allocation != 0 ? allocation + 16 : 0, &async->glimpses[2]);
}

void stackcap_async_recheck_glimpses(stackcap_unwinder *unwinder) {
    uint8_t now[STACKCAP_GLIMPSE_BYTES];
    for (int i = 0; unwinder->async.glimpsed_at != 0 && i < STACKCAP_GLIMPSES; i++) {
        struct stackcap_glimpse *glimpse = &unwinder->async.glimpses[i];
        if (glimpse->length > 0 && (stackcap_read_live(&unwinder->reader, glimpse->start, now, glimpse->length) != (ssize_t)glimpse->length ||
                                    memcmp(now, glimpse->bytes, glimpse->length) != 0))
            glimpse->length = 0;
    }
}

/// The context as it was when the stack was copied. \returns false if it was not read then.
static bool from_glimpse(const struct stackcap_async *async, uint64_t at, struct context *context) {
    for (int i = 0; async->glimpsed_at != 0 && i < STACKCAP_GLIMPSES; i++) {
        const struct stackcap_glimpse *glimpse = &async->glimpses[i];
        if (glimpse->length < sizeof *context || at < glimpse->start || at - glimpse->start > glimpse->length - sizeof *context)
            continue;
        memcpy(context, glimpse->bytes + (at - glimpse->start), sizeof *context);
        return true;
    }
    return false;
}

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

// Tasks

static bool read_task(stackcap_unwinder *unwinder, uint64_t address, struct job *task) {
    uint64_t kind;
    return address % 16 == 0 && address != 0 && stackcap_peek(unwinder, address, task, sizeof *task) &&
           (task->flags & JOB_KIND_MASK) == 0 && task->metadata % 8 == 0 &&
           stackcap_peek(unwinder, task->metadata, &kind, sizeof kind) && kind == TASK_METADATA_KIND;
}

static bool is_running(stackcap_unwinder *unwinder, uint64_t address) {
    struct job task;
    return read_task(unwinder, address, &task) && (task.status & STATUS_RUNNING);
}

/// A task's first context follows it in the same allocation. \returns the running task, or 0.
static uint64_t task_before(stackcap_unwinder *unwinder, uint64_t context) {
    uint64_t start = context & ~UINT64_C(15);
    for (uint64_t at = start - 16; start - at <= SEARCH_BYTES && at > SEARCH_BYTES; at -= 16)
        if (is_running(unwinder, at))
            return at;
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

static bool read_context(stackcap_unwinder *unwinder, uint64_t at, struct context *context, bool *is_exact) {
    if (at % 8 != 0 || at == 0)
        return false;
    if (from_glimpse(&unwinder->async, at, context))
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
static bool follow(stackcap_unwinder *unwinder, uint64_t first, struct chain *chain) {
    *chain = (struct chain){.first = first, .is_exact = true};
    struct context context;
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
static bool belongs(stackcap_unwinder *unwinder, struct chain *chain, uint64_t task) {
    if (chain->is_cut)
        chain->task = task;
    else if (task == 0)
        chain->task = task_before(unwinder, chain->root);
    else if (chain->root > task && chain->root - task < MAX_TASK_BYTES)
        chain->task = task;
    return chain->task != 0;
}

static bool try_context(stackcap_unwinder *unwinder, uint64_t context, uint64_t task, struct chain *chain) {
    return context != 0 && follow(unwinder, context, chain) && belongs(unwinder, chain, task);
}

/// The word in which functions with a frame pointer keep their context.
static bool try_frame(stackcap_unwinder *unwinder, const struct stackcap_async_site *site, uint64_t task, struct chain *chain) {
    uint64_t slot = site->registers.frame_pointer - 8, context;
    bool is_inside = slot >= site->low && slot < site->high;
    return is_inside && stackcap_peek(unwinder, slot, &context, sizeof context) && try_context(unwinder, context, task, chain);
}

/// The context is in no known register and in no fixed place, but it is the task's last allocation, or near it.
static bool try_allocations(stackcap_unwinder *unwinder, uint64_t address, struct chain *chain) {
    struct job task;
    if (!read_task(unwinder, address, &task))
        return false;
    uint64_t allocation = task.last_allocation;
    for (int count = 0; allocation != 0 && count < MAX_ALLOCATIONS; count++) {
        if (try_context(unwinder, allocation + 16, address, chain))
            return true;
        if (!stackcap_peek(unwinder, allocation, &allocation, sizeof allocation))
            return false;
    }
    return false;
}

static bool try_site(stackcap_unwinder *unwinder, const struct stackcap_async_site *site, struct chain *chain) {
    struct job job;
    if (site->job != 0 && !read_task(unwinder, site->job, &job))
        return false;  // it was another kind of call
    if (try_frame(unwinder, site, site->job, chain) || try_context(unwinder, site->registers.context, site->job, chain))
        return true;
    uint64_t task = site->job ? site->job : task_on_stack(unwinder, site);
    if (task == 0)
        return false;
    if (try_allocations(unwinder, task, chain))
        return true;
    *chain = (struct chain){.task = task};
    return true;
}

static stackcap_async_end end_of(const struct chain *chain, uint32_t flags) {
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

static void describe(stackcap_unwinder *unwinder, const struct stackcap_async_site *site, const struct chain *chain) {
    struct stackcap_async *async = &unwinder->async;
    struct job task;
    if (!read_task(unwinder, chain->task, &task))
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
    struct chain chain;
    for (size_t i = 0; i < async->site_count; i++)
        if (try_site(unwinder, &async->sites[i], &chain)) {
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
    struct context glimpsed;
    if (async->is_exact)
        return true;
    // A task's memory is reused for its next contexts, at the same addresses, by functions called from the same place: what
    // shows that a chain is still the same must have been read immediately after the stack.
    if (!from_glimpse(async, async->first, &glimpsed))
        return false;
    for (size_t i = 0; i < async->callers.count; i++) {
        struct context context;
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
