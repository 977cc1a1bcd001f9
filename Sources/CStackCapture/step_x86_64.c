/// The step where there is no unwind table: by the function's own instructions, up to its return. If these give no result, by
/// the nearest word on the stack that a call of this code has left, and last by the frame pointer. That may belong to the
/// caller, or to an outer function, and then callers are skipped. Behind a signal handler by the registers that the kernel has stored.
#if defined(__x86_64__)

#include "walk.h"

#include <stddef.h>
#include <string.h>

enum { SEARCH_BYTES = 4096 };

/// Whether the frame's address is the current instruction, and not a return address after a call.
static bool is_at_instruction(stackcap_unwinder *unwinder) {
    size_t count = unwinder->frame_count;
    bool is_asleep = unwinder->registers_are_guessed && unwinder->sleeper.seen.state == STACKCAP_STATE_CALLING;
    return count == 1 ? !is_asleep : stackcap_is_signal_return(unwinder, stackcap_frame_at(unwinder, count - 2)->address);
}

/// Whether the word may be a return address left by a call, or by the kernel for a signal handler.
static bool is_return_address(stackcap_unwinder *unwinder, uint64_t word) {
    return stackcap_call_before(unwinder, word, 0) != CALL_NONE || stackcap_is_signal_return(unwinder, word);
}

/// Whether instructions may be at an address to which a frame returns. A row may be wrong: that of the C library's `__mpn_mul_1` does
/// not know the function's pushes, and takes a saved register for the return address. Data interpreted as instructions, most often a
/// part of the stack, may lead to any result.
static bool may_be_code(stackcap_unwinder *unwinder, uint64_t address) {
    uint8_t byte;
    return is_return_address(unwinder, address) && stackcap_copy_read(unwinder, address, &byte, sizeof byte) == PLACE_ELSEWHERE;
}

static bool place_in(stackcap_unwinder *unwinder, const struct stackcap_registers *registers, struct stackcap_sum place,
                     uint64_t *address) {
    uint64_t base = registers->value[place.base];
    *address = base + (uint64_t)place.offset;
    unwinder->met_unknown |= stackcap_is_unknown(base);
    return !stackcap_is_unknown(base) && *address >= registers->value[REGISTER_STACK_POINTER] - RED_ZONE;
}

/// Sets the registers to the state after the return.
static void return_to(struct stackcap_registers *registers, uint64_t return_address, uint64_t at) {
    registers->value[REGISTER_PROGRAM_COUNTER] = return_address - 1;  // libunwind has no way to accept a return address
    registers->value[REGISTER_STACK_POINTER] = at + RETURN_ADDRESS_BYTES;
}

/// The caller's registers reached by a path, and the position of the return address.
struct arrival {
    struct stackcap_registers registers;
    uint64_t at;
};

/// \returns false if the path leads to no return address.
static bool follow_way(stackcap_unwinder *unwinder, const struct stackcap_registers *registers, const struct stackcap_way_out *way,
                       struct arrival *arrival) {
    uint64_t return_address;
    arrival->registers = *registers;
    if (!place_in(unwinder, registers, way->return_address, &arrival->at) ||
        !stackcap_read_word(unwinder, arrival->at, &return_address) || !is_return_address(unwinder, return_address))
        return false;
    for (int i = 0; i < KEPT_REGISTERS; i++) {
        uint64_t saved;
        if (way->saved[i].base != 0 &&
            !(place_in(unwinder, registers, way->saved[i], &saved) &&
              stackcap_read_word(unwinder, saved, &arrival->registers.value[stackcap_kept_registers[i]])))
            return false;
    }
    return_to(&arrival->registers, return_address, arrival->at);
    return true;
}

/// Uses the nearest of the functions that may start before the address and that leads to a return address; \param confirmed if
/// not 0, the required position of the return address.
static bool follow_start(stackcap_unwinder *unwinder, const struct stackcap_registers *registers, uint64_t address, bool is_return,
                         uint64_t confirmed, struct arrival *arrival) {
    struct stackcap_way_out way;
    uint64_t starts[STACKCAP_STARTS];
    size_t count = stackcap_find_starts(unwinder, is_return ? address - 1 : address, starts);
    for (size_t i = 0; i < STACKCAP_STARTS && i < count; i++)
        if (stackcap_find_way_in(unwinder, starts[(count - 1 - i) % STACKCAP_STARTS], address, &way) &&
            follow_way(unwinder, registers, &way, arrival) && (confirmed == 0 || confirmed == arrival->at))
            return true;
    return false;
}

/// Sets the registers to the caller's by interpreting the function's instructions. \returns false if these give no result.
static bool go_way_out(stackcap_unwinder *unwinder, uint64_t address, bool is_return, struct stackcap_registers *registers) {
    struct stackcap_way_out way;
    struct arrival out, in;
    bool leads_out = stackcap_find_way_out(unwinder, address, is_return, &way) && follow_way(unwinder, registers, &way, &out);
    bool is_sure = leads_out && way.is_sure;
    bool leads_in = !is_sure && follow_start(unwinder, registers, address, is_return, leads_out ? out.at : 0, &in);
    if (!leads_out && !leads_in)
        return false;
    *registers = leads_out ? out.registers : in.registers;
    unwinder->found_behind_gap = is_sure || (leads_out && leads_in) ? STACKCAP_FOUND_CODE : STACKCAP_FOUND_SCAN;
    return true;
}

/// The target of the call before a return address, if it is direct; otherwise 0.
static uint64_t called_by(stackcap_unwinder *unwinder, uint64_t return_address) {
    uint8_t code[5];
    int32_t distance;
    stackcap_peek_code(unwinder, return_address - sizeof code, code, sizeof code);
    memcpy(&distance, code + 1, sizeof distance);
    return code[0] == 0xe8 ? return_address + (uint64_t)(int64_t)distance : 0;
}

/// Sets the registers by the nearest word on the stack that follows a call of code between the last table's function and the
/// address. It cannot distinguish words left by earlier calls from that of this call.
static bool search_stack(stackcap_unwinder *unwinder, uint64_t address, struct stackcap_registers *registers) {
    uint64_t low, high, start = registers->value[REGISTER_STACK_POINTER];
    if (!stackcap_gap_around(unwinder, address, &low, &high))
        return false;
    for (uint64_t at = start; at < start + SEARCH_BYTES; at += 8) {
        uint64_t word;
        if (!stackcap_in_copy(unwinder, at, sizeof word) || !stackcap_peek(unwinder, at, &word, sizeof word))
            return false;
        uint64_t target = stackcap_in_module(unwinder, word) ? called_by(unwinder, word) : 0;
        if (target == 0 || target < low || target > address)
            continue;
        return_to(registers, word, at);
        unwinder->found_behind_gap = STACKCAP_FOUND_SCAN;
        return true;
    }
    return false;
}

/// Sets the registers to the caller's by the frame pointer. libunwind does this too, but computes the stack pointer from the
/// callee's: a caller whose row needs it would be unwound wrongly. \returns false if the frame pointer does not point to a word
/// left by a call.
static bool follow_frame_pointer(stackcap_unwinder *unwinder, struct stackcap_registers *registers) {
    uint64_t *value = registers->value, record[2], frame_pointer = value[REGISTER_FRAME_POINTER];
    unwinder->met_unknown |= stackcap_is_unknown(frame_pointer);
    if (stackcap_is_unknown(frame_pointer) || frame_pointer % 8 != 0 || frame_pointer < value[REGISTER_STACK_POINTER] ||
        !stackcap_peek(unwinder, frame_pointer, record, sizeof record) || !is_return_address(unwinder, record[1]))
        return false;
    value[REGISTER_FRAME_POINTER] = record[0];
    return_to(registers, record[1], frame_pointer + 8);
    unwinder->found_behind_gap = STACKCAP_FOUND_FRAME_POINTER;
    return true;
}

static void read_cursor(unw_cursor_t *cursor, struct stackcap_registers *registers) {
    stackcap_registers_unknown(registers, 0, 0);
    for (int i = 0; i < REGISTER_COUNT; i++) {
        unw_word_t value;
        if (unw_get_reg(cursor, i, &value) == 0)
            registers->value[i] = value;
    }
}

/// Continues from our own registers. \param bias to be added to the cursor's address: see return_to.
static int resume(stackcap_unwinder *unwinder, unw_cursor_t *cursor, const struct stackcap_registers *registers, int bias) {
    unwinder->resumed = *registers;
    unwinder->current = &unwinder->resumed;
    unwinder->address_bias = bias;
    return unw_init_remote(cursor, unwinder->space, unwinder) >= 0 ? 1 : -UNW_ENOINFO;
}

/// For the return from a signal handler, if it has no table, as in programs with musl: the kernel's copy of the interrupted code's
/// registers is at the stack pointer, for rt_sigreturn(2). libunwind 1.6 only knows it by a table. \returns as below.
static int resume_at_interrupted(stackcap_unwinder *unwinder, unw_cursor_t *cursor) {
    struct stackcap_registers registers;
    unw_proc_info_t procedure;
    ucontext_t context;
    uint64_t address = stackcap_frame_at(unwinder, unwinder->frame_count - 1)->address;
    if (!stackcap_is_signal_return(unwinder, address))
        return 0;
    // A table's entry for it covers the byte before it, too, which may also belong to another function.
    if (stackcap_find_procedure(unwinder, address - 1, &procedure, 0) == 0 && procedure.end_ip > address)
        return 0;
    read_cursor(cursor, &registers);
    uint64_t stored = registers.value[REGISTER_STACK_POINTER] + offsetof(ucontext_t, uc_mcontext.gregs);
    if (!stackcap_peek(unwinder, stored, context.uc_mcontext.gregs, sizeof context.uc_mcontext.gregs))
        return 0;
    stackcap_registers_from_context(&registers, &context);
    return resume(unwinder, cursor, &registers, 0);
}

/// For code without a table. \returns as stackcap_step does; 0 for code that has one.
static int resume_at_caller(stackcap_unwinder *unwinder, unw_cursor_t *cursor) {
    struct stackcap_registers registers;
    uint64_t address = stackcap_frame_at(unwinder, unwinder->frame_count - 1)->address;
    bool is_return = !is_at_instruction(unwinder);
    if (stackcap_function_start(unwinder, is_return ? address - 1 : address) != 0)
        return 0;
    read_cursor(cursor, &registers);
    // The thread's own position is code, and that of a sleeping thread does not follow a call.
    bool is_code = unwinder->frame_count == 1 || !is_return || may_be_code(unwinder, address);
    bool is_readable = is_code && !stackcap_is_distrusted(unwinder, is_return ? address - 1 : address);
    bool found = (is_readable && go_way_out(unwinder, address, is_return, &registers)) ||
                 search_stack(unwinder, is_return ? address - 1 : address, &registers) ||
                 follow_frame_pointer(unwinder, &registers);
    return found ? resume(unwinder, cursor, &registers, 1) : -UNW_ENOINFO;
}

int stackcap_step(stackcap_unwinder *unwinder, unw_cursor_t *cursor) {
    int resumed = resume_at_interrupted(unwinder, cursor);
    if (resumed != 0) {
        unwinder->lacked_table = false;  // as sure as by a table
        return resumed;
    }
    resumed = resume_at_caller(unwinder, cursor);
    if (resumed != 0) {
        unwinder->lacked_table = true;
        return resumed;
    }
    unwinder->lacked_table = unwinder->left_copy = false;
    unwinder->address_bias = 0;
    return unw_step(cursor);
}

#endif
