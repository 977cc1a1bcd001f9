/// Indexes of another process's unwind rows, for modules without a search table: GNU ld gives no .eh_frame_hdr to static
/// programs, and Go's linker only writes a .debug_frame. Made from the file, once per module, and only for other processes,
/// because they allocate.
///
/// libunwind looks up a row in a table in the target's memory. Our table has addresses that no program uses: there libunwind
/// finds one entry that fits every address, followed by the row that we have looked up.
#include "index.h"

#include <stdlib.h>
#include <string.h>

/// MAX_HELD is in bytes: once all indexes of a process have so many, no more are made. Its files may have been made to fill our memory,
/// in which each takes up to 88 MiB, compressed ones a thousand times their size.
enum { MAX_INDEXES = 512, MAX_HELD = 256 * 1024 * 1024 };

/// In the kernel's half of the address space, which no program uses.
static const uint64_t shown_base = 0xffff910000000000, shown_stride = 0x100000000;

static int by_start(const void *one, const void *other) {
    const struct stackcap_index_entry *a = one, *b = other;
    return (a->start > b->start) - (a->start < b->start);
}

/// An .eh_frame is decoded with the address it has in the target, so that position-relative values are right.
static void fill(stackcap_unwinder *unwinder, struct stackcap_index *index, bool has_table) {
    struct stackcap_sections sections;
    stackcap_sections_read(unwinder, &index->origin, &sections);
    if (sections.loaded && !has_table) {
        uint64_t address = index->origin.base + sections.loaded_at;
        struct stackcap_row_section loaded = {.bytes = sections.loaded, .length = sections.loaded_length, .address = address};
        loaded.bias = index->origin.base;
        stackcap_index_add_section(index, &loaded);
    }
    if (sections.debug) {
        index->bytes = sections.debug;
        index->length = sections.debug_length;
        sections.debug = NULL;
        struct stackcap_row_section debug = {.bytes = index->bytes, .length = index->length, .address = index->shown_at, .is_debug = true};
        debug.bias = index->origin.base;
        stackcap_index_add_section(index, &debug);
    }
    stackcap_sections_free(&sections);
    if (index->count > 1)
        qsort(index->entries, index->count, sizeof *index->entries, by_start);
}

// Storing and finding them.

/// \returns the module's index, which may be empty, or NULL if there are too many.
static const struct stackcap_index *_Nullable index_of(stackcap_unwinder *unwinder, const struct stackcap_origin *origin,
                                                       bool has_table) {
    size_t count = 0, held = 0;
    for (struct stackcap_index *index = unwinder->modules->indexes; index; index = index->next, count++) {
        held += index->length + index->capacity * sizeof *index->entries;
        if (index->origin.at == origin->at && index->origin.inode == origin->inode && index->origin.device == origin->device)
            return index;
    }
    struct stackcap_index *index = count < MAX_INDEXES && held < MAX_HELD ? calloc(1, sizeof *index) : NULL;
    if (!index)
        return NULL;
    index->origin = *origin;
    index->shown_at = shown_base + shown_stride * (count + 1);
    fill(unwinder, index, has_table);
    index->origin.path = "";  // freed with the maps
    index->next = unwinder->modules->indexes;
    unwinder->modules->indexes = index;
    return index;
}

void stackcap_indexes_free(struct stackcap_modules *modules) {
    while (modules->indexes) {
        struct stackcap_index *index = modules->indexes;
        modules->indexes = index->next;
        free(index->entries);
        free(index->bytes);
        free(index);
    }
}

/// \returns the last entry that starts at or before the address.
static const struct stackcap_index_entry *_Nullable entry_before(const struct stackcap_index *index, uint64_t address) {
    size_t low = 0, high = index->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (index->entries[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? &index->entries[low - 1] : NULL;
}

enum stackcap_indexed stackcap_index_find(stackcap_unwinder *unwinder, uint64_t address, struct stackcap_indexed_row *row) {
    struct stackcap_origin origin;
    bool has_table;
    if (!unwinder->modules || !stackcap_modules_origin(unwinder, address, &origin, &has_table))
        return INDEXED_NOT;
    const struct stackcap_index *index = index_of(unwinder, &origin, has_table);
    const struct stackcap_index_entry *entry = index ? entry_before(index, address) : NULL;
    if (!entry)
        return INDEXED_NOT;
    *row = (struct stackcap_indexed_row){entry->start, entry->end, entry->description};
    if (address < entry->end)
        return INDEXED_FOUND;
    return entry < index->entries + index->count - 1 ? INDEXED_BETWEEN : INDEXED_NOT;
}

uint64_t stackcap_index_table(void) {
    return shown_base;
}

bool stackcap_index_read(const struct stackcap_modules *modules, uint64_t address, void *to, size_t length) {
    static const struct {
        int32_t start, entry;
    } table = {INT32_MIN, 0};
    if (address < shown_base)
        return false;
    if (address - shown_base <= sizeof table - length && length <= sizeof table) {
        memcpy(to, (const uint8_t *)&table + (address - shown_base), length);
        return true;
    }
    for (const struct stackcap_index *index = modules->indexes; index; index = index->next) {
        uint64_t offset = address - index->shown_at;
        if (offset >= index->length)
            continue;
        // libunwind reads whole words, and the last one may be incomplete.
        size_t there = index->length - offset < length ? index->length - offset : length;
        memset(to, 0, length);
        memcpy(to, index->bytes + offset, there);
        return true;
    }
    return false;
}
