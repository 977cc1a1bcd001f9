/// For a thread asleep in the kernel, the program counter and stack pointer are known, but not the registers that its callers
/// still hold there. Most unwind rows do not need them. If one needs the frame pointer, the function's frame record {caller's
/// frame pointer, return address} is somewhere above: the record is recognised by the call before its return address.
#include "walk.h"

enum {
    SEARCH_BYTES = 16 * 1024,  ///< No sleeping frame is larger in practice.
    MAX_CANDIDATES = 12,
};

struct candidates {
    uint64_t frame_pointer[MAX_CANDIDATES];
    size_t count, tried;
    uint64_t best;      ///< The one whose walk led furthest; the unknown register's value as long as none led beyond the stuck frame.
    size_t best_count;  ///< The number of frames of that walk.
};

/// Whether a search for the record of code in a module, or of code generated at run time, may use this one. The caller of
/// generated code is likely to be generated as well; the frame pointer in its record must then lead to another record.
static bool may_be_found(stackcap_unwinder *unwinder, uint64_t at, const uint64_t record[2], bool is_made) {
    return stackcap_in_module(unwinder, stackcap_plain_return_address(record[1])) ||
           (is_made && record[0] > at && stackcap_in_copy(unwinder, record[0], 2 * sizeof *record) &&
            !stackcap_in_copy(unwinder, record[1], 1));
}

/// The class of the call before a frame record's return address, if there may be a record here. If the record was not found by
/// a search, but by a function's own code, the caller need not be in a module: it may have been generated.
static int class_of_record(stackcap_unwinder *unwinder, uint64_t at, uint64_t function, bool is_searched, bool is_made) {
    uint64_t record[2];
    if (at % 16 != 0 || !stackcap_in_copy(unwinder, at, sizeof record))
        return CALL_NONE;
    stackcap_copy_read(unwinder, at, record, sizeof record);
    uint64_t return_address = stackcap_plain_return_address(record[1]);
    if (is_searched && !may_be_found(unwinder, at, record, is_made))
        return CALL_NONE;
    // No call leads to a signal handler; it may be any function.
    if (stackcap_is_signal_return(unwinder, return_address))
        return CALL_INDIRECT;
    return stackcap_call_before(unwinder, return_address, function);
}

static void add(struct candidates *found, uint64_t frame_pointer) {
    if (found->count < MAX_CANDIDATES)
        found->frame_pointer[found->count++] = frame_pointer;
}

/// The start of generated code is unknown: the call's target is no evidence, so the innermost record is the best.
static bool is_wanted(int class, int wanted, bool is_made) {
    return is_made ? class != CALL_NONE && wanted == CALL_INDIRECT : class == wanted;
}

/// Adds the records with a call of the given class, innermost first.
static void collect(stackcap_unwinder *unwinder, const stackcap_frame *stuck, uint64_t function, int wanted,
                    struct candidates *found) {
    uint64_t from = stuck->stack_pointer;
    bool is_made = !stackcap_in_module(unwinder, stuck->address);
    for (uint64_t at = (from + 15) & ~UINT64_C(15); at < from + SEARCH_BYTES && stackcap_in_copy(unwinder, at, 16); at += 16)
        if (is_wanted(class_of_record(unwinder, at, function, true, is_made), wanted, is_made))
            add(found, at);
}

/// The frame pointer computed from the function's own first instructions; it is tried before all search results.
enum { BY_PROLOGUE = CALL_MATCHES + 1 };

/// Adds plausible frame pointers for the frame at which the unwinder is stuck. First the one computed from the function's
/// prologue: below it, calls that have returned left their records, which look valid. Then those whose return address follows a
/// call of this very function, then of an unknown one, then of another one, which may have jumped here. Most threads need none
/// of these searches.
static void add_candidates(stackcap_unwinder *unwinder, const stackcap_frame *stuck, uint64_t function, int class,
                           struct candidates *found) {
    uint64_t distance;
    if (class != BY_PROLOGUE)
        collect(unwinder, stuck, function, class, found);
    else if (stackcap_frame_pointer_distance(unwinder, function, &distance) &&
             class_of_record(unwinder, stuck->stack_pointer + distance, function, false, false) != CALL_NONE)
        add(found, stuck->stack_pointer + distance);
}

static bool is_settled(const stackcap_unwinder *unwinder) {
    return !unwinder->met_unknown || unwinder->end == STACKCAP_END_COMPLETE || unwinder->end == STACKCAP_END_TIME_LIMIT;
}

/// Walks with each candidate that was not tried yet. \returns whether the last walk is the result: it leads to the thread's first frame,
/// or no time is left.
static bool try_candidates(stackcap_unwinder *unwinder, struct candidates *found) {
    for (; found->tried < found->count; found->tried++) {
        unwinder->registers.value[REGISTER_FRAME_POINTER] = found->frame_pointer[found->tried];
        stackcap_unwind_from_registers(unwinder);
        bool is_whole = unwinder->end == STACKCAP_END_COMPLETE && !unwinder->ended_at_zero;
        if (is_whole || unwinder->end == STACKCAP_END_TIME_LIMIT)
            return true;
        if (unwinder->frame_count > found->best_count) {
            found->best_count = unwinder->frame_count;
            found->best = found->frame_pointer[found->tried];
        }
    }
    return false;
}

/// Tries candidates until one leads to the thread's first frame; if none does, uses the one that leads furthest.
/// \returns whether any candidate leads beyond the stuck frame.
static bool settle(stackcap_unwinder *unwinder, size_t stuck_count) {
    stackcap_frame stuck = *stackcap_frame_at(unwinder, stuck_count - 1);
    uint64_t function = stackcap_function_start(unwinder, stuck_count == 1 ? stuck.address : stuck.address - 1);
    uint64_t *frame_pointer = &unwinder->registers.value[REGISTER_FRAME_POINTER], unknown = *frame_pointer;
    struct candidates found = {.best = unknown, .best_count = stuck_count};
    unwinder->scanned[unwinder->scanned_count++] = stuck_count;  // the frame after the stuck one
    for (int class = BY_PROLOGUE; class > CALL_NONE; class--) {
        add_candidates(unwinder, &stuck, function, class, &found);
        if (try_candidates(unwinder, &found))
            return true;
    }
    *frame_pointer = found.best;
    unwinder->scanned_count -= found.best == unknown ? 1 : 0;
    stackcap_unwind_from_registers(unwinder);
    return found.best != unknown;
}

bool stackcap_unwind_guessing(stackcap_unwinder *unwinder) {
    bool found = stackcap_unwind_from_registers(unwinder);
    if (found && !is_settled(unwinder) && unwinder->frame_count == 1)
        stackcap_guess_return_address(unwinder);
    while (found && unwinder->scanned_count < MAX_SCANS && !is_settled(unwinder))
        if (!settle(unwinder, unwinder->frame_count))
            break;
    unwinder->gap_record = 0;
    unwinder->return_found = 0;
    return found;
}
