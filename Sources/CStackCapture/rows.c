/// Unwind rows that were used before. A deep recursion uses the same few rows repeatedly, and so do the threads of a pool. Each
/// time, libunwind finds the row, decodes it and runs it, which takes twenty times as long as applying the result.
///
/// A row is learnt the second time that it is used, from libunwind's result. The register on which it is based is determined by
/// showing libunwind registers that are all unknown: the first address that it reads is that of the return address. Rows whose
/// results are not sums of one register and a constant are left to libunwind.
///
/// No row outlives its module. Rows of modules that came with the program are kept, because these are never unloaded. Others
/// are valid for one capture.
#include "walk.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

// Modules that came with the program: their read-only parts.

static struct {
    uint64_t start, end;
} lasting[512];
static size_t lasting_count;

static int note_module(struct dl_phdr_info *info, size_t size, void *context) {
    (void)size, (void)context;
    for (int i = 0; i < info->dlpi_phnum && lasting_count < sizeof lasting / sizeof *lasting; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || (part->p_flags & PF_W))
            continue;
        lasting[lasting_count].start = info->dlpi_addr + part->p_vaddr;
        lasting[lasting_count++].end = info->dlpi_addr + part->p_vaddr + part->p_memsz;
    }
    return 0;
}

/// Runs before main, when only the modules that the program was linked with are loaded, and those loaded by constructors of
/// these libraries, which are assumed to stay. Does nothing if this code is in a library itself, which may have been loaded at
/// any time.
__attribute__((constructor)) static void note_modules(void) {
    struct dl_find_object object;
    if (_dl_find_object((void *)(uintptr_t)&note_modules, &object) != 0)
        return;
    const struct link_map *own = object.dlfo_link_map;
    if (!own->l_prev && own->l_name && own->l_name[0] == 0)
        dl_iterate_phdr(note_module, NULL);
}

bool stackcap_is_lasting(const stackcap_unwinder *unwinder, uint64_t address) {
    if (unwinder->reader.process != getpid())
        return false;
    for (size_t i = 0; i < lasting_count; i++)
        if (address - lasting[i].start < lasting[i].end - lasting[i].start)
            return true;
    return false;
}

// Looking up.

static struct stackcap_row *slot_of(const stackcap_unwinder *unwinder, uint64_t address) {
    return &unwinder->rows.slots[(address * 0x9e3779b97f4a7c15 >> 40) % ROW_SLOTS];
}

static bool is_good(const stackcap_unwinder *unwinder, const struct stackcap_row *row, uint64_t address) {
    return row->address == address && (row->walk == 0 || row->walk == unwinder->rows.walk);
}

/// Applies the row to the registers. \returns false if something cannot be read.
static bool apply(stackcap_unwinder *unwinder, const struct stackcap_row *row, struct stackcap_registers *registers) {
    uint64_t base = registers->value[row->base];
    struct stackcap_registers next = *registers;
    if (stackcap_is_unknown(base) ||
        !stackcap_read_word(unwinder, base + (uint64_t)(int64_t)row->return_address, &next.value[REGISTER_PROGRAM_COUNTER]))
        return false;
    for (int i = 0; i < KEPT_REGISTERS; i++)
        if (row->saved[i] != INT32_MIN && !stackcap_read_word(unwinder, base + (uint64_t)(int64_t)row->saved[i],
                                                              &next.value[stackcap_kept_registers[i]]))
            return false;
    next.value[REGISTER_STACK_POINTER] = base + (uint64_t)(int64_t)row->stack_pointer;
    *registers = next;
    return true;
}

bool stackcap_row_step(stackcap_unwinder *unwinder, struct stackcap_walk *walk) {
    const struct stackcap_row *row = slot_of(unwinder, walk->lookup);
    if (!is_good(unwinder, row, walk->lookup) || row->state != ROW_USABLE)
        return false;
    struct stackcap_registers registers;
    stackcap_walk_read_registers(walk, &registers);
    if (!apply(unwinder, row, &registers))
        return false;
    walk->registers = registers;
    walk->in_registers = true;
    walk->in_cursor = false;
    walk->address = walk->registers.value[REGISTER_PROGRAM_COUNTER];
    walk->stack_pointer = walk->registers.value[REGISTER_STACK_POINTER];
    walk->lookup = walk->address - 1;
    return true;
}

// Learning.

static uint64_t saved_at(unw_cursor_t *cursor, int kept) {
    unw_save_loc_t place;
    bool found = unw_get_save_loc(cursor, stackcap_kept_registers[kept], &place) == 0 && place.type == UNW_SLT_MEMORY;
    return found ? place.u.addr : 0;
}

void stackcap_row_watch(stackcap_unwinder *unwinder, struct stackcap_walk *walk, struct stackcap_lesson *lesson) {
    struct stackcap_row *row = slot_of(unwinder, walk->lookup);
    lesson->row = NULL;
    if (!ROWS_ARE_LEARNT)
        return;
    if (!is_good(unwinder, row, walk->lookup)) {
        *row = (struct stackcap_row){.address = walk->lookup, .state = ROW_SEEN};
        row->walk = stackcap_is_lasting(unwinder, walk->lookup) ? 0 : unwinder->rows.walk;
        return;
    }
    if (row->state != ROW_SEEN)
        return;
    lesson->row = row;
    for (int i = 0; i < KEPT_REGISTERS; i++) {
        lesson->before[i] = saved_at(&walk->cursor, i);
        if (unw_get_reg(&walk->cursor, stackcap_kept_registers[i], &lesson->bases[i]) != 0)
            lesson->bases[i] = 0;
    }
    lesson->bases[KEPT_REGISTERS] = walk->stack_pointer;
}

/// \returns the register of the first address that libunwind reads if it knows no register; `offset` is the constant that is
/// added.
static int probe(stackcap_unwinder *unwinder, uint64_t lookup, int64_t *offset) {
    struct stackcap_registers unknown;
    unw_cursor_t cursor;
    const struct stackcap_registers *current = unwinder->current;
    bool flags[] = {unwinder->met_unknown, unwinder->lacked_table, unwinder->left_copy};
    stackcap_registers_all_unknown(&unknown, lookup);
    unwinder->current = &unknown;
    unwinder->first_unknown = 0;
    if (unw_init_remote(&cursor, unwinder->space, unwinder) == 0)
        unw_step(&cursor);
    unwinder->current = current;
    unwinder->met_unknown = flags[0], unwinder->lacked_table = flags[1], unwinder->left_copy = flags[2];
    return unwinder->first_unknown ? stackcap_unknown_origin(unwinder->first_unknown, offset) : -1;
}

static uint64_t value_before(const struct stackcap_lesson *lesson, int base) {
    if (base == REGISTER_STACK_POINTER)
        return lesson->bases[KEPT_REGISTERS];
    for (int i = 0; i < KEPT_REGISTERS; i++)
        if (stackcap_kept_registers[i] == base)
            return lesson->bases[i];
    return 0;
}

static bool narrow(uint64_t address, uint64_t base, int32_t *offset) {
    *offset = (int32_t)(address - base);
    return (int64_t)*offset == (int64_t)(address - base) && *offset != INT32_MIN;
}

/// \returns false if the row is more than a sum.
static bool learn_saved(unw_cursor_t *cursor, const struct stackcap_lesson *lesson, uint64_t base, struct stackcap_row *row) {
    for (int i = 0; i < KEPT_REGISTERS; i++) {
        uint64_t after = saved_at(cursor, i);
        row->saved[i] = INT32_MIN;
        if (after != lesson->before[i] && (after == 0 || !narrow(after, base, &row->saved[i])))
            return false;
    }
    return true;
}

void stackcap_row_learn(stackcap_unwinder *unwinder, struct stackcap_walk *walk, const struct stackcap_lesson *lesson) {
    struct stackcap_row *row = lesson->row;
    int64_t offset = 0;
    int register_number = probe(unwinder, row->address, &offset);
    uint64_t base = value_before(lesson, register_number), place = base + (uint64_t)offset, word = 0;
    row->state = ROW_UNUSABLE;
    row->base = register_number;
    // The row learnt from the probe must agree with the result of the actual step.
    bool fits = base != 0 && walk->stack_pointer == place + RETURN_ADDRESS_BYTES && narrow(place, base, &row->return_address) &&
                narrow(walk->stack_pointer, base, &row->stack_pointer) && stackcap_read_word(unwinder, place, &word) &&
                word == walk->address;
    if (fits && learn_saved(&walk->cursor, lesson, base, row))
        row->state = ROW_USABLE;
}
