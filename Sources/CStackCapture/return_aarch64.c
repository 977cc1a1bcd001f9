#if defined(__aarch64__)

/// A system call's wrapper often keeps its return address in x30 alone, and /proc does not show x30. What can still be
/// determined: the wrapper's caller has saved its own return address, which follows a call of that caller. Somewhere in the
/// caller is the call of the wrapper. A guess is correct if the caller's own unwind row, from there, leads to that very return
/// address. If the caller was called indirectly, its function is unknown: its frame is left out, and the next is marked as
/// found by the frame pointer.
#include "code_aarch64.h"

enum {
    SEARCH_BYTES = 16 * 1024,
    SEARCH_CODE_BYTES = 4 * 1024,  ///< For a function whose end no table gives.
    MAX_READ = 64 * 1024,  ///< The number of instructions read in one search.
};

struct search {
    uint64_t wrapper;
    uint64_t caller;          ///< The function that is searched for calls of the wrapper; 0 if it was called indirectly.
    uint64_t return_address;  ///< The return address of that function.
    uint64_t record;          ///< Its frame record, if it has one: the return address is the record's second word.
    size_t budget;
};

/// The function around the address, by the unwind table. \returns false if none covers it.
static bool find_function(stackcap_unwinder *unwinder, uint64_t address, unw_proc_info_t *function) {
    return stackcap_find_procedure(unwinder, address, function, 0) == 0 && function->end_ip > function->start_ip;
}

static bool read_code(stackcap_unwinder *unwinder, struct search *search, uint64_t address, uint32_t *code) {
    if (search->budget == 0)
        return false;
    search->budget--;
    return stackcap_peek(unwinder, address, code, sizeof *code);
}

/// Whether a call of `target` can result in the wrapper returning to its caller: it is the wrapper, or it ends with a jump to
/// it.
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

/// Whether the walk went through the caller to its return address.
static bool leads_back(const stackcap_unwinder *unwinder, const struct search *search) {
    return unwinder->frame_count > 2 && unwinder->frames[2].address == search->return_address &&
           unwinder->frames[2].stack_pointer > search->record + 8;
}

/// Tries a call in the caller. A row based on the frame pointer would fit any record, so the caller's first
/// instructions must agree with the position of the record. A caller that sets up no frame pointer has no record of its own.
static bool try_place(stackcap_unwinder *unwinder, const struct search *search, uint64_t place) {
    uint64_t *frame_pointer = &unwinder->registers.value[REGISTER_FRAME_POINTER];
    uint64_t distance, unknown = *frame_pointer;
    bool has_frame_pointer = stackcap_frame_pointer_distance(unwinder, search->caller, &distance);
    if (has_frame_pointer)
        *frame_pointer = search->record;
    unwinder->registers.value[REGISTER_RETURN_ADDRESS] = place;
    stackcap_unwind_from_registers(unwinder);
    if (leads_back(unwinder, search) &&
        (!has_frame_pointer || unwinder->frames[1].stack_pointer + distance == search->record))
        return true;
    *frame_pointer = unknown;
    return false;
}

/// Tries the caller's calls in order. \returns whether one of them fits; the unwinder then has the resulting frames.
static bool try_calls(stackcap_unwinder *unwinder, struct search *search, bool through_jumps) {
    unw_proc_info_t function, other;
    uint32_t code;
    if (search->caller == 0)
        return false;
    bool has_table = find_function(unwinder, search->caller, &function);
    if (!has_table)
        function.start_ip = search->caller, function.end_ip = search->caller + SEARCH_CODE_BYTES;
    for (uint64_t at = function.start_ip; at < function.end_ip && read_code(unwinder, search, at, &code); at += 4) {
        if (!is_call(code))
            continue;
        if (!has_table && find_function(unwinder, at, &other))
            return false;  // Another function has begun.
        uint64_t target = branch_target(at, code);
        bool fits = through_jumps ? ends_in_wrapper(unwinder, search, target)
                                  : stackcap_resolve_stub(unwinder, target) == search->wrapper;
        if (fits && try_place(unwinder, search, at + 4))
            return true;
    }
    return false;
}

/// Whether a return address may be saved after `at`. Fills in the known data of the function that would return there.
static bool read_record(stackcap_unwinder *unwinder, uint64_t at, struct search *search) {
    uint64_t saved;
    uint32_t code;
    if (!stackcap_peek(unwinder, at + 8, &saved, sizeof saved))
        return false;
    search->record = at;
    search->return_address = stackcap_plain_return_address(saved);
    uint64_t call = search->return_address - 4;
    if (!stackcap_in_module(unwinder, call) || stackcap_call_before(unwinder, call + 4, 0) == CALL_NONE ||
        !stackcap_peek(unwinder, call, &code, sizeof code))
        return false;
    search->caller = is_call(code) ? stackcap_resolve_stub(unwinder, branch_target(call, code)) : 0;
    return true;
}

/// Leaves the caller out, and continues at its return address.
static bool try_beyond_caller(stackcap_unwinder *unwinder, const struct search *search) {
    unwinder->gap_record = search->record;
    stackcap_unwind_from_registers(unwinder);
    if (unwinder->frame_count > 1 && unwinder->end == STACKCAP_END_COMPLETE)
        return true;
    unwinder->gap_record = 0;
    return false;
}

enum way { BY_CALL, BY_JUMP, BEYOND, WAYS };

static bool try_records(stackcap_unwinder *unwinder, struct search *search, enum way way) {
    uint64_t from = unwinder->registers.value[REGISTER_STACK_POINTER];
    for (uint64_t at = from - 8; at < from + SEARCH_BYTES && stackcap_in_copy(unwinder, at + 8, 8); at += 8) {
        if (!read_record(unwinder, at, search))
            continue;
        if (way == BEYOND ? try_beyond_caller(unwinder, search) : try_calls(unwinder, search, way == BY_JUMP))
            return true;
    }
    return false;
}

void stackcap_guess_return_address(stackcap_unwinder *unwinder) {
    const struct stackcap_registers unknown = unwinder->registers;
    struct search search = {.wrapper = stackcap_function_start(unwinder, unwinder->frames[0].address), .budget = MAX_READ};
    for (enum way way = BY_CALL; search.wrapper != 0 && way < WAYS; way++) {
        unwinder->return_found = way == BEYOND ? STACKCAP_FOUND_FRAME_POINTER : STACKCAP_FOUND_SCAN;
        if (try_records(unwinder, &search, way))
            return;
        unwinder->registers = unknown;
    }
    unwinder->return_found = 0;
    stackcap_unwind_from_registers(unwinder);
}

#endif
