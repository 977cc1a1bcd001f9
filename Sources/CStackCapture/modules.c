/// The modules of another process: from /proc/PID/maps, and the ELF headers in its memory.
#include "unwinder.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PROGRAM_HEADERS = 64 };

struct stackcap_mapping {
    uint64_t start, end, offset, device, inode;
    const char *path;
    bool is_module, is_code;
    /// For the mapping with the ELF header: the header's contents, once they were read.
    bool is_known;
    struct stackcap_module module;
};

// Reading the maps.

/// Makes room for `needed` elements of this size. \returns 0 or an errno.
static int grow(void *_Nullable *_Nonnull array, size_t *capacity, size_t needed, size_t size) {
    if (needed <= *capacity)
        return 0;
    size_t wanted = needed < 2 * *capacity ? 2 * *capacity : needed;
    void *larger = realloc(*array, wanted * size);
    if (!larger)
        return ENOMEM;
    *array = larger;
    *capacity = wanted;
    return 0;
}

/// A process can fill its maps with long names. The 250,000 mappings of a large database take half of this.
enum { MAX_TEXT = 64 * 1024 * 1024 };

static int read_all(struct stackcap_modules *modules, int file) {
    enum { PART = 64 * 1024 };
    modules->length = 0;
    for (;;) {
        int error = grow((void **)&modules->text, &modules->capacity, modules->length + PART + 1, 1);
        if (error)
            return error;
        ssize_t count = read(file, modules->text + modules->length, PART);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return errno;
        modules->text[modules->length + (size_t)count] = 0;
        if (count == 0 || modules->length >= MAX_TEXT)
            return modules->length > 0 ? 0 : ESRCH;  // a process that has ended has no memory
        modules->length += (size_t)count;
    }
}

/// A line is `start-end permissions offset major:minor inode path`: proc(5).
static bool parse_line(const char *line, struct stackcap_mapping *mapping) {
    enum { EXECUTABLE = 3, PERMISSIONS_LENGTH = 6 };  // " r-xp "
    char *at;
    memset(mapping, 0, sizeof *mapping);
    mapping->start = strtoull(line, &at, 16);
    if (*at != '-')
        return false;
    mapping->end = strtoull(at + 1, &at, 16);
    if (*at != ' ' || strnlen(at, PERMISSIONS_LENGTH) < PERMISSIONS_LENGTH)
        return false;
    mapping->is_code = at[EXECUTABLE] == 'x';
    mapping->offset = strtoull(at + PERMISSIONS_LENGTH, &at, 16);
    mapping->device = strtoull(at, &at, 16) << 32;
    if (*at == ':')
        mapping->device |= strtoull(at + 1, &at, 16);
    mapping->inode = strtoull(at, &at, 10);
    at += strspn(at, " ");
    mapping->path = at;
    mapping->is_module = *at == '/' || strncmp(at, "[vdso]", 6) == 0;
    return mapping->start < mapping->end;
}

static int parse(struct stackcap_modules *modules) {
    modules->count = 0;
    char *line = modules->text;
    while (line && *line) {
        int error = grow((void **)&modules->mappings, &modules->mapping_capacity, modules->count + 1, sizeof *modules->mappings);
        if (error)
            return error;
        char *end = strchr(line, '\n');
        if (end)
            *end = 0;
        if (parse_line(line, &modules->mappings[modules->count]))
            modules->count++;
        line = end ? end + 1 : NULL;
    }
    return 0;
}

int stackcap_modules_read(struct stackcap_modules *modules) {
    uint64_t began = stackcap_now_ns();
    modules->count = 0;
    int file = openat(modules->directory, "maps", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return errno;
    int error = read_all(modules, file);
    close(file);
    if (!error)
        error = parse(modules);
    modules->read_at_ns = stackcap_now_ns();
    modules->read_cost_ns = modules->read_at_ns - began;
    return error;
}

/// If this process stood still while it read the maps, that took no work.
static const uint64_t longest_pause_ns = 30000000000;

int stackcap_modules_keep_up(struct stackcap_modules *modules) {
    uint64_t pause = 20 * modules->read_cost_ns;
    bool is_recent = stackcap_now_ns() - modules->read_at_ns < (pause < longest_pause_ns ? pause : longest_pause_ns);
    return modules->count > 0 && is_recent ? 0 : stackcap_modules_read(modules);
}

void stackcap_modules_finish(struct stackcap_modules *modules) {
    stackcap_indexes_free(modules);
    free(modules->text);
    free(modules->mappings);
    memset(modules, 0, sizeof *modules);
}

// Looking up.

static struct stackcap_mapping *_Nullable mapping_around(const struct stackcap_modules *modules, uint64_t address) {
    size_t low = 0, high = modules->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (modules->mappings[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low < modules->count && modules->mappings[low].start <= address ? &modules->mappings[low] : NULL;
}

uint64_t stackcap_modules_start(const struct stackcap_modules *modules) {
    return modules->count > 0 ? modules->mappings[0].start : 0;
}

bool stackcap_modules_bounds(const struct stackcap_modules *modules, uint64_t address, uint64_t *low, uint64_t *high) {
    const struct stackcap_mapping *mapping = mapping_around(modules, address);
    if (!mapping)
        return false;
    *low = mapping->start;
    *high = mapping->end;
    return true;
}

/// How far behind its file's header a mapping may be. The loader maps a file in one piece, which permissions divide into a few. A process can be
/// made whose mappings, as many as 65,000, are all of one file: then each address would take that many steps.
enum { MOST_PARTS = 1024 };

/// The closest mapping below with the start of the same file: there is one for each time that the file is loaded.
static struct stackcap_mapping *_Nullable header_of(const struct stackcap_modules *modules, struct stackcap_mapping *mapping) {
    if (!mapping->is_module)
        return NULL;
    size_t index = (size_t)(mapping - modules->mappings);
    for (size_t i = 0; i <= index && i <= MOST_PARTS; i++) {
        struct stackcap_mapping *at = &modules->mappings[index - i];
        if (at->is_module && at->offset == 0 && at->inode == mapping->inode && at->device == mapping->device)
            return at;
    }
    return NULL;
}

/// Reads the module's range. Without ELF headers its end stays 0.
static void read_headers(stackcap_unwinder *unwinder, uint64_t at, struct stackcap_module *module) {
    Elf64_Ehdr header;
    Elf64_Phdr parts[MAX_PROGRAM_HEADERS];
    *module = (struct stackcap_module){0, 0, 0, 0};
    if (!stackcap_peek(unwinder, at, &header, sizeof header) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof *parts || header.e_phnum > MAX_PROGRAM_HEADERS ||
        !stackcap_peek(unwinder, at + header.e_phoff, parts, header.e_phnum * sizeof *parts))
        return;
    uint64_t base = at, low = UINT64_MAX, high = 0, table = 0;
    for (int i = 0; i < header.e_phnum; i++) {
        const Elf64_Phdr *part = &parts[i];
        if (part->p_type == PT_GNU_EH_FRAME)
            table = part->p_vaddr;
        if (part->p_type != PT_LOAD)
            continue;
        if (part->p_offset == 0)
            base = at - part->p_vaddr;
        low = part->p_vaddr < low ? part->p_vaddr : low;
        high = part->p_vaddr + part->p_memsz > high ? part->p_vaddr + part->p_memsz : high;
    }
    if (low < high)
        *module = (struct stackcap_module){base + low, base + high, table ? base + table : 0, base};
}

/// The header's mapping with its module, read on first use. \returns NULL if there is none.
static struct stackcap_mapping *_Nullable find_header(stackcap_unwinder *unwinder, uint64_t address) {
    struct stackcap_mapping *mapping = mapping_around(unwinder->modules, address);
    struct stackcap_mapping *header = mapping ? header_of(unwinder->modules, mapping) : NULL;
    if (!header)
        return NULL;
    if (!header->is_known) {
        read_headers(unwinder, header->start, &header->module);
        header->is_known = header->module.end != 0;
    }
    return address >= header->module.start && address < header->module.end ? header : NULL;
}

bool stackcap_modules_find(stackcap_unwinder *unwinder, uint64_t address, struct stackcap_module *module) {
    const struct stackcap_mapping *header = find_header(unwinder, address);
    if (header)
        *module = header->module;
    return header != NULL;
}

bool stackcap_modules_origin(stackcap_unwinder *unwinder, uint64_t address, struct stackcap_origin *origin, bool *has_table) {
    const struct stackcap_mapping *header = find_header(unwinder, address);
    if (!header || header->inode == 0)
        return false;
    const struct stackcap_module *module = &header->module;
    *has_table = module->table != 0;
    *origin = (struct stackcap_origin){
        .at = header->start, .end = header->end, .base = module->base, .low = module->start, .high = module->end,
        .device = header->device, .inode = header->inode, .path = header->path,
    };
    return true;
}

bool stackcap_modules_is_code(stackcap_unwinder *unwinder, uint64_t address) {
    const struct stackcap_mapping *mapping = mapping_around(unwinder->modules, address);
    if (mapping && mapping->is_code)
        return true;
    if (unwinder->modules->read_at_ns >= unwinder->copy.made_ns || stackcap_modules_read(unwinder->modules) != 0)
        return false;
    mapping = mapping_around(unwinder->modules, address);
    return mapping && mapping->is_code;
}
