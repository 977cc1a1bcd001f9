/// An index of unwind rows for one module of another process: index.c, index_section.c.
#pragma once

#include "unwinder.h"

#pragma clang assume_nonnull begin

/// The description of one function, and its range.
struct stackcap_index_entry {
    uint64_t start, end;
    uint64_t description;
};

struct stackcap_index {
    struct stackcap_index *_Nullable next;
    struct stackcap_origin origin;
    struct stackcap_index_entry *_Nullable entries;  ///< Sorted by start.
    size_t count, capacity;
    uint8_t *_Nullable bytes;  ///< A .debug_frame converted to an .eh_frame,
    size_t length;
    uint64_t shown_at;  ///< … and the address at which libunwind sees it.
};

enum { STACKCAP_MAX_ENTRIES = 1 << 20 };

// index_section.c

/// A CIE: the common part of several descriptions.
struct stackcap_common {
    size_t at;
    size_t shown;  ///< Its offset after conversion to a form that libunwind reads.
    uint8_t encoding;
};

/// A section of unwind rows, as it was read from the module's file.
struct stackcap_row_section {
    uint8_t *bytes;
    size_t length;
    uint64_t address;  ///< The address of the bytes in the target, or as shown to libunwind.
    uint64_t bias;     ///< To be added to absolute addresses.
    bool is_debug;
    // While it is read:
    struct stackcap_common *_Nullable commons;
    size_t common_count, common_capacity;
    size_t *_Nullable descriptions;
    size_t description_count, description_capacity;
};

/// Adds the functions that a section describes to the index, unsorted. Converts a .debug_frame to an .eh_frame in its place. Leaves out
/// what it does not understand, and functions beyond STACKCAP_MAX_ENTRIES. The bytes stay the caller's. Not in a handler; allocates.
void stackcap_index_add_section(struct stackcap_index *index, struct stackcap_row_section *section);

#pragma clang assume_nonnull end
