#if defined(__aarch64__)

/// A system call's wrapper often keeps its return address in x30 alone, and /proc does not show x30. What can be known all the same:
/// the caller of the wrapper has a frame record, whose return address follows a call of that caller. Somewhere in the caller
/// stands the call of the wrapper. A guess is good if the caller's own unwind row, from there, leads to that very return address.
/// Where the caller was called by address we do not know which function it is: its frame is left out, and the next is marked as
/// found by the frame pointer.
#include "code_aarch64.h"

enum {
    SEARCH_BYTES = 16 * 1024,
    MAX_READ = 64 * 1024,  ///< Instructions looked at in one search.
};

struct search {
    uint64_t wrapper;
    uint64_t caller;          ///< The function that is searched for calls of the wrapper.
    uint64_t frame_pointer;   ///< Where its frame record is.
    uint64_t return_address;  ///< What the record says: where that function returns to.
    size_t budget;
};

/// The function around the address, by the unwind table. \returns false if none says.
static bool find_function(stackcap_unwinder *unwinder, uint64_t address, unw_proc_info_t *function) {
    return stackcap_find_procedure(unwinder, address, function, 0) == 0 && function->end_ip > function->start_ip;
}

static bool read_code(stackcap_unwinder *unwinder, struct search *search, uint64_t address, uint32_t *code) {
    if (search->budget == 0)
        return false;
    search->budget--;
    return stackcap_peek(unwinder, address, code, sizeof *code);
}

/// Whether a call of `target` can leave the wrapper to return to its caller: it is the wrapper, or it jumps there at its end.
static bool ends_in_wrapper(stackcap_unwinder *unwinder, struct search *search, uint64_t target) {
    target = stackcap_resolve_stub(unwinder, target);
    if (target == search->wrapper)
        return true;
    unw_proc_info_t function;
    uint32_t code;
    if (!find_function(unwinder, target, &function))
        return false;
    for (uint64_t at = target; at < function.end_ip && read_code(unwinder, search, at, &code); at += 4)
        if (is_jump(code) && stackcap_resolve_stub(unwinder, branch_target(at, code)) == search->wrapper)
            return true;
    return false;
}

/// Whether the walk came through the caller to where its record says. Its first instructions must agree with where the record lies:
/// a row that counts from the frame pointer would fit any record.
static bool leads_back(stackcap_unwinder *unwinder, const struct search *search) {
    uint64_t distance;
    if (unwinder->frame_count < 3 || unwinder->frames[2].address != search->return_address ||
        unwinder->end == STACKCAP_END_BAD_FRAME)
        return false;
    return !stackcap_frame_pointer_distance(unwinder, search->caller, &distance) ||
           unwinder->frames[1].stack_pointer + distance == search->frame_pointer;
}

/// Tries the calls of the caller in turn. \returns whether one of them fits; the unwinder then stands where it leads.
static bool try_calls(stackcap_unwinder *unwinder, struct search *search, bool through_jumps) {
    unw_proc_info_t function;
    uint32_t code;
    if (!find_function(unwinder, search->caller, &function))
        return false;
    for (uint64_t at = function.start_ip; at < function.end_ip && read_code(unwinder, search, at, &code); at += 4) {
        if (!is_call(code))
            continue;
        uint64_t target = branch_target(at, code);
        if (through_jumps ? !ends_in_wrapper(unwinder, search, target)
                          : stackcap_resolve_stub(unwinder, target) != search->wrapper)
            continue;
        unwinder->registers.value[REGISTER_RETURN_ADDRESS] = at + 4;
        stackcap_unwind_from_registers(unwinder);
        if (leads_back(unwinder, search))
            return true;
    }
    return false;
}

/// Whether there may be a frame record here. Fills in what it says, and the function that was called by name, or 0.
static bool read_record(stackcap_unwinder *unwinder, uint64_t at, struct search *search) {
    uint64_t record[2];
    uint32_t code;
    if (!stackcap_peek(unwinder, at, record, sizeof record))
        return false;
    search->frame_pointer = at;
    search->return_address = stackcap_plain_return_address(record[1]);
    uint64_t call = search->return_address - 4;
    if (!stackcap_in_module(unwinder, call) || stackcap_call_before(unwinder, call + 4, 0) == CALL_NONE ||
        !stackcap_peek(unwinder, call, &code, sizeof code))
        return false;
    search->caller = is_call(code) ? stackcap_resolve_stub(unwinder, branch_target(call, code)) : 0;
    return true;
}

static bool try_caller(stackcap_unwinder *unwinder, struct search *search, bool through_jumps) {
    unwinder->registers.value[REGISTER_FRAME_POINTER] = search->frame_pointer;
    return search->caller != 0 && try_calls(unwinder, search, through_jumps);
}

/// Leaves the caller out: goes on where it returns to.
static bool try_beyond_caller(stackcap_unwinder *unwinder, struct search *search) {
    if (search->caller != 0)
        return false;
    unwinder->gap_record = search->frame_pointer;
    stackcap_unwind_from_registers(unwinder);
    if (unwinder->end == STACKCAP_END_COMPLETE)
        return true;
    unwinder->gap_record = 0;
    return false;
}

enum way { BY_CALL, BY_JUMP, BEYOND };

static bool try_records(stackcap_unwinder *unwinder, struct search *search, enum way way) {
    uint64_t from = unwinder->registers.value[REGISTER_STACK_POINTER];
    for (uint64_t at = from; at < from + SEARCH_BYTES && stackcap_in_copy(unwinder, at, 16); at += 8) {
        if (!read_record(unwinder, at, search))
            continue;
        if (way == BEYOND ? try_beyond_caller(unwinder, search) : try_caller(unwinder, search, way == BY_JUMP))
            return true;
    }
    return false;
}

bool stackcap_guess_return_address(stackcap_unwinder *unwinder) {
    const struct stackcap_registers unknown = unwinder->registers;
    struct search search = {.wrapper = stackcap_function_start(unwinder, unwinder->frames[0].address), .budget = MAX_READ};
    for (enum way way = BY_CALL; search.wrapper != 0 && way <= BEYOND; way++) {
        if (try_records(unwinder, &search, way)) {
            unwinder->frames[1].found = way == BEYOND ? STACKCAP_FOUND_FRAME_POINTER : STACKCAP_FOUND_SCAN;
            return true;
        }
        unwinder->registers = unknown;
    }
    stackcap_unwind_from_registers(unwinder);
    return false;
}

#endif
