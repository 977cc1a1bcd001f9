/// Reads a section of unwind rows from a module's file: its CIEs, which hold what several descriptions have in common, and its
/// descriptions (FDEs), one for each function. The formats: DWARF 5, 6.4.1, for .debug_frame; Linux Standard Base, Core, 10.6, for
/// .eh_frame. The bytes may be damaged, or made by a hostile process: nothing is read beyond the section's end.
#include "index.h"

#include <stdlib.h>
#include <string.h>

struct place {
    const struct stackcap_row_section *section;
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
    enum {
        FORMAT = 0x0f, WORD = 0x00, EIGHT = 0x04, EIGHT_SIGNED = 0x0c, FOUR = 0x03, FOUR_SIGNED = 0x0b,
        RELATIVE = 0x70, TO_PLACE = 0x10,
    };
    uint64_t here = place->section->address + place->at, value = 0;
    switch (encoding & FORMAT) {
    case WORD: case EIGHT: case EIGHT_SIGNED:
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
    void *larger = count < STACKCAP_MAX_ENTRIES ? realloc(*array, wanted * size) : NULL;
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
static void convert(const struct stackcap_row_section *section, struct stackcap_common *common, size_t end, size_t header, bool has_sizes) {
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

static void add_common(struct stackcap_row_section *section, struct place place, size_t at) {
    struct stackcap_common common = {.at = at, .shown = at};
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
static void survey(struct stackcap_row_section *section) {
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

static const struct stackcap_common *_Nullable common_at(const struct stackcap_row_section *section, uint64_t at) {
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
static bool take_range(const struct stackcap_index *index, struct place *place, uint8_t encoding, struct stackcap_index_entry *entry) {
    entry->start = take_pointer(place, encoding);
    entry->end = entry->start + take_pointer(place, encoding & 0x0f) - place->section->bias;  // a length has no base
    return !place->failed && entry->start >= index->origin.low && entry->end <= index->origin.high && entry->start < entry->end;
}

static void add_description(struct stackcap_index *index, const struct stackcap_row_section *section, size_t at) {
    struct place place = {section, at, section->length, false};
    place.end = at + 4 + take(&place, 4);
    size_t link = place.at;
    uint64_t distance = take(&place, 4);
    const struct stackcap_common *common = common_at(section, section->is_debug ? distance : link - distance);
    struct stackcap_index_entry entry = {.description = section->address + at};
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

void stackcap_index_add_section(struct stackcap_index *index, struct stackcap_row_section *section) {
    survey(section);
    for (size_t i = 0; i < section->description_count; i++)
        add_description(index, section, section->descriptions[i]);
    free(section->commons);
    free(section->descriptions);
}
