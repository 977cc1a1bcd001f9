/// Indexes of another process's unwind rows, for modules without a search table: GNU ld gives no .eh_frame_hdr to static
/// programs, and Go's linker only writes a .debug_frame. Made from the file, once per module, and only for other processes,
/// because they allocate.
///
/// libunwind looks up a row in a table in the target's memory. Our table has addresses that no program uses: there libunwind
/// finds one entry that fits every address, followed by the row that we have looked up.
#include "unwinder.h"

#include <stdlib.h>
#include <string.h>

/// The description of one function, and its range.
struct entry {
    uint64_t start, end;
    uint64_t description;
};

/// A CIE: the common part of several descriptions.
struct common {
    size_t at;
    size_t shown;  ///< Its offset after conversion to a form that libunwind reads.
    uint8_t encoding;
};

struct stackcap_index {
    struct stackcap_index *_Nullable next;
    struct stackcap_origin origin;
    struct entry *_Nullable entries;  ///< Sorted by start.
    size_t count, capacity;
    uint8_t *_Nullable bytes;  ///< A .debug_frame converted to an .eh_frame,
    size_t length;
    uint64_t shown_at;  ///< … and the address at which libunwind sees it.
};

/// MAX_HELD is in bytes: once all indexes of a process have so many, no more are made. Its files may have been made to fill our memory,
/// in which each takes up to 88 MiB, compressed ones a thousand times their size.
enum { MAX_ENTRIES = 1 << 20, MAX_INDEXES = 512, MAX_HELD = 256 * 1024 * 1024 };

/// In the kernel's half of the address space, which no program uses.
static const uint64_t shown_base = 0xffff910000000000, shown_stride = 0x100000000;

// Reading a section.

struct section {
    uint8_t *bytes;
    size_t length;
    uint64_t address;  ///< The address of the bytes in the target, or as shown to libunwind.
    uint64_t bias;     ///< To be added to absolute addresses.
    bool is_debug;
    struct common *_Nullable commons;
    size_t common_count, common_capacity;
    size_t *_Nullable descriptions;
    size_t description_count, description_capacity;
};

struct place {
    const struct section *section;
    size_t at, end;
    bool failed;
};

static uint64_t take(struct place *place, size_t size) {
    uint64_t value = 0;
    if (place->failed || place->end - place->at < size) {
        place->failed = true;
        return 0;
    }
    memcpy(&value, place->section->bytes + place->at, size);
    place->at += size;
    return value;
}

static uint64_t take_leb(struct place *place) {
    uint64_t value = 0, byte = 0x80;
    for (unsigned shift = 0; byte & 0x80; shift += 7) {
        byte = take(place, 1);
        value |= shift < 64 ? (byte & 0x7f) << shift : 0;
    }
    return value;
}

/// DW_EH_PE_*: Linux Standard Base, Core, 10.5. Only the encodings that compilers emit for code.
static uint64_t take_pointer(struct place *place, uint8_t encoding) {
    enum { FORMAT = 0x0f, FOUR = 0x03, FOUR_SIGNED = 0x0b, RELATIVE = 0x70, TO_PLACE = 0x10 };
    uint64_t here = place->section->address + place->at, value = 0;
    switch (encoding & FORMAT) {
    case 0x00: case 0x04: case 0x0c:
        value = take(place, 8);
        break;
    case FOUR:
        value = take(place, 4);
        break;
    case FOUR_SIGNED:
        value = (uint64_t)(int64_t)(int32_t)take(place, 4);
        break;
    default:
        place->failed = true;
    }
    place->failed |= (encoding & RELATIVE) != 0 && (encoding & RELATIVE) != TO_PLACE;
    return value + ((encoding & RELATIVE) == TO_PLACE ? here : place->section->bias);
}

/// Makes room for one more element. \returns whether there is room.
static bool make_room(void *_Nullable *_Nonnull array, size_t *capacity, size_t count, size_t size) {
    if (count < *capacity)
        return true;
    size_t wanted = *capacity < 64 ? 64 : *capacity * 2;
    void *larger = count < MAX_ENTRIES ? realloc(*array, wanted * size) : NULL;
    if (!larger)
        return false;
    *array = larger;
    *capacity = wanted;
    return true;
}

/// For an .eh_frame: reads the encoding of code addresses from the augmentation. \returns false if it is not understood.
static bool take_augmentation(struct place *place, const char *letters, uint8_t *encoding) {
    *encoding = 0;
    if (letters[0] == 0)
        return true;
    if (letters[0] != 'z')
        return false;
    take_leb(place);
    for (const char *letter = letters + 1; *letter; letter++) {
        if (*letter == 'R')
            *encoding = (uint8_t)take(place, 1);
        else if (*letter == 'P')
            take_pointer(place, (uint8_t)take(place, 1) & 0x0f);
        else if (*letter == 'L')
            take(place, 1);
        else
            return *letter == 'S' || *letter == 'B';
    }
    return true;
}

/// Gives a .debug_frame's CIE the id of an .eh_frame's, 0, and a version without the sizes of addresses, which are removed.
/// \param header the number of bytes before these sizes.
static void convert(const struct section *section, struct common *common, size_t end, size_t header, bool has_sizes) {
    uint32_t length = (uint32_t)(end - common->at - 4);
    memset(section->bytes + common->at + 4, 0, 4);
    if (has_sizes) {
        common->shown = common->at + 2;
        length -= 2;
        memmove(section->bytes + common->shown, section->bytes + common->at, header);
        section->bytes[common->shown + 8] = 3;
    }
    memcpy(section->bytes + common->shown, &length, sizeof length);
}

/// \returns the length of the augmentation's name, of which `letters` holds the beginning.
static size_t take_letters(struct place *place, char letters[_Nonnull 8]) {
    size_t count = 0;
    memset(letters, 0, 8);
    for (char letter; (letter = (char)take(place, 1)) != 0 && !place->failed; count++)
        if (count < 7)
            letters[count] = letter;
    return count;
}

static void add_common(struct section *section, struct place place, size_t at) {
    struct common common = {.at = at, .shown = at};
    char letters[8];
    uint64_t version = take(&place, 1);
    bool is_short = take_letters(&place, letters) < sizeof letters, has_sizes = section->is_debug && version == 4;
    size_t header = place.at - at;
    uint64_t address_size = has_sizes ? take(&place, 1) : 8, selector_size = has_sizes ? take(&place, 1) : 0;
    take_leb(&place), take_leb(&place);  // the alignment factors of code and data
    version == 1 ? take(&place, 1) : take_leb(&place);  // the return address's register
    bool is_known = (version == 1 || version == 3 || has_sizes) && address_size == 8 && selector_size == 0 && is_short;
    bool fits = section->is_debug ? letters[0] == 0 : take_augmentation(&place, letters, &common.encoding);
    if (place.failed || !is_known || !fits ||
        !make_room((void **)&section->commons, &section->common_capacity, section->common_count, sizeof common))
        return;
    if (section->is_debug)
        convert(section, &common, place.end, header, has_sizes);
    section->commons[section->common_count++] = common;
}

/// Finds the CIEs and descriptions. Entries with the longer form of lengths, for sections of more than 4 GiB, are skipped.
static void survey(struct section *section) {
    for (size_t at = 0; section->length - at >= 8;) {
        struct place place = {section, at, section->length, false};
        uint64_t length = take(&place, 4);
        bool is_long = length == UINT32_MAX;
        if (is_long)
            length = take(&place, 8);
        if (place.failed || length > section->length - place.at)
            return;
        size_t next = place.at + length;
        if (length >= 4 && !is_long) {
            place.end = next;
            uint32_t number = (uint32_t)take(&place, 4);
            if (number == (section->is_debug ? UINT32_MAX : 0))
                add_common(section, place, at);
            else if (make_room((void **)&section->descriptions, &section->description_capacity, section->description_count,
                               sizeof *section->descriptions))
                section->descriptions[section->description_count++] = at;
        }
        at = next;
    }
}

static const struct common *_Nullable common_at(const struct section *section, uint64_t at) {
    size_t low = 0, high = section->common_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (section->commons[middle].at < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low < section->common_count && section->commons[low].at == at ? &section->commons[low] : NULL;
}

/// Reads the range of the description's code. \returns false if it is not understood, or not in the module.
static bool take_range(const struct stackcap_index *index, struct place *place, uint8_t encoding, struct entry *entry) {
    entry->start = take_pointer(place, encoding);
    entry->end = entry->start + take_pointer(place, encoding & 0x0f) - place->section->bias;  // a length has no base
    return !place->failed && entry->start >= index->origin.low && entry->end <= index->origin.high && entry->start < entry->end;
}

static void add_description(struct stackcap_index *index, const struct section *section, size_t at) {
    struct place place = {section, at, section->length, false};
    place.end = at + 4 + take(&place, 4);
    size_t link = place.at;
    uint64_t distance = take(&place, 4);
    const struct common *common = common_at(section, section->is_debug ? distance : link - distance);
    struct entry entry = {.description = section->address + at};
    size_t address_at = place.at;
    if (!common || !take_range(index, &place, common->encoding, &entry) ||
        !make_room((void **)&index->entries, &index->capacity, index->count, sizeof *index->entries))
        return;
    if (section->is_debug) {
        uint32_t back = (uint32_t)(link - common->shown);
        memcpy(section->bytes + link, &back, sizeof back);
        memcpy(section->bytes + address_at, &entry.start, sizeof entry.start);
    }
    index->entries[index->count++] = entry;
}

static void add_section(struct stackcap_index *index, struct section *section) {
    survey(section);
    for (size_t i = 0; i < section->description_count; i++)
        add_description(index, section, section->descriptions[i]);
    free(section->commons);
    free(section->descriptions);
}

static int by_start(const void *one, const void *other) {
    const struct entry *a = one, *b = other;
    return (a->start > b->start) - (a->start < b->start);
}

/// An .eh_frame is decoded with the address it has in the target, so that position-relative values are right.
static void fill(stackcap_unwinder *unwinder, struct stackcap_index *index, bool has_table) {
    struct stackcap_sections sections;
    stackcap_sections_read(unwinder, &index->origin, &sections);
    if (sections.loaded && !has_table) {
        uint64_t address = index->origin.base + sections.loaded_at;
        struct section loaded = {.bytes = sections.loaded, .length = sections.loaded_length, .address = address};
        loaded.bias = index->origin.base;
        add_section(index, &loaded);
    }
    if (sections.debug) {
        index->bytes = sections.debug;
        index->length = sections.debug_length;
        sections.debug = NULL;
        struct section debug = {.bytes = index->bytes, .length = index->length, .address = index->shown_at, .is_debug = true};
        debug.bias = index->origin.base;
        add_section(index, &debug);
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
static const struct entry *_Nullable entry_before(const struct stackcap_index *index, uint64_t address) {
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
    const struct entry *entry = index ? entry_before(index, address) : NULL;
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
