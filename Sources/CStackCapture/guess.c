/// A thread asleep in the kernel shows its program counter and stack pointer, not the registers that its callers still hold
/// there. Most unwind rows do not need them. Where one needs the frame pointer, the function's frame record {caller's frame
/// pointer, return address} lies somewhere above: the record is recognised by the call in front of its return address.
#include "internal.h"

#include <string.h>

enum {
    SEARCH_BYTES = 16 * 1024,  ///< No frame that sleeps is larger in practice.
    MAX_CANDIDATES = 12,
    MAX_ROUNDS = 4,
};

struct candidates {
    uint64_t frame_pointer[MAX_CANDIDATES];
    size_t count;
};

/// What the call in front of a frame record's return address says, if there may be a record here.
static int class_of_record(stackcap_unwinder *unwinder, uint64_t at, uint64_t function) {
    uint64_t record[2];
    if (at % 16 != 0 || !stackcap_in_copy(unwinder, at, sizeof record))
        return CALL_NONE;
    memcpy(record, unwinder->copy.bytes + (at - unwinder->copy.start), sizeof record);
    if (!stackcap_in_module(unwinder, record[1]))
        return CALL_NONE;
    return stackcap_call_before(unwinder, record[1], function);
}

static void add(struct candidates *found, uint64_t frame_pointer) {
    if (found->count < MAX_CANDIDATES)
        found->frame_pointer[found->count++] = frame_pointer;
}

/// Adds the records with a call of the given class, innermost first.
static void collect(stackcap_unwinder *unwinder, uint64_t from, uint64_t function, int wanted, struct candidates *found) {
    for (uint64_t at = (from + 15) & ~UINT64_C(15); at < from + SEARCH_BYTES && stackcap_in_copy(unwinder, at, 16); at += 16)
        if (class_of_record(unwinder, at, function) == wanted)
            add(found, at);
}

/// All plausible frame pointers for the frame the unwinder is stuck in. First the one that the function's own first instructions
/// lead to: below it, calls that have returned left their records behind, and these look alive. Then those whose return address
/// follows a call of this very function, then of an unknown one, then of another one, which may have jumped here.
static struct candidates candidates_for(stackcap_unwinder *unwinder, stackcap_frame stuck, bool is_innermost) {
    struct candidates found = {.count = 0};
    uint64_t function = stackcap_function_start(unwinder, is_innermost ? stuck.address : stuck.address - 1);
    uint64_t distance;
    if (stackcap_frame_pointer_distance(unwinder, function, &distance) &&
        class_of_record(unwinder, stuck.stack_pointer + distance, function) != CALL_NONE)
        add(&found, stuck.stack_pointer + distance);
    for (int wanted = CALL_MATCHES; wanted > CALL_NONE; wanted--)
        collect(unwinder, stuck.stack_pointer, function, wanted, &found);
    return found;
}

static bool is_settled(const stackcap_unwinder *unwinder) {
    return !unwinder->met_unknown || unwinder->end == STACKCAP_END_COMPLETE || unwinder->end == STACKCAP_END_TIME_LIMIT;
}

/// Tries the candidates until one leads to the thread's first frame; failing that, takes the one that leads furthest.
/// \returns whether any candidate leads beyond the stuck frame.
static bool settle(stackcap_unwinder *unwinder, size_t stuck_count) {
    bool is_innermost = stuck_count == 1;
    struct candidates found = candidates_for(unwinder, *stackcap_frame_at(unwinder, stuck_count - 1), is_innermost);
    uint64_t *frame_pointer = &unwinder->registers.value[REGISTER_FRAME_POINTER];
    uint64_t unknown = *frame_pointer, best = unknown;
    size_t best_count = stuck_count;
    for (size_t i = 0; i < found.count; i++) {
        *frame_pointer = found.frame_pointer[i];
        stackcap_unwind_from_registers(unwinder);
        if (is_settled(unwinder) && unwinder->end == STACKCAP_END_COMPLETE)
            return true;
        if (unwinder->frame_count > best_count) {
            best_count = unwinder->frame_count;
            best = *frame_pointer;
        }
    }
    *frame_pointer = best;
    stackcap_unwind_from_registers(unwinder);
    return best != unknown;
}

bool stackcap_unwind_guessing(stackcap_unwinder *unwinder) {
    bool found = stackcap_unwind_from_registers(unwinder);
    for (int round = 0; found && round < MAX_ROUNDS && !is_settled(unwinder); round++) {
        size_t stuck = unwinder->frame_count;
        if (!settle(unwinder, stuck))
            break;
        if (unwinder->frame_count > stuck && stuck < STACKCAP_MAX_FRAMES / 2)
            stackcap_frame_at(unwinder, stuck)->found = STACKCAP_FOUND_SCAN;
    }
    return found;
}
