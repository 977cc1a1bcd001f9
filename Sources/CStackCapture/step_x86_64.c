/// The step where there is no unwind table. libunwind goes by the frame pointer there; in a function's first and last instructions
/// that is still, or again, its caller's, and leads past the caller.
#if defined(__x86_64__)

#include "internal.h"

#include <string.h>

/// How far the return address lies above the stack pointer, −1 unless the instructions around tell.
static int return_address_distance(uint8_t before, const uint8_t *next) {
    static const uint8_t start[4] = {0x55, 0x48, 0x89, 0xe5};  // push %rbp; mov %rsp, %rbp
    static const uint8_t landing_pad[4] = {0xf3, 0x0f, 0x1e, 0xfa};  // endbr64
    enum { PUSH_FRAME_POINTER = 0x55, POP_FRAME_POINTER = 0x5d, RETURN = 0xc3, JUMP = 0xe9, JUMP_SHORT = 0xeb };
    bool at_start = memcmp(next, start, sizeof start) == 0 || memcmp(next, landing_pad, sizeof landing_pad) == 0;
    if (at_start || next[0] == RETURN)
        return 0;
    if (before == PUSH_FRAME_POINTER && memcmp(next, start + 1, sizeof start - 1) == 0)
        return 8;
    bool jumps = next[0] == JUMP || next[0] == JUMP_SHORT || (next[0] == 0xff && (next[1] >> 3 & 7) == 4);
    return before == POP_FRAME_POINTER && jumps ? 0 : -1;  // a tail call
}

/// Takes the registers to the caller. \returns false where the instructions do not show the way.
static bool leave(stackcap_unwinder *unwinder, struct stackcap_registers *registers) {
    uint8_t code[5];
    uint64_t saved[2], *value = registers->value;
    stackcap_peek_code(unwinder, value[REGISTER_PROGRAM_COUNTER] - 1, code, sizeof code);
    int distance = return_address_distance(code[0], code + 1);
    size_t length = distance < 0 ? 0 : (size_t)distance + sizeof saved[0];
    if (length == 0 || !stackcap_peek(unwinder, value[REGISTER_STACK_POINTER], saved, length))
        return false;
    uint64_t return_address = saved[distance / 8];
    if (stackcap_call_before(unwinder, return_address, 0) == CALL_NONE)
        return false;
    if (distance > 0)
        value[REGISTER_FRAME_POINTER] = saved[0];
    value[REGISTER_PROGRAM_COUNTER] = return_address - 1;  // in the call: libunwind cannot be told that it is a return address
    value[REGISTER_STACK_POINTER] += length;
    return true;
}

/// Whether the cursor stands where a signal struck, with all registers known: not at a return address.
static bool is_interrupted(stackcap_unwinder *unwinder) {
    size_t count = unwinder->frame_count;
    return count == 1 ? !unwinder->registers_are_guessed
                      : stackcap_is_signal_return(unwinder, stackcap_frame_at(unwinder, count - 2)->address);
}

/// Takes the registers to the caller by the frame pointer. libunwind does so too, but counts the stack pointer from the callee's: a caller
/// whose row needs it would be left by a wrong one. \returns false where it does not point to what a call has left.
static bool follow_frame_pointer(stackcap_unwinder *unwinder, struct stackcap_registers *registers) {
    uint64_t *value = registers->value, record[2], frame_pointer = value[REGISTER_FRAME_POINTER];
    if (stackcap_is_unknown(frame_pointer) || frame_pointer % 8 != 0 || frame_pointer < value[REGISTER_STACK_POINTER] ||
        !stackcap_peek(unwinder, frame_pointer, record, sizeof record) || stackcap_call_before(unwinder, record[1], 0) == CALL_NONE)
        return false;
    value[REGISTER_FRAME_POINTER] = record[0];
    value[REGISTER_PROGRAM_COUNTER] = record[1] - 1;  // as above
    value[REGISTER_STACK_POINTER] = frame_pointer + sizeof record;
    return true;
}

/// Where the frame's code has no table.
static bool resume_at_caller(stackcap_unwinder *unwinder, unw_cursor_t *cursor) {
    struct stackcap_registers registers;
    uint64_t address = stackcap_frame_at(unwinder, unwinder->frame_count - 1)->address;
    bool was_interrupted = is_interrupted(unwinder);
    if (stackcap_function_start(unwinder, was_interrupted ? address : address - 1) != 0)
        return false;
    stackcap_registers_unknown(&registers, 0, 0);
    for (int i = 0; i < REGISTER_COUNT; i++) {
        unw_word_t value;
        if (unw_get_reg(cursor, i, &value) == 0)
            registers.value[i] = value;
    }
    if (!(was_interrupted && leave(unwinder, &registers)) && !follow_frame_pointer(unwinder, &registers))
        return false;
    unwinder->resumed = registers;
    unwinder->current = &unwinder->resumed;
    unwinder->address_bias = 1;
    return unw_init_remote(cursor, unwinder->space, unwinder) >= 0;
}

int stackcap_step(stackcap_unwinder *unwinder, unw_cursor_t *cursor) {
    if (resume_at_caller(unwinder, cursor)) {
        unwinder->lacked_table = true;
        return 1;
    }
    unwinder->lacked_table = unwinder->left_copy = false;
    unwinder->address_bias = 0;
    return unw_step(cursor);
}

#endif
