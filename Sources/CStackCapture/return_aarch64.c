#if defined(__aarch64__)

/// A system call's wrapper often keeps its return address in x30 alone, and /proc does not show x30. What can be known all the same:
/// the caller of the wrapper has a frame record, whose return address follows a call of that caller. Somewhere in the caller
/// stands the call of the wrapper. A guess is good if the caller's own unwind row, from there, leads to that very return address.
/// Where the caller was called by address we do not know which function it is, and leave the frame open.
#include "code_aarch64.h"

enum {
    SEARCH_BYTES = 16 * 1024,
    MAX_READ = 64 * 1024,  ///< Instructions looked at in one search.
};

struct search {
    uint64_t wrapper;
    uint64_t caller;          ///< The function that is searched for calls of the wrapper.
    uint64_t return_address;  ///< Where that function returns to.
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

static bool leads_back(const stackcap_unwinder *unwinder, const struct search *search) {
    return unwinder->frame_count > 2 && unwinder->frames[2].address == search->return_address &&
           unwinder->end != STACKCAP_END_BAD_FRAME;
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

/// Whether there may be a frame record here, of a function that was called by name: fills in caller and return address.
static bool read_record(stackcap_unwinder *unwinder, uint64_t at, struct search *search) {
    uint64_t record[2];
    uint32_t code;
    if (!stackcap_peek(unwinder, at, record, sizeof record))
        return false;
    search->return_address = stackcap_plain_return_address(record[1]);
    uint64_t call = search->return_address - 4;
    if (search->return_address % 4 != 0 || !stackcap_in_module(unwinder, call) ||
        !stackcap_peek(unwinder, call, &code, sizeof code) || !is_call(code))
        return false;
    search->caller = stackcap_resolve_stub(unwinder, branch_target(call, code));
    return true;
}

static bool try_records(stackcap_unwinder *unwinder, struct search *search, bool through_jumps) {
    uint64_t from = unwinder->registers.value[REGISTER_STACK_POINTER];
    for (uint64_t at = from; at < from + SEARCH_BYTES && stackcap_in_copy(unwinder, at, 16); at += 8) {
        if (!read_record(unwinder, at, search))
            continue;
        unwinder->registers.value[REGISTER_FRAME_POINTER] = at;
        if (try_calls(unwinder, search, through_jumps))
            return true;
    }
    return false;
}

bool stackcap_guess_return_address(stackcap_unwinder *unwinder) {
    struct stackcap_registers unknown = unwinder->registers;
    struct search search = {.wrapper = stackcap_function_start(unwinder, unwinder->frames[0].address), .budget = MAX_READ};
    bool found = search.wrapper != 0 &&
                 (try_records(unwinder, &search, false) || try_records(unwinder, &search, true));
    if (found)
        unwinder->frames[1].found = STACKCAP_FOUND_SCAN;
    else
        unwinder->registers = unknown;
    if (!found)
        stackcap_unwind_from_registers(unwinder);
    return found;
}

#endif
