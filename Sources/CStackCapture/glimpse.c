/// Reads the innermost contexts of a thread immediately after its stack: when the stack has been unwound, they may be gone. This
/// requires knowing where on the stack a job's call is, which the first capture learns for the next (async.c).
///
/// stackcap_async_glimpse runs in the signal handler, or while the thread is stopped: it uses only system calls and the copy.
#include "async_task.h"

#include <string.h>

enum {
    MAX_TASKS_TRIED = 8,
    TASK_SEARCH_BYTES = 192,          ///< Behind the job's call: where the runtime has left the task's address.
    FRAME_RECORD_REACH = 512,
    GLIMPSE_STACK_BYTES = 32 * 1024,  ///< How much of the stack is searched while the thread is held.
    BYTES_BEFORE_CALL = 16,           ///< In the asynchronous frame: its context, and its caller's frame pointer.
};

static void glimpse_at(stackcap_unwinder *unwinder, uint64_t context, struct stackcap_glimpse *glimpse) {
    uint64_t end = context + sizeof(struct stackcap_context);
    glimpse->length = 0;
    if (context % 8 != 0 || context < STACKCAP_GLIMPSE_BYTES)
        return;
    // A task's contexts are adjacent. The first of them may be at the start of a mapping.
    static const uint16_t sizes[] = {STACKCAP_GLIMPSE_BYTES, 64, sizeof(struct stackcap_context)};
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
    for (uint64_t at = 8; tried < MAX_TASKS_TRIED && at < TASK_SEARCH_BYTES && at + 8 <= call->length; at += 8) {
        struct stackcap_job task;
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
    glimpse_at(unwinder, allocation != 0 ? allocation + ALLOCATION_HEADER : 0, &async->glimpses[2]);
}

void stackcap_async_recheck_glimpses(stackcap_unwinder *unwinder) {
    uint8_t now[STACKCAP_GLIMPSE_BYTES];
    for (int i = 0; unwinder->async.glimpsed_at != 0 && i < STACKCAP_GLIMPSES; i++) {
        struct stackcap_glimpse *glimpse = &unwinder->async.glimpses[i];
        ssize_t wanted = (ssize_t)glimpse->length;
        if (wanted > 0 && (stackcap_read_live(&unwinder->reader, glimpse->start, now, glimpse->length) != wanted ||
                           memcmp(now, glimpse->bytes, glimpse->length) != 0))
            glimpse->length = 0;
    }
}

bool stackcap_glimpse_context(const struct stackcap_async *async, uint64_t at, struct stackcap_context *context) {
    for (int i = 0; async->glimpsed_at != 0 && i < STACKCAP_GLIMPSES; i++) {
        const struct stackcap_glimpse *glimpse = &async->glimpses[i];
        if (glimpse->length < sizeof *context || at < glimpse->start || at - glimpse->start > glimpse->length - sizeof *context)
            continue;
        memcpy(context, glimpse->bytes + (at - glimpse->start), sizeof *context);
        return true;
    }
    return false;
}
