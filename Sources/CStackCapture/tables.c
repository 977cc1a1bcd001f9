/// Unwind tables, found without the loader's lock: the target may hold it.
#include "walk.h"

#include <dlfcn.h>
#include <string.h>

// Internal to libunwind, but exported by its remote part for debuggers that find tables themselves, as we do.
#define search_table UNW_OBJ(dwarf_search_unwind_table)
extern int search_table(unw_addr_space_t, unw_word_t, unw_dyn_info_t *, unw_proc_info_t *, int, void *);

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

/// The encodings that every linker emits: others would need their own decoder.
static bool is_searchable(const struct table_header *header) {
    return header->version == 1 && header->frame_encoding == 0x1b && header->count_encoding == 0x03 &&
           header->table_encoding == 0x3b;
}

bool stackcap_is_distrusted(const stackcap_unwinder *unwinder, uint64_t address) {
    return unwinder->distrusts_loaded && !stackcap_is_lasting(unwinder, address);
}

static bool find_module(stackcap_unwinder *unwinder, uint64_t address, struct stackcap_module *module) {
    if (unwinder->modules)
        return stackcap_modules_find(unwinder, address, module);
    struct dl_find_object object;
    if (_dl_find_object((void *)(uintptr_t)address, &object) != 0)
        return false;
    *module = (struct stackcap_module){
        .start = (uintptr_t)object.dlfo_map_start,
        .end = (uintptr_t)object.dlfo_map_end,
        .table = (uintptr_t)object.dlfo_eh_frame,
    };
    return true;
}

/// A module that another process may have loaded since its maps were read.
static bool find_new_module(stackcap_unwinder *unwinder, uint64_t address, struct stackcap_module *module) {
    return unwinder->modules && stackcap_modules_keep_up(unwinder->modules) == 0 &&
           stackcap_modules_find(unwinder, address, module);
}

static bool find_table(stackcap_unwinder *unwinder, unw_word_t address, unw_dyn_info_t *table) {
    struct stackcap_module module;
    struct table_header header;
    if (stackcap_is_distrusted(unwinder, address))
        return false;
    if (!find_module(unwinder, address, &module) && !find_new_module(unwinder, address, &module))
        return false;
    if (module.table == 0 ||
        !stackcap_peek(unwinder, module.table, &header, sizeof header) || !is_searchable(&header))
        return false;
    memset(table, 0, sizeof *table);
    table->format = UNW_INFO_FORMAT_REMOTE_TABLE;
    table->start_ip = module.start;
    table->end_ip = module.end;
    table->u.rti.segbase = module.table;
    table->u.rti.table_data = module.table + sizeof header;
    table->u.rti.table_len = header.count;  // in words; an entry has the length of a word
    return true;
}

/// Searches our own index, for modules without a search table, or where the table has no entry.
static bool find_indexed(stackcap_unwinder *unwinder, unw_word_t address, unw_dyn_info_t *table) {
    struct stackcap_indexed_row row;
    if (!unwinder->modules || stackcap_index_find(unwinder, address, &row) != INDEXED_FOUND)
        return false;
    memset(table, 0, sizeof *table);
    table->format = UNW_INFO_FORMAT_REMOTE_TABLE;
    table->start_ip = row.start;
    table->end_ip = row.end;
    table->u.rti.segbase = row.description;
    table->u.rti.table_data = stackcap_index_table();
    table->u.rti.table_len = 1;
    return true;
}

/// Searches the module's own table. libunwind takes memory for a row before it finds that the address is behind its function, and
/// frees it only if that search is the last one. So if another may follow, the first search is without.
static int search_own(stackcap_unwinder *unwinder, unw_word_t address, unw_proc_info_t *procedure, int needs_info) {
    unw_dyn_info_t table;
    if (!find_table(unwinder, address, &table))
        return -UNW_ENOINFO;
    int result = unwinder->modules && needs_info ? search_table(unwinder->space, address, &table, procedure, 0, unwinder) : 0;
    return result < 0 ? result : search_table(unwinder->space, address, &table, procedure, needs_info, unwinder);
}

int stackcap_find_procedure(stackcap_unwinder *unwinder, unw_word_t address, unw_proc_info_t *procedure, int needs_info) {
    unw_dyn_info_t table;
    memset(procedure, 0, sizeof *procedure);
    unwinder->reads = 0;
    int result = search_own(unwinder, address, procedure, needs_info);
    if (result < 0 && find_indexed(unwinder, address, &table))
        result = search_table(unwinder->space, address, &table, procedure, needs_info, unwinder);
    if (result < 0)
        unwinder->lacked_table = true;
    else if (needs_info)
        stackcap_row_check(unwinder, procedure);
    return result;
}

uint64_t stackcap_function_start(stackcap_unwinder *unwinder, uint64_t address) {
    unw_proc_info_t procedure;
    return stackcap_find_procedure(unwinder, address, &procedure, 0) == 0 ? procedure.start_ip : 0;
}

/// A row of the binary search table, relative to its header.
struct table_row {
    int32_t start, entry;
};

/// The number of functions of the table that start at or before the address, and whether the last of these starts exactly
/// there.
static uint64_t count_starts(stackcap_unwinder *unwinder, const unw_dyn_info_t *table, uint64_t address, bool *is_start) {
    int64_t wanted = (int64_t)(address - table->u.rti.segbase);
    uint64_t low = 0, high = table->u.rti.table_len;
    *is_start = false;
    while (low < high) {
        struct table_row row;
        uint64_t middle = low + (high - low) / 2;
        if (!stackcap_peek(unwinder, table->u.rti.table_data + middle * sizeof row, &row, sizeof row))
            return 0;
        *is_start |= row.start == wanted;
        if (row.start <= wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool stackcap_may_start_function(stackcap_unwinder *unwinder, uint64_t address) {
    unw_dyn_info_t table;
    struct stackcap_indexed_row row;
    bool is_start = false, is_inside = false;
    if (find_table(unwinder, address, &table)) {
        uint64_t count = count_starts(unwinder, &table, address, &is_start);
        is_inside = count > 0 && count < table.u.rti.table_len;
    } else {
        enum stackcap_indexed found = stackcap_index_find(unwinder, address, &row);
        is_start = found == INDEXED_FOUND && row.start == address;
        is_inside = found == INDEXED_BETWEEN;
    }
    if (is_start)
        return true;
    // In the Swift runtime's own libraries some functions have no entry. They are between others that have one. A search that had
    // no time left says nothing.
    return is_inside && address % 16 == 0 && stackcap_function_start(unwinder, address) == 0 && !unwinder->is_late;
}

/// Where a row's function starts, or `otherwise` if there is no such row.
static uint64_t start_of_row(stackcap_unwinder *unwinder, const unw_dyn_info_t *table, uint64_t index, uint64_t otherwise) {
    struct table_row row;
    bool found = index < table->u.rti.table_len &&
                 stackcap_peek(unwinder, table->u.rti.table_data + index * sizeof row, &row, sizeof row);
    return found ? table->u.rti.segbase + (uint64_t)(int64_t)row.start : otherwise;
}

bool stackcap_gap_around(stackcap_unwinder *unwinder, uint64_t address, uint64_t *low, uint64_t *high) {
    unw_dyn_info_t table;
    unw_proc_info_t procedure;
    bool is_start;
    if (!find_table(unwinder, address, &table))
        return false;
    uint64_t count = count_starts(unwinder, &table, address, &is_start);
    *low = start_of_row(unwinder, &table, count - 1, table.start_ip);
    *high = start_of_row(unwinder, &table, count, table.end_ip);
    if (count > 0 && stackcap_find_procedure(unwinder, *low, &procedure, 0) == 0)
        *low = procedure.end_ip;
    return *low <= address && address < *high;
}

bool stackcap_in_module(stackcap_unwinder *unwinder, uint64_t address) {
    struct stackcap_module module;
    return find_module(unwinder, address, &module);
}
