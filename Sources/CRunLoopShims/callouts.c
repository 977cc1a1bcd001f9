#include "CRunLoopShims.h"

// In C, because the Swift compiler clones and merges functions under new names, and a frame's name must last. Never inlined, and
// with work of its own left after the call, so that the call is no tail call and no linker folds two of them into one.
#define CALLOUT(name)                                                                     \
    __attribute__((noinline)) void name(run_loop_callout call, void *context) {           \
        call(context);                                                                    \
        __asm__ volatile("nop /* " #name " */" ::: "memory");                             \
    }

CALLOUT(event_run_loop_is_calling_out_to_an_observer)
CALLOUT(event_run_loop_is_calling_out_to_a_block)
CALLOUT(event_run_loop_is_calling_out_to_a_source0)
CALLOUT(event_run_loop_is_calling_out_to_a_descriptor_source)
CALLOUT(event_run_loop_is_calling_out_to_a_timer)
CALLOUT(event_run_loop_is_calling_out_to_a_perform_request)
CALLOUT(event_run_loop_is_running_a_task)
CALLOUT(event_run_loop_is_calling_out_to_a_message_handler)
