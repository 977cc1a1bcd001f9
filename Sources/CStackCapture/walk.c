/// libunwind's remote interface over the copy: its accessors, and the walk from frame to frame.
#include "session.h"
#include "walk.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unwind.h>

/// Keeps C++ exceptions with libgcc's unwinder. libunwind-x86_64.so (or -aarch64) needs libunwind.so.8, which defines _Unwind_*
/// as well, and the dynamic linker uses the first definition that it finds, breadth first. Linkers drop a library that nothing
/// refers to; this reference makes the program need libgcc_s.so.1 itself, one level above libunwind.so.8.
__attribute__((used, retain)) static _Unwind_Reason_Code (*const exceptions_stay_with_libgcc)(struct _Unwind_Exception *) =
    _Unwind_RaiseException;

static int find_procedure(unw_addr_space_t space, unw_word_t address, unw_proc_info_t *procedure, int needs_info,
                          void *argument) {
    (void)space;
    return stackcap_find_procedure(argument, address, procedure, needs_info);
}

bool stackcap_read_word(stackcap_unwinder *unwinder, uint64_t address, uint64_t *value) {
    *value = 0;
    if (stackcap_is_unknown(address) || stackcap_is_unknown(address - 0x100000)) {
        if (unwinder->first_unknown == 0)
            unwinder->first_unknown = address;
        unwinder->met_unknown = true;
        return false;
    }
    if (!stackcap_peek(unwinder, address, value, sizeof *value))
        return false;
    uint64_t plain = stackcap_plain_frame_pointer(*value);
    if (plain >= unwinder->copy.inner.start && plain < unwinder->copy.high)
        *value = plain;
    else if (stackcap_in_copy(unwinder, address, sizeof *value) || stackcap_in_outer_copy(unwinder, address, sizeof *value))
        *value = stackcap_plain_return_address(*value);
    return true;
}

/// CPU time instead of elapsed time: a thread that waits for a processor makes no progress.
static uint64_t own_time_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/// A damaged row may be as long as the memory around it, and save all registers once for each of its bytes.
bool stackcap_may_read(stackcap_unwinder *unwinder) {
    enum { MOST_READS = 1 << 18, READS_BETWEEN_LOOKS = 1 << 12 };  // the first for one row: no compiler writes such a long one
    if (++unwinder->reads_in_all % READS_BETWEEN_LOOKS == 0)
        unwinder->is_late |= own_time_ns() > unwinder->walk_until_ns;
    return !unwinder->is_late && unwinder->reads++ < MOST_READS;
}

static int access_memory(unw_addr_space_t space, unw_word_t address, unw_word_t *value, int write, void *argument) {
    (void)space;
    if (write || !stackcap_may_read(argument))
        return -UNW_EINVAL;
    return stackcap_row_read(argument, address, value) || stackcap_read_word(argument, address, value) ? 0 : -UNW_EINVAL;
}

static int access_register(unw_addr_space_t space, unw_regnum_t number, unw_word_t *value, int write, void *argument) {
    (void)space;
    const stackcap_unwinder *unwinder = argument;
    if (write || number < 0 || number >= REGISTER_COUNT)
        return -UNW_EBADREG;
    *value = unwinder->current->value[number];
    return 0;
}

static void put_info(unw_addr_space_t space, unw_proc_info_t *procedure, void *argument) {
    (void)space, (void)procedure, (void)argument;
}

static int no_dynamic_info(unw_addr_space_t space, unw_word_t *address, void *argument) {
    (void)space, (void)address, (void)argument;
    return -UNW_ENOINFO;
}

static int no_float(unw_addr_space_t space, unw_regnum_t number, unw_fpreg_t *value, int write, void *argument) {
    (void)space, (void)number, (void)value, (void)write, (void)argument;
    return -UNW_EBADREG;
}

static int no_resume(unw_addr_space_t space, unw_cursor_t *cursor, void *argument) {
    (void)space, (void)cursor, (void)argument;
    return -UNW_EINVAL;
}

static int no_name(unw_addr_space_t space, unw_word_t address, char *name, size_t size, unw_word_t *offset, void *argument) {
    (void)space, (void)address, (void)name, (void)size, (void)offset, (void)argument;
    return -UNW_ENOINFO;
}

int stackcap_space_prepare(stackcap_unwinder *unwinder) {
    static unw_accessors_t accessors = {
        .find_proc_info = find_procedure,
        .put_unwind_info = put_info,
        .get_dyn_info_list_addr = no_dynamic_info,
        .access_mem = access_memory,
        .access_reg = access_register,
        .access_fpreg = no_float,
        .resume = no_resume,
        .get_proc_name = no_name,
    };
    unwinder->space = unw_create_addr_space(&accessors, 0);
    if (!unwinder->space)
        return ENOMEM;
    // A cached row would outlive its module, and the next module may be loaded at the same address.
    unw_set_caching_policy(unwinder->space, UNW_CACHE_NONE);
    // libunwind initialises itself and its memory pools on first use. That must not happen while a thread is stopped.
    unw_cursor_t cursor;
    stackcap_registers_unknown(&unwinder->registers, (uintptr_t)&stackcap_space_prepare, 0);
    unwinder->current = &unwinder->registers;
    if (unw_init_remote(&cursor, unwinder->space, unwinder) == 0)
        unw_step(&cursor);
    return 0;
}

/// So many frames are kept from each end.
enum { HALF = STACKCAP_MAX_FRAMES / 2 };

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
    return &unwinder->frames[index < HALF ? index : HALF + index % HALF];
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
    return unwinder->frame_count > 0 && (unwinder->is_late || (is_checked && own_time_ns() > unwinder->walk_until_ns));
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

static bool walk_once(stackcap_unwinder *unwinder, bool reads_middle) {
    stackcap_pages_forget(&unwinder->pages);
    unwinder->registers = unwinder->start;
    unwinder->scanned_count = 0;
    unwinder->reads_middle = reads_middle;
    unwinder->is_late = false;
    unwinder->walk_until_ns = own_time_ns() + STACKCAP_MAX_WALK_NS;
    return unwinder->registers_are_guessed ? stackcap_unwind_guessing(unwinder) : stackcap_unwind_from_registers(unwinder);
}

/// Whether a running thread is still where it was copied, as far as can be determined: it may have left and returned by another
/// path, so two walks must see the same frames, and the memory copied next to the middle must be unchanged after each.
static bool is_still_there(stackcap_unwinder *unwinder) {
    uint64_t seen = unwinder->trail;
    return stackcap_middle_holds(unwinder) && walk_once(unwinder, true) && unwinder->trail == seen &&
           unwinder->end == STACKCAP_END_COMPLETE && stackcap_middle_holds(unwinder);
}

/// Walks the stack. The uncopied part between the two ends of a large stack is read as it is now, and then checked.
static bool walk(stackcap_unwinder *unwinder) {
    unwinder->start = unwinder->registers;
    bool found = walk_once(unwinder, true);
    if (!found || !unwinder->read_middle)
        return found;
    bool is_quiet = unwinder->registers_are_guessed;
    // If the thread has not run since, nothing has changed, wherever its stack leads.
    if (is_quiet ? stackcap_sleeps_on(unwinder) : unwinder->end == STACKCAP_END_COMPLETE && is_still_there(unwinder))
        return true;
    return walk_once(unwinder, false);
}

/// Whether the walk may have used the table or the instructions of a module that was replaced since the copy was made. Only
/// modules that can be replaced count: most stacks contain none.
static bool may_be_replaced(const stackcap_unwinder *unwinder) {
    if (unwinder->modules || !stackcap_loader_has_moved(&unwinder->loader))
        return false;
    for (size_t i = 0; i < unwinder->frame_count && i < STACKCAP_MAX_FRAMES; i++)
        if (!stackcap_is_lasting(unwinder, unwinder->frames[i].address - (i > 0)))
            return true;
    return unwinder->frame_count > STACKCAP_MAX_FRAMES;  // those in the middle are not known any more
}

/// Walks the stack, and again without the modules that may have been replaced if the walk led through any.
/// \param unsettled set if that is the case: another copy may show more.
static bool walk_settled(stackcap_unwinder *unwinder, bool *unsettled) {
    unwinder->distrusts_loaded = false;
    bool found = walk(unwinder);
    *unsettled = found && may_be_replaced(unwinder);
    if (!*unsettled)
        return found;
    unwinder->distrusts_loaded = true;
    unwinder->rows.walk++;  // none that this walk has learnt
    unwinder->registers = unwinder->start;
    return walk(unwinder);
}

/// Reads the chain of awaiting functions, and drops it if the thread may have left its position before it was read.
static void read_async(stackcap_unwinder *unwinder) {
    stackcap_async_read(unwinder);
    if (unwinder->async.callers.end == STACKCAP_ASYNC_NONE)
        return;
    bool sleeps_on = unwinder->registers_are_guessed && stackcap_sleeps_on(unwinder);
    if (!sleeps_on && !stackcap_async_holds(unwinder))
        stackcap_async_doubt(unwinder);
}

/// The index of a frame after the middle ones have been left out; one of those counts as the last before the gap.
static size_t index_of(size_t frame, size_t left_out) {
    if (left_out == 0 || frame < HALF)
        return frame;
    return frame < HALF + left_out ? HALF - 1 : frame - left_out;
}

/// Rotates the ring so that the innermost of its frames comes first. \returns the number of frames that were dropped.
static size_t order_frames(stackcap_unwinder *unwinder) {
    if (unwinder->frame_count <= STACKCAP_MAX_FRAMES)
        return 0;
    stackcap_frame turned[HALF];
    for (size_t i = 0; i < HALF; i++)
        turned[i] = *stackcap_frame_at(unwinder, unwinder->frame_count - HALF + i);
    memcpy(unwinder->frames + HALF, turned, sizeof turned);
    return unwinder->frame_count - STACKCAP_MAX_FRAMES;
}

stackcap_outcome stackcap_unwind(stackcap_session *session, stackcap_unwound *unwound) {
    return stackcap_unwind_copy(&session->unwinder, unwound);
}

stackcap_outcome stackcap_unwind_copy(stackcap_unwinder *unwinder, stackcap_unwound *unwound) {
    uint64_t began = stackcap_now_ns();
    unwinder->rows.walk++;
    bool is_unsettled, found = walk_settled(unwinder, &is_unsettled);
    read_async(unwinder);
    size_t left_out = order_frames(unwinder);
    unwinder->async.callers.frame = index_of(unwinder->async.callers.frame, left_out);
    *unwound = (stackcap_unwound){
        .frames = unwinder->frames,
        .count = unwinder->frame_count - left_out,
        .left_out = left_out,
        .left_out_after = HALF,
        .end = unwinder->end,
        .is_unsettled = is_unsettled,
        .unwinder_error = unwinder->unwinder_error,
        .held_ns = unwinder->copy.held_ns,
        .unwind_ns = stackcap_now_ns() - began,
        .copied_bytes = unwinder->copy.inner.length + unwinder->copy.outer.length,
        .async = unwinder->async.callers,
    };
    return (stackcap_outcome){found ? STACKCAP_OK : STACKCAP_UNWINDER, 0};
}
