/// The modules of a process, and the unwind rows in their files: loader.c, modules.c, sections.c, index.c.
#pragma once

#include "stack_memory.h"

#pragma clang assume_nonnull begin

// loader.c

enum { LOADER_ADDS = 6 };

/// The state of this process's dynamic loader. As long as it is the same, no module was loaded or unloaded.
struct stackcap_loader {
    uint64_t adds[LOADER_ADDS];  ///< The number of modules ever loaded. Several words may have this value by chance.
    unsigned modules;            ///< The number of modules now loaded.
    int at_work;                 ///< r_state: see link.h.
};

/// A few loads: takes no lock, async-signal-safe.
void stackcap_loader_read(struct stackcap_loader *loader);

/// Whether modules were loaded or unloaded since then. Also false if that cannot be determined: in a static program.
bool stackcap_loader_has_moved(const struct stackcap_loader *since);

// modules.c

/// The range of a module, and its .eh_frame_hdr; 0 if it has none. The base is to be added to the addresses in its headers.
struct stackcap_module {
    uint64_t start, end, table, base;
};

struct stackcap_index;

/// The mappings of another process, as /proc/PID/maps showed them when it was last read.
struct stackcap_modules {
    int directory;  ///< /proc/PID, or /proc/PID/task/TID.
    char *_Nullable text;
    size_t length, capacity;
    struct stackcap_mapping *_Nullable mappings;  ///< Sorted by address.
    size_t count, mapping_capacity;
    uint64_t read_at_ns, read_cost_ns;
    struct stackcap_index *_Nullable indexes;
};

/// Reads the maps. Allocates. \returns 0 or an errno: ESRCH for a process that has ended.
int stackcap_modules_read(struct stackcap_modules *modules);
void stackcap_modules_finish(struct stackcap_modules *modules);

/// Reads the maps again, but spends at most 5 % of the time on it: the maps of a large process take milliseconds. Half a minute after the last
/// reading in any case.
int stackcap_modules_keep_up(struct stackcap_modules *modules);

/// Finds the module around the address, from the headers in its memory.
bool stackcap_modules_find(stackcap_unwinder *unwinder, uint64_t address, struct stackcap_module *module);

/// The first mapped address, 0 if there is none.
uint64_t stackcap_modules_start(const struct stackcap_modules *modules);

/// The bounds of the mapping around the address. \returns false if there is none.
bool stackcap_modules_bounds(const struct stackcap_modules *modules, uint64_t address, uint64_t *low, uint64_t *high);

/// The file of a module.
struct stackcap_origin {
    uint64_t at, end;        ///< The mapping with its ELF header.
    uint64_t base;           ///< To be added to the addresses in the headers.
    uint64_t low, high;      ///< The range of the whole module.
    uint64_t device, inode;  ///< From the maps.
    const char *path;        ///< Valid until the maps are read again.
};

/// Determines the file of the module around the address. \returns false if there is none.
/// \param has_table whether it has a search table for its unwind rows.
bool stackcap_modules_origin(stackcap_unwinder *unwinder, uint64_t address, struct stackcap_origin *origin, bool *has_table);

/// Whether the address is executable. Reads the maps again if it is not, and they are older than the last copy.
bool stackcap_modules_is_code(stackcap_unwinder *unwinder, uint64_t address);

// sections.c

enum { STACKCAP_MAX_SECTION = 64 * 1024 * 1024 };

/// Unwind rows from the file: .eh_frame, which is loaded, and .debug_frame, which is for debuggers only.
struct stackcap_sections {
    uint8_t *_Nullable loaded, *_Nullable debug;
    size_t loaded_length, debug_length;
    uint64_t loaded_at;  ///< Before the base is added.
    /// Found, whether it could be read or not: only the first of each is tried. A file may have been made with thousands that take long.
    bool has_loaded, has_debug;
};

/// Reads them from the module's file, if that can be opened and is the mapped one. Allocates; free the result in any case.
void stackcap_sections_read(stackcap_unwinder *unwinder, const struct stackcap_origin *origin, struct stackcap_sections *sections);
void stackcap_sections_free(struct stackcap_sections *sections);

// index.c

struct stackcap_indexed_row {
    uint64_t start, end;   ///< The function.
    uint64_t description;  ///< The address of its row, for libunwind.
};

enum stackcap_indexed {
    INDEXED_NOT,
    INDEXED_BETWEEN,  ///< Between two functions: the row is that of the function before.
    INDEXED_FOUND,
};

/// Finds the row of an address of another process in our own index. Creates the index on first use: allocates, and reads a
/// file.
enum stackcap_indexed stackcap_index_find(stackcap_unwinder *unwinder, uint64_t address, struct stackcap_indexed_row *row);

/// The address of a search table with one entry, which fits every address and refers to the table's base.
uint64_t stackcap_index_table(void);

/// Reads from that table, and from rows that are not in the target's memory. \returns false for another address.
bool stackcap_index_read(const struct stackcap_modules *modules, uint64_t address, void *to, size_t length);

void stackcap_indexes_free(struct stackcap_modules *modules);

#pragma clang assume_nonnull end
