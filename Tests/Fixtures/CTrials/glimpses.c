/// Whether what was read of the heap beside a stack (glimpse.c) is given up exactly if it has changed since.
#include "CTrials.h"
#include "walk.h"

#include <string.h>

static uint8_t memory[STACKCAP_GLIMPSE_BYTES];

/// \returns whether the glimpse of the memory is still there after this byte of it has changed; beyond its end, none changes.
static bool holds_after_change(stackcap_unwinder *unwinder, size_t at) {
    struct stackcap_glimpse *glimpse = &unwinder->async.glimpses[STACKCAP_GLIMPSES - 1];
    glimpse->start = (uintptr_t)memory;
    glimpse->length = sizeof memory;
    memcpy(glimpse->bytes, memory, sizeof memory);
    if (at < sizeof memory)
        memory[at]++;
    unwinder->async.glimpsed_at = (uintptr_t)&memory;  // anything but 0
    stackcap_async_recheck_glimpses(unwinder);
    return glimpse->length == sizeof memory;
}

size_t trial_wrong_glimpses(void) {
    static stackcap_unwinder unwinder = {.reader = {.file = -1}};
    size_t wrong = stackcap_reader_prepare(&unwinder.reader, false) == 0 ? 0 : 1;
    for (size_t at = 0; at < sizeof memory; at++)
        wrong += holds_after_change(&unwinder, at);
    wrong += !holds_after_change(&unwinder, sizeof memory);
    stackcap_reader_finish(&unwinder.reader);
    return wrong;
}
