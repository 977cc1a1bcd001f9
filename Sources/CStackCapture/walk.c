/// libunwind's remote interface over the copy: its accessors, and the walk from frame to frame.
#include "internal.h"

#include <errno.h>
#include <unwind.h>

/// Keeps C++ exceptions with libgcc's unwinder. libunwind-x86_64.so (or -aarch64) needs libunwind.so.8, which defines _Unwind_* as well, and the
/// dynamic linker takes the first definition it meets, breadth first. Linkers drop a library that nothing refers to; this reference
/// makes the program need libgcc_s.so.1 itself, one level above libunwind.so.8.
__attribute__((used, retain)) static _Unwind_Reason_Code (*const exceptions_stay_with_libgcc)(struct _Unwind_Exception *) =
    _Unwind_RaiseException;

static int find_procedure(unw_addr_space_t space, unw_word_t address, unw_proc_info_t *procedure, int needs_info,
                          void *argument) {
    (void)space;
    return stackcap_find_procedure(argument, address, procedure, needs_info);
}

static int access_memory(unw_addr_space_t space, unw_word_t address, unw_word_t *value, int write, void *argument) {
    (void)space;
    stackcap_unwinder *unwinder = argument;
    *value = 0;
    if (write)
        return -UNW_EINVAL;
    if (stackcap_is_unknown(address) || stackcap_is_unknown(address - 0x100000)) {
        unwinder->met_unknown = true;
        return -UNW_EINVAL;
    }
    if (!stackcap_peek(unwinder, address, value, sizeof *value))
        return -UNW_EINVAL;
    uint64_t plain = stackcap_plain_frame_pointer(*value);
    if (plain >= unwinder->copy.start && plain < unwinder->copy.high)
        *value = plain;
    else if (stackcap_in_copy(unwinder, address, sizeof *value))
        *value = stackcap_plain_return_address(*value);
    return 0;
}

static int access_register(unw_addr_space_t space, unw_regnum_t number, unw_word_t *value, int write, void *argument) {
    (void)space;
    stackcap_unwinder *unwinder = argument;
    if (write || number < 0 || number >= REGISTER_COUNT)
        return -UNW_EBADREG;
    *value = unwinder->is_resumed ? unwinder->resumed.value[number] : unwinder->registers.value[number];
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
    // A cached row outlives the module it came from, and the next one may be loaded at the same place.
    unw_set_caching_policy(unwinder->space, UNW_CACHE_NONE);
    // libunwind sets itself up, and its memory pools, on first use. That must not happen while a thread stands still.
    unw_cursor_t cursor;
    stackcap_registers_unknown(&unwinder->registers, (uintptr_t)&stackcap_space_prepare, 0);
    if (unw_init_remote(&cursor, unwinder->space, unwinder) == 0)
        unw_step(&cursor);
    return 0;
}

/// Why the walk ends behind the last frame, from what unw_step said and what the accessors met.
static stackcap_end judge_end(const stackcap_unwinder *unwinder, int step) {
    if (unwinder->left_copy)
        return STACKCAP_END_COPY_LIMIT;
    if (unwinder->lacked_table)
        return STACKCAP_END_NO_TABLE;
    return step == 0 ? STACKCAP_END_COMPLETE : STACKCAP_END_BAD_FRAME;
}

static void add_frame(stackcap_unwinder *unwinder, unw_word_t address, unw_word_t stack_pointer) {
    stackcap_found found = unwinder->frame_count == 0 ? STACKCAP_FOUND_REGISTER
                           : unwinder->lacked_table   ? STACKCAP_FOUND_FRAME_POINTER
                                                     : STACKCAP_FOUND_TABLE;
    if (unwinder->frame_count == 1 && unwinder->return_found)
        found = unwinder->return_found;
    unwinder->frames[unwinder->frame_count++] = (stackcap_frame){address, stack_pointer, found};
}

/// Takes the frame that the cursor stands on. \returns false, with the reason in unwinder->end, where the stack stops here.
static bool take_frame(stackcap_unwinder *unwinder, unw_cursor_t *cursor) {
    unw_word_t address = 0, stack_pointer = 0;
    unw_get_reg(cursor, UNW_REG_IP, &address);
    unw_get_reg(cursor, UNW_REG_SP, &stack_pointer);
    address += (uint64_t)unwinder->address_bias;
    size_t count = unwinder->frame_count;
    if (address == 0)
        unwinder->end = judge_end(unwinder, 0);
    else if (count == STACKCAP_MAX_FRAMES)
        unwinder->end = STACKCAP_END_FRAME_LIMIT;
    else if (stackcap_is_unknown(address)) {
        unwinder->met_unknown = true;
        unwinder->end = STACKCAP_END_BAD_FRAME;
    } else if (count > 0 && !stackcap_is_further_out(unwinder, unwinder->frames[count - 1].stack_pointer, stack_pointer))
        unwinder->end = STACKCAP_END_BAD_FRAME;
    else if (stackcap_is_beyond_foreign_copy(unwinder, stack_pointer))
        unwinder->end = STACKCAP_END_COPY_LIMIT;
    else {
        add_frame(unwinder, address, stack_pointer);
        return true;
    }
    return false;
}

bool stackcap_unwind_from_registers(stackcap_unwinder *unwinder) {
    unw_cursor_t cursor, callee;
    stackcap_async_begin(unwinder);
    unwinder->frame_count = 0;
    unwinder->met_unknown = false;
    unwinder->lacked_table = false;
    unwinder->left_copy = false;
    unwinder->is_resumed = false;
    unwinder->address_bias = 0;
    int step = unwinder->unwinder_error = unw_init_remote(&cursor, unwinder->space, unwinder);
    if (step < 0)
        return false;
    while (take_frame(unwinder, &cursor)) {
        if (unwinder->frame_count > 1)
            stackcap_async_notice(unwinder, &callee, &cursor);
        callee = cursor;
        unwinder->lacked_table = false;
        unwinder->left_copy = false;
        step = stackcap_step(unwinder, &cursor);
        if (step > 0)
            continue;
        unwinder->end = judge_end(unwinder, step);
        break;
    }
    unwinder->unwinder_error = step < 0 ? step : 0;
    return unwinder->frame_count > 0;
}

/// Reads the chain of awaiting functions, and doubts it if the thread may have gone elsewhere before it was read.
static void read_async(stackcap_session *session) {
    stackcap_unwinder *unwinder = &session->unwinder;
    stackcap_async_read(unwinder);
    if (unwinder->async.callers.end != STACKCAP_ASYNC_NONE && !stackcap_sleeps_on(session) && !stackcap_async_holds(unwinder))
        stackcap_async_doubt(unwinder);
}

stackcap_outcome stackcap_unwind(stackcap_session *session, stackcap_unwound *unwound) {
    stackcap_unwinder *unwinder = &session->unwinder;
    uint64_t began = stackcap_now_ns();
    stackcap_pages_forget(&unwinder->pages);
    bool found = unwinder->registers_are_guessed ? stackcap_unwind_guessing(unwinder) : stackcap_unwind_from_registers(unwinder);
    read_async(session);
    *unwound = (stackcap_unwound){
        .frames = unwinder->frames,
        .count = unwinder->frame_count,
        .end = unwinder->end,
        .unwinder_error = unwinder->unwinder_error,
        .held_ns = unwinder->copy.held_ns,
        .unwind_ns = stackcap_now_ns() - began,
        .copied_bytes = unwinder->copy.length,
        .async = unwinder->async.callers,
    };
    return (stackcap_outcome){found ? STACKCAP_OK : STACKCAP_UNWINDER, 0};
}
