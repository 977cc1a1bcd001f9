/// The walk over a copied stack, from frame to frame, from the registers on.
#include "walk.h"

/// Why the walk ends after the last frame, from unw_step's result and what the accessors recorded.
static stackcap_end judge_end(const stackcap_unwinder *unwinder, int step) {
    if (unwinder->is_late)
        return STACKCAP_END_TIME_LIMIT;
    if (unwinder->left_copy)
        return STACKCAP_END_COPY_LIMIT;
    if (unwinder->lacked_table)
        return STACKCAP_END_NO_TABLE;
    return step == 0 ? STACKCAP_END_COMPLETE : STACKCAP_END_BAD_FRAME;
}

stackcap_frame *stackcap_frame_at(const stackcap_unwinder *unwinder, size_t index) {
    return &unwinder->frames[index < HALF_OF_FRAMES ? index : HALF_OF_FRAMES + index % HALF_OF_FRAMES];
}

static bool was_scanned(const stackcap_unwinder *unwinder, size_t frame) {
    for (size_t i = 0; i < unwinder->scanned_count; i++)
        if (unwinder->scanned[i] == frame)
            return true;
    return false;
}

/// A hash of the function's callee-saved registers. If two captures agree on the function's position and differ in this, it has
/// run in between. \returns 0 if it is not known: the thread slept, or the callee has no unwind table that says what it saved.
static uint64_t state_of(const stackcap_unwinder *unwinder, struct stackcap_walk *walk, stackcap_found found) {
    const stackcap_frame *callee = unwinder->frame_count ? stackcap_frame_at(unwinder, unwinder->frame_count - 1) : NULL;
    bool is_by_table = found == STACKCAP_FOUND_REGISTER || found == STACKCAP_FOUND_TABLE;
    if (unwinder->registers_are_guessed || !is_by_table || (callee && callee->state == 0))
        return 0;
    uint64_t state = walk->stack_pointer;
    for (int i = 0; i < STEADY_REGISTERS; i++) {
        unw_word_t value = walk->registers.value[stackcap_steady_registers[i]];
        if (!walk->in_registers && unw_get_reg(&walk->cursor, stackcap_steady_registers[i], &value) != 0)
            return 0;
        state = (state ^ value) * 0x9e3779b97f4a7c15;
        state ^= state >> 29;
    }
    return state | 1;
}

static void add_frame(stackcap_unwinder *unwinder, struct stackcap_walk *walk) {
    // Not a return address: the thread is there, or was there when a signal came, or handles an exception there.
    bool is_position = walk->lookup == walk->address;
    stackcap_found found = unwinder->lacked_table ? unwinder->found_behind_gap
                           : is_position          ? STACKCAP_FOUND_REGISTER
                                                  : STACKCAP_FOUND_TABLE;
    if (unwinder->frame_count == 1 && unwinder->return_found)
        found = unwinder->return_found;
    if (was_scanned(unwinder, unwinder->frame_count))
        found = STACKCAP_FOUND_SCAN;
    unwinder->trail = (unwinder->trail ^ walk->address) * 0x9e3779b97f4a7c15 ^ walk->stack_pointer;
    stackcap_frame frame = {walk->address, walk->stack_pointer, state_of(unwinder, walk, found), found};
    *stackcap_frame_at(unwinder, unwinder->frame_count++) = frame;
}

/// A caller's frame is further out, or on the thread's own stack. Some functions have no frame of their own.
static bool makes_sense(const stackcap_unwinder *unwinder, const struct stackcap_walk *walk) {
    size_t count = unwinder->frame_count;
    if (count == 0)
        return true;
    const stackcap_frame *last = stackcap_frame_at(unwinder, count - 1);
    return walk->stack_pointer > last->stack_pointer ||
           (walk->stack_pointer == last->stack_pointer && (count == 1 || walk->address != last->address)) ||
           stackcap_leads_home(unwinder, last->stack_pointer, walk->stack_pointer);
}

/// A step without a table may have searched for long: the time is checked after each of these, and occasionally after the
/// others. The first frame is taken in any case: the time may have passed in a search between two guesses.
static bool is_late(const stackcap_unwinder *unwinder) {
    bool is_checked = unwinder->lacked_table || unwinder->frame_count % 256 == 255;
    return unwinder->frame_count > 0 && (unwinder->is_late || (is_checked && stackcap_own_time_ns() > unwinder->walk_until_ns));
}

/// An address that is not executable is not a return address. Checked only for another process, whose maps are read: generated
/// code can be anywhere.
static bool is_code(stackcap_unwinder *unwinder, uint64_t address) {
    return !unwinder->modules || stackcap_modules_is_code(unwinder, address);
}

/// Records the walk's current frame. \returns false, with the reason in unwinder->end, if the stack ends here.
static bool take_frame(stackcap_unwinder *unwinder, struct stackcap_walk *walk) {
    if (walk->address == 0) {
        unwinder->end = judge_end(unwinder, 0);
        unwinder->ended_at_zero = true;
    } else if (stackcap_is_unknown(walk->address)) {
        unwinder->met_unknown = true;
        unwinder->end = STACKCAP_END_BAD_FRAME;
    } else if (!makes_sense(unwinder, walk) || !is_code(unwinder, walk->address))
        unwinder->end = STACKCAP_END_BAD_FRAME;
    else if (stackcap_is_off_stack(unwinder, walk->stack_pointer))
        unwinder->end = STACKCAP_END_COPY_LIMIT;
    else if (is_late(unwinder))
        unwinder->end = STACKCAP_END_TIME_LIMIT;
    else {
        add_frame(unwinder, walk);
        return true;
    }
    return false;
}

uint64_t stackcap_walk_register(struct stackcap_walk *walk, int number) {
    unw_word_t value = walk->registers.value[number];
    if (!walk->in_registers && unw_get_reg(&walk->cursor, number, &value) != 0)
        return 0;
    return stackcap_is_unknown(value) ? 0 : value;
}

void stackcap_walk_read_registers(struct stackcap_walk *walk, struct stackcap_registers *registers) {
    if (walk->in_registers) {
        *registers = walk->registers;
        return;
    }
    // Registers that the callee has not changed are read by libunwind from the walk's registers: these may be the very ones
    // written here.
    struct stackcap_registers found;
    stackcap_registers_unknown(&found, walk->address, walk->stack_pointer);
    for (int i = 0; i < KEPT_REGISTERS; i++) {
        unw_word_t value;
        if (unw_get_reg(&walk->cursor, stackcap_kept_registers[i], &value) == 0)
            found.value[stackcap_kept_registers[i]] = value;
    }
    *registers = found;
}

static int enter_cursor(stackcap_unwinder *unwinder, struct stackcap_walk *walk) {
    if (walk->in_cursor)
        return 0;
    // libunwind treats its first address as the thread's current position, not as a return address.
    walk->registers.value[REGISTER_PROGRAM_COUNTER] = walk->lookup;
    unwinder->current = &walk->registers;
    int result = unw_init_remote(&walk->cursor, unwinder->space, unwinder);
    walk->in_cursor = result == 0;
    return result;
}

/// \returns as unw_step does: > 0 for a caller, 0 at the first frame, < 0 if it cannot continue.
static int step_by_libunwind(stackcap_unwinder *unwinder, struct stackcap_walk *walk) {
    struct stackcap_lesson lesson;
    int result = enter_cursor(unwinder, walk);
    if (result < 0)
        return result;
    bool caller_was_interrupted = stackcap_is_signal_return(unwinder, walk->address);
    stackcap_row_watch(unwinder, walk, &lesson);
    unwinder->lacked_table = unwinder->left_copy = false;
    result = stackcap_step(unwinder, &walk->cursor);
    if (result <= 0)
        return result;
    unw_get_reg(&walk->cursor, UNW_REG_IP, &walk->address);
    unw_get_reg(&walk->cursor, UNW_REG_SP, &walk->stack_pointer);
    walk->address += (uint64_t)unwinder->address_bias;
    walk->in_registers = false;
    walk->lookup = caller_was_interrupted ? walk->address : walk->address - 1;
    if (lesson.row && !caller_was_interrupted && !unwinder->lacked_table)
        stackcap_row_learn(unwinder, walk, &lesson);
    return result;
}

/// Code that resumes an exception jumps to the handler: the return address that it leaves does not follow a call, and is looked
/// up unchanged. The byte before it may belong to another function, or to a frame that is gone.
static void notice_jump(stackcap_unwinder *unwinder, struct stackcap_walk *walk) {
    bool is_return = walk->lookup != walk->address && !stackcap_is_unknown(walk->address) && walk->address != 0;
    if (unwinder->frame_count != 1 || !is_return || stackcap_call_before(unwinder, walk->address, 0) != CALL_NONE)
        return;
    if (!walk->in_registers)
        stackcap_walk_read_registers(walk, &walk->registers);
    walk->in_registers = true;
    walk->in_cursor = false;
    walk->lookup = walk->address;
}

static struct stackcap_walk begin(stackcap_unwinder *unwinder) {
    unwinder->frame_count = 0;
    unwinder->met_unknown = false;
    unwinder->lacked_table = false;
    unwinder->left_copy = false;
    unwinder->read_middle = false;
    unwinder->ended_at_zero = false;
    unwinder->address_bias = 0;
    unwinder->found_behind_gap = STACKCAP_FOUND_FRAME_POINTER;
    unwinder->trail = 0;
    uint64_t address = unwinder->registers.value[REGISTER_PROGRAM_COUNTER];
    return (struct stackcap_walk){
        .address = address,
        .stack_pointer = unwinder->registers.value[REGISTER_STACK_POINTER],
        .lookup = address,
        .registers = unwinder->registers,
        .in_registers = true,
    };
}

bool stackcap_unwind_from_registers(stackcap_unwinder *unwinder) {
    struct stackcap_walk walk = begin(unwinder);
    unwinder->current = &walk.registers;
    int step = 1;
    struct stackcap_async_registers callee;
    stackcap_async_begin(unwinder);
    while (take_frame(unwinder, &walk)) {
        if (unwinder->frame_count > 1)
            stackcap_async_notice(unwinder, &callee, &walk);
        callee.frame_pointer = stackcap_walk_register(&walk, REGISTER_FRAME_POINTER);
        callee.context = stackcap_walk_register(&walk, REGISTER_ASYNC_CONTEXT);
        unwinder->lacked_table = false;
        unwinder->left_copy = false;
        step = stackcap_row_step(unwinder, &walk) ? 1 : step_by_libunwind(unwinder, &walk);
        if (step <= 0) {
            unwinder->end = judge_end(unwinder, step);
            break;
        }
        notice_jump(unwinder, &walk);
    }
    unwinder->current = &unwinder->registers;
    unwinder->unwinder_error = step < 0 ? step : 0;
    return unwinder->frame_count > 0;
}
