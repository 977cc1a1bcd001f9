#if defined(__aarch64__)

/// libunwind 1.6 has no frame pointers on aarch64. For code without an unwind table, or with one that it cannot interpret (rows
/// with signed return addresses), it uses the last value of the return address register, which shows a frame twice. So we
/// follow the frame record {caller's frame pointer, return address} there.
#include "code_aarch64.h"

enum { SEARCH_CODE_BYTES = 64 * 1024 };

/// Whether the last step only used the return address register: its save location then becomes that of the program counter.
static bool made_do(unw_cursor_t *cursor, const unw_save_loc_t *before) {
    unw_save_loc_t link, counter;
    if (unw_get_save_loc(cursor, UNW_AARCH64_X30, &link) != 0 || unw_get_save_loc(cursor, UNW_AARCH64_PC, &counter) != 0)
        return true;
    bool moved = counter.type == before->type && counter.u.addr == before->u.addr;
    return link.type == UNW_SLT_NONE && moved;
}

static bool read_record(stackcap_unwinder *unwinder, uint64_t frame_pointer, uint64_t *caller, uint64_t *return_address) {
    uint64_t record[2];
    if (stackcap_is_unknown(frame_pointer)) {
        unwinder->met_unknown = true;
        return false;
    }
    if (frame_pointer % 8 != 0 || !stackcap_peek(unwinder, frame_pointer, record, sizeof record) ||
        !stackcap_in_copy(unwinder, frame_pointer, sizeof record))
        return false;
    *caller = stackcap_plain_frame_pointer(record[0]);
    *return_address = stackcap_plain_return_address(record[1]);
    return true;
}

/// Continues from our own registers. libunwind has no way to accept the address as a return address, so it gets the address
/// before it, which is the one it would look up.
static int resume(stackcap_unwinder *unwinder, unw_cursor_t *cursor) {
    unwinder->current = &unwinder->resumed;
    unwinder->address_bias = 1;
    int result = unw_init_remote(cursor, unwinder->space, unwinder);
    return result < 0 ? result : 1;
}

/// The frame record may be at either end of its function's frame, so it does not give the caller's stack pointer. But the
/// caller's own record is where its frame pointer points, and the row that saves it there gives the stack pointer.
static void settle_stack_pointer(stackcap_unwinder *unwinder, uint64_t frame_pointer) {
    unw_cursor_t trial;
    unw_save_loc_t before, record;
    bool lacked_table = unwinder->lacked_table;
    bool stepped = resume(unwinder, &trial) > 0 && unw_get_save_loc(&trial, UNW_AARCH64_X30, &before) == 0 &&
                   unw_step(&trial) > 0 && !made_do(&trial, &before);
    unwinder->lacked_table = lacked_table;
    if (!stepped || unw_get_save_loc(&trial, UNW_AARCH64_X29, &record) != 0 || record.type != UNW_SLT_MEMORY)
        return;
    uint64_t settled = unwinder->resumed.value[REGISTER_STACK_POINTER] + (frame_pointer - record.u.addr);
    if (stackcap_in_copy(unwinder, settled, 8) && settled <= frame_pointer)
        unwinder->resumed.value[REGISTER_STACK_POINTER] = settled;
}

static int step_by_record(stackcap_unwinder *unwinder, unw_cursor_t *cursor, uint64_t frame_pointer) {
    uint64_t caller, return_address;
    if (!read_record(unwinder, frame_pointer, &caller, &return_address))
        return -UNW_EBADFRAME;
    if (return_address == 0)
        return 0;
    if (stackcap_call_before(unwinder, return_address, 0) == CALL_NONE || (caller != 0 && caller <= frame_pointer))
        return -UNW_EBADFRAME;
    stackcap_registers_unknown(&unwinder->resumed, return_address - 1, frame_pointer + 16);
    unwinder->resumed.value[REGISTER_FRAME_POINTER] = caller;
    settle_stack_pointer(unwinder, caller);
    return resume(unwinder, cursor);
}

static bool is_at_gap(const stackcap_unwinder *unwinder, unw_cursor_t *cursor) {
    unw_word_t address = 0;
    return unwinder->gap_record != 0 && unw_get_reg(cursor, UNW_REG_IP, &address) == 0 && stackcap_is_unknown(address);
}

/// Whether no instruction between the two addresses sets up the frame pointer.
static bool sets_no_frame_up(stackcap_unwinder *unwinder, uint64_t from, uint64_t to) {
    uint32_t code;
    if (from > to || to - from > SEARCH_CODE_BYTES)
        return false;
    for (uint64_t at = from; at < to; at += 4)
        if (!stackcap_peek(unwinder, at, &code, sizeof code) || is_frame_setup(code))
            return false;
    return true;
}

/// The same for a function whose start no call gives: searches backwards to the end of another function.
static bool sets_no_frame_up_before(stackcap_unwinder *unwinder, uint64_t address) {
    uint32_t code;
    for (uint64_t at = address - 4; address - at < SEARCH_CODE_BYTES; at -= 4) {
        if (!stackcap_peek(unwinder, at, &code, sizeof code) || is_return(code))
            return true;
        if (is_frame_setup(code))
            return false;
    }
    return false;
}

/// Whether the function at the top of the stack, which has no usable table, has no frame of its own, or not yet: then its
/// return address is in the link register. Once it has called another function, the link register points into the function
/// itself.
static bool has_no_frame(stackcap_unwinder *unwinder, uint64_t link, uint64_t frame_pointer) {
    uint64_t caller, return_address, address = unwinder->frames[0].address;
    uint32_t code;
    if (unwinder->frame_count != 1 || stackcap_is_distrusted(unwinder, address) || stackcap_is_unknown(link) ||
        stackcap_call_before(unwinder, link, 0) == CALL_NONE)
        return false;
    if (read_record(unwinder, frame_pointer, &caller, &return_address) && return_address == link)
        return false;
    uint64_t calling = stackcap_function_start(unwinder, link - 1);
    if (calling != 0)
        return calling != stackcap_function_start(unwinder, address);
    if (stackcap_peek(unwinder, link - 4, &code, sizeof code) && is_call(code))
        return sets_no_frame_up(unwinder, stackcap_resolve_stub(unwinder, branch_target(link - 4, code)), address);
    return sets_no_frame_up_before(unwinder, address);
}

static int step_by_link(stackcap_unwinder *unwinder, unw_cursor_t *cursor, uint64_t link, uint64_t frame_pointer) {
    stackcap_registers_unknown(&unwinder->resumed, link - 1, unwinder->registers.value[REGISTER_STACK_POINTER]);
    unwinder->resumed.value[REGISTER_FRAME_POINTER] = frame_pointer;
    settle_stack_pointer(unwinder, frame_pointer);
    return resume(unwinder, cursor);
}

int stackcap_step(stackcap_unwinder *unwinder, unw_cursor_t *cursor) {
    unw_word_t frame_pointer = 0;
    unw_save_loc_t link_place;
    if (unw_get_save_loc(cursor, UNW_AARCH64_X30, &link_place) != 0 ||
        unw_get_reg(cursor, UNW_AARCH64_X29, &frame_pointer) != 0)
        return -UNW_EBADFRAME;
    int result = unw_step(cursor);
    if (result >= 0 && !made_do(cursor, &link_place)) {
        unwinder->address_bias = 0;
        return is_at_gap(unwinder, cursor) ? step_by_record(unwinder, cursor, unwinder->gap_record) : result;
    }
    uint64_t link = unwinder->registers.value[REGISTER_RETURN_ADDRESS];  // libunwind's name for x30 is the program counter's
    bool links = has_no_frame(unwinder, link, frame_pointer);
    unwinder->lacked_table = true;
    return links ? step_by_link(unwinder, cursor, link, frame_pointer) : step_by_record(unwinder, cursor, frame_pointer);
}

#endif
