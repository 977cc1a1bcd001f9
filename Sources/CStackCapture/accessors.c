/// libunwind's remote interface: what it may read of a copied stack, of its registers, and of the memory around it.
#include "walk.h"

#include <errno.h>
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
    if (stackcap_is_unknown(address)) {
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

/// A damaged row may be as long as the memory around it, and save all registers once for each of its bytes.
bool stackcap_may_read(stackcap_unwinder *unwinder) {
    enum { MOST_READS = 1 << 18, READS_BETWEEN_LOOKS = 1 << 12 };  // the first for one row: no compiler writes such a long one
    if (++unwinder->reads_in_all % READS_BETWEEN_LOOKS == 0)
        unwinder->is_late |= stackcap_own_time_ns() > unwinder->walk_until_ns;
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
