/// libunwind's remote interface over the copy: its accessors, and the walk from frame to frame.
#include "internal.h"

#include <dlfcn.h>
#include <string.h>
#include <unwind.h>

/// Keeps C++ exceptions with libgcc's unwinder. libunwind-x86_64.so needs libunwind.so.8, which defines _Unwind_* as well, and the
/// dynamic linker takes the first definition it meets, breadth first. Linkers drop a library that nothing refers to; this reference
/// makes the program need libgcc_s.so.1 itself, one level above libunwind.so.8.
__attribute__((used, retain)) static _Unwind_Reason_Code (*const exceptions_stay_with_libgcc)(struct _Unwind_Exception *) =
    _Unwind_RaiseException;

// Internal to libunwind, but exported by libunwind-x86_64 for debuggers that find tables on their own, as we do.
extern int _Ux86_64_dwarf_search_unwind_table(unw_addr_space_t, unw_word_t, unw_dyn_info_t *, unw_proc_info_t *, int, void *);

/// The start of .eh_frame_hdr: Linux Standard Base, Core, 10.6.2.
struct table_header {
    uint8_t version;
    uint8_t frame_encoding;
    uint8_t count_encoding;
    uint8_t table_encoding;
    int32_t frame_offset;
    uint32_t count;
};
_Static_assert(sizeof(struct table_header) == 12, "the binary search table follows directly");

/// The encodings that every linker emits: all others would need a reader of their own.
static bool is_searchable(const struct table_header *header) {
    return header->version == 1 && header->frame_encoding == 0x1b && header->count_encoding == 0x03 &&
           header->table_encoding == 0x3b;
}

/// Finds the module's table without the loader's lock, which the target may hold.
static bool find_table(stackcap_session *session, unw_word_t address, unw_dyn_info_t *table) {
    struct dl_find_object object;
    struct table_header header;
    if (_dl_find_object((void *)(uintptr_t)address, &object) != 0 || !object.dlfo_eh_frame)
        return false;
    uint64_t start = (uintptr_t)object.dlfo_eh_frame;
    if (!stackcap_peek(session, start, &header, sizeof header) || !is_searchable(&header))
        return false;
    memset(table, 0, sizeof *table);
    table->format = UNW_INFO_FORMAT_REMOTE_TABLE;
    table->start_ip = (uintptr_t)object.dlfo_map_start;
    table->end_ip = (uintptr_t)object.dlfo_map_end;
    table->u.rti.segbase = start;
    table->u.rti.table_data = start + sizeof header;
    table->u.rti.table_len = header.count;  // in words, and an entry is as long as one
    return true;
}

static int find_procedure(unw_addr_space_t space, unw_word_t address, unw_proc_info_t *procedure, int needs_info,
                          void *argument) {
    stackcap_session *session = argument;
    unw_dyn_info_t table;
    memset(procedure, 0, sizeof *procedure);
    int result = -UNW_ENOINFO;
    if (find_table(session, address, &table))
        result = _Ux86_64_dwarf_search_unwind_table(space, address, &table, procedure, needs_info, argument);
    if (result < 0)
        session->lacked_table = true;
    return result;
}

static int access_memory(unw_addr_space_t space, unw_word_t address, unw_word_t *value, int write, void *argument) {
    (void)space;
    stackcap_session *session = argument;
    *value = 0;
    if (write)
        return -UNW_EINVAL;
    if (stackcap_is_unknown(address) || stackcap_is_unknown(address - 0x100000)) {
        session->met_unknown = true;
        return -UNW_EINVAL;
    }
    if (!stackcap_peek(session, address, value, sizeof *value))
        return -UNW_EINVAL;
    uint64_t plain = stackcap_plain_frame_pointer(*value);
    if (plain >= session->copy.start && plain < session->copy.high)
        *value = plain;
    return 0;
}

static int access_register(unw_addr_space_t space, unw_regnum_t number, unw_word_t *value, int write, void *argument) {
    (void)space;
    stackcap_session *session = argument;
    if (write || number < 0 || number >= REGISTER_COUNT)
        return -UNW_EBADREG;
    *value = session->registers.value[number];
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

int stackcap_unwinder_prepare(stackcap_session *session) {
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
    session->space = unw_create_addr_space(&accessors, 0);
    if (!session->space)
        return -1;
    // A cached row outlives the module it came from, and the next one may be loaded at the same place.
    unw_set_caching_policy(session->space, UNW_CACHE_NONE);
    // libunwind sets itself up, and its memory pools, on first use. That must not happen while a thread stands still.
    unw_cursor_t cursor;
    stackcap_registers_unknown(&session->registers, (uintptr_t)&stackcap_unwinder_prepare, 0);
    if (unw_init_remote(&cursor, session->space, session) == 0)
        unw_step(&cursor);
    return 0;
}

uint64_t stackcap_function_start(stackcap_session *session, uint64_t address) {
    unw_proc_info_t procedure;
    return find_procedure(session->space, address, &procedure, 0, session) == 0 ? procedure.start_ip : 0;
}

/// Why the walk ends behind the last frame, from what unw_step said and what the accessors met.
static stackcap_end judge_end(const stackcap_session *session, int step) {
    if (session->left_copy)
        return STACKCAP_END_COPY_LIMIT;
    if (session->lacked_table)
        return STACKCAP_END_NO_TABLE;
    return step == 0 ? STACKCAP_END_COMPLETE : STACKCAP_END_BAD_FRAME;
}

static void add_frame(stackcap_session *session, unw_word_t address, unw_word_t stack_pointer) {
    stackcap_found found = session->frame_count == 0 ? STACKCAP_FOUND_REGISTER
                           : session->lacked_table   ? STACKCAP_FOUND_FRAME_POINTER
                                                     : STACKCAP_FOUND_TABLE;
    session->frames[session->frame_count++] = (stackcap_frame){address, stack_pointer, found};
}

/// Takes the frame that the cursor stands on. \returns false, with the reason in session->end, where the stack stops here.
static bool take_frame(stackcap_session *session, unw_cursor_t *cursor) {
    unw_word_t address = 0, stack_pointer = 0;
    unw_get_reg(cursor, UNW_REG_IP, &address);
    unw_get_reg(cursor, UNW_REG_SP, &stack_pointer);
    size_t count = session->frame_count;
    if (address == 0)
        session->end = judge_end(session, 0);
    else if (count == STACKCAP_MAX_FRAMES)
        session->end = STACKCAP_END_FRAME_LIMIT;
    else if (count > 0 && stack_pointer < session->frames[count - 1].stack_pointer)
        session->end = STACKCAP_END_BAD_FRAME;  // a caller's frame lies further out
    else {
        add_frame(session, address, stack_pointer);
        return true;
    }
    return false;
}

bool stackcap_unwind_from_registers(stackcap_session *session) {
    unw_cursor_t cursor;
    session->frame_count = 0;
    session->met_unknown = false;
    session->lacked_table = false;
    session->left_copy = false;
    int step = session->unwinder_error = unw_init_remote(&cursor, session->space, session);
    if (step < 0)
        return false;
    while (take_frame(session, &cursor)) {
        session->lacked_table = false;
        session->left_copy = false;
        step = unw_step(&cursor);
        if (step > 0)
            continue;
        session->end = judge_end(session, step);
        break;
    }
    session->unwinder_error = step < 0 ? step : 0;
    return session->frame_count > 0;
}

stackcap_outcome stackcap_unwind(stackcap_session *session, stackcap_unwound *unwound) {
    uint64_t began = stackcap_now_ns();
    stackcap_pages_forget(&session->pages);
    bool found = session->registers_are_guessed ? stackcap_unwind_guessing(session) : stackcap_unwind_from_registers(session);
    *unwound = (stackcap_unwound){
        .frames = session->frames,
        .count = session->frame_count,
        .end = session->end,
        .unwinder_error = session->unwinder_error,
        .held_ns = session->request.held_ns,
        .unwind_ns = stackcap_now_ns() - began,
        .copied_bytes = session->copy.length,
    };
    return (stackcap_outcome){found ? STACKCAP_OK : STACKCAP_UNWINDER, 0};
}
