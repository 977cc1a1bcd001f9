#include "CRunLoopShims.h"

#define CALLOUTS(USE)                                         \
    USE(event_run_loop_is_calling_out_to_an_observer)         \
    USE(event_run_loop_is_calling_out_to_a_block)             \
    USE(event_run_loop_is_calling_out_to_a_source0)           \
    USE(event_run_loop_is_calling_out_to_a_descriptor_source) \
    USE(event_run_loop_is_calling_out_to_a_timer)             \
    USE(event_run_loop_is_calling_out_to_a_perform_request)   \
    USE(event_run_loop_is_running_a_task)                     \
    USE(event_run_loop_is_calling_out_to_a_message_handler)

// In C, because the Swift compiler clones and merges functions under new names, and a frame's name must be stable. Never
// inlined, and with work left after the call, so that the call is not a tail call and no linker folds two of them into one.
#define CALLOUT(name)                                                                     \
    __attribute__((noinline)) void name(run_loop_callout call, void *context) {           \
        call(context);                                                                    \
        __asm__ volatile("nop /* " #name " */" ::: "memory");                             \
    }

CALLOUTS(CALLOUT)

const char *run_loop_callout_name(uintptr_t function) {
#define NAMED(name) {(uintptr_t)&name, #name},
    const struct {
        uintptr_t start;
        const char *name;
    } all[] = {
        CALLOUTS(NAMED)
        NAMED(event_run_loop_is_servicing_the_main_dispatch_queue)
    };
#undef NAMED
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].start == function)
            return all[i].name;
    return NULL;
}
