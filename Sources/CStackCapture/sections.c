/// Sections of a file that another process has mapped: the unwind tables that no program header refers to. The file is checked
/// to be the mapped one, and its contents are not trusted.
#include "unwinder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <zlib.h>

enum {
    MAX_SECTIONS = 4096,
    MAX_NOTES = 4096,
    MAX_PATH = 4096 + 32,
};

static bool read_exactly(int file, void *to, size_t length, uint64_t offset) {
    for (size_t done = 0; done < length;) {
        if (offset > INT64_MAX - length)
            return false;
        ssize_t count = pread(file, (uint8_t *)to + done, length - done, (off_t)(offset + done));
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return false;
        done += (size_t)count;
    }
    return true;
}

// The file.

/// Checks that the path is a regular file before opening it: it may name a pipe or a device, and opening that for reading can
/// block or have side effects. \param flag O_NOFOLLOW, or 0 if the path is one of /proc's own links.
static int open_regular(int directory, const char *path, int flag) {
    struct stat status;
    char place[32];
    int file = -1, found = openat(directory, path, O_PATH | O_CLOEXEC | flag);
    if (found < 0)
        return -1;
    snprintf(place, sizeof place, "/proc/thread-self/fd/%d", found);
    if (fstat(found, &status) == 0 && S_ISREG(status.st_mode))
        file = open(place, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    close(found);
    return file;
}

static bool is_mapped_inode(int file, const struct stackcap_origin *origin) {
    struct stat status;
    return fstat(file, &status) == 0 && status.st_ino == origin->inode &&
           ((uint64_t)major(status.st_dev) << 32 | minor(status.st_dev)) == origin->device;
}

static bool is_same_note(stackcap_unwinder *unwinder, int file, const struct stackcap_origin *origin, const Elf64_Phdr *part) {
    uint8_t ours[MAX_NOTES], theirs[MAX_NOTES];
    return part->p_filesz <= MAX_NOTES && read_exactly(file, ours, part->p_filesz, part->p_offset) &&
           stackcap_peek(unwinder, origin->base + part->p_vaddr, theirs, part->p_filesz) &&
           memcmp(ours, theirs, part->p_filesz) == 0;
}

/// Whether all notes, including a build id, are the same in the file and in memory. The first notes alone may only list
/// required processor features, which are the same in most files.
static bool has_same_notes(stackcap_unwinder *unwinder, int file, const struct stackcap_origin *origin, const Elf64_Ehdr *header) {
    bool has_notes = false;
    for (unsigned i = 0; i < header->e_phnum; i++) {
        Elf64_Phdr part;
        if (!read_exactly(file, &part, sizeof part, header->e_phoff + i * sizeof part))
            return false;
        if (part.p_type != PT_NOTE || part.p_filesz == 0)
            continue;
        if (!is_same_note(unwinder, file, origin, &part))
            return false;
        has_notes = true;
    }
    return has_notes;
}

/// Some file systems report one inode in a process's maps and another from fstat(2): then the notes decide.
static bool is_mapped_file(stackcap_unwinder *unwinder, int file, const struct stackcap_origin *origin) {
    Elf64_Ehdr header, mapped;
    return read_exactly(file, &header, sizeof header, 0) && stackcap_peek(unwinder, origin->at, &mapped, sizeof mapped) &&
           memcmp(&header, &mapped, sizeof header) == 0 && header.e_phentsize == sizeof(Elf64_Phdr) &&
           (is_mapped_inode(file, origin) || has_same_notes(unwinder, file, origin, &header));
}

/// Tries the mapping's own link, which works for deleted files but needs a privilege; then the process's program; then its
/// path.
static int open_mapped(stackcap_unwinder *unwinder, const struct stackcap_origin *origin) {
    char mapping[64], path[MAX_PATH];
    snprintf(mapping, sizeof mapping, "map_files/%llx-%llx", (unsigned long long)origin->at, (unsigned long long)origin->end);
    snprintf(path, sizeof path, "root%s", origin->path);
    const char *candidates[] = {mapping, "exe", path};
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
        int file = open_regular(unwinder->modules->directory, candidates[i], candidates[i] == path ? O_NOFOLLOW : 0);
        if (file >= 0 && is_mapped_file(unwinder, file, origin))
            return file;
        if (file >= 0)
            close(file);
    }
    return -1;
}

// Its sections.

/// \returns the section's contents and their `length`, or NULL with `length` 0.
static uint8_t *_Nullable load(int file, uint64_t offset, uint64_t size, size_t *length) {
    *length = 0;
    uint8_t *bytes = size > 0 && size <= STACKCAP_MAX_SECTION ? malloc(size) : NULL;
    if (bytes && !read_exactly(file, bytes, size, offset)) {
        free(bytes);
        return NULL;
    }
    *length = bytes ? size : 0;
    return bytes;
}

static uint8_t *_Nullable inflated(const uint8_t *packed, size_t packed_length, uint64_t size, size_t *length) {
    uLongf whole = size;
    uint8_t *bytes = size > 0 && size <= STACKCAP_MAX_SECTION ? malloc(size) : NULL;
    if (bytes && (uncompress(bytes, &whole, packed, packed_length) != Z_OK || whole != size)) {
        free(bytes);
        bytes = NULL;
    }
    *length = bytes ? size : 0;
    return bytes;
}

/// The older format has a different section name, ".zdebug_frame", and begins with a mark and the size, most significant byte
/// first.
static uint64_t size_behind_mark(const uint8_t *packed) {
    uint64_t size = 0;
    for (int i = 4; i < 12; i++)
        size = size << 8 | packed[i];
    return memcmp(packed, "ZLIB", 4) == 0 ? size : 0;
}

/// Loads a debug section, which may be compressed.
static uint8_t *_Nullable load_packed(int file, const Elf64_Shdr *section, bool is_old_way, size_t *length) {
    uint8_t *packed = load(file, section->sh_offset, section->sh_size, length), *bytes = NULL;
    size_t packed_length = *length;
    Elf64_Chdr header = {0};
    if (!is_old_way && !(section->sh_flags & SHF_COMPRESSED))
        return packed;
    *length = 0;
    if (packed && is_old_way && packed_length > 12)
        bytes = inflated(packed + 12, packed_length - 12, size_behind_mark(packed), length);
    else if (packed && !is_old_way && packed_length > sizeof header) {
        memcpy(&header, packed, sizeof header);
        if (header.ch_type == ELFCOMPRESS_ZLIB)
            bytes = inflated(packed + sizeof header, packed_length - sizeof header, header.ch_size, length);
    }
    free(packed);
    return bytes;
}

static void take_section(int file, const Elf64_Shdr *section, const char *name, struct stackcap_sections *sections) {
    bool is_old_way = strcmp(name, ".zdebug_frame") == 0;
    if (section->sh_type == SHT_NOBITS)
        return;
    if (strcmp(name, ".eh_frame") == 0 && !sections->has_loaded) {
        sections->has_loaded = true;
        sections->loaded = load(file, section->sh_offset, section->sh_size, &sections->loaded_length);
        sections->loaded_at = section->sh_addr;
    } else if ((is_old_way || strcmp(name, ".debug_frame") == 0) && !sections->has_debug) {
        sections->has_debug = true;
        sections->debug = load_packed(file, section, is_old_way, &sections->debug_length);
    }
}

static void read_sections(int file, struct stackcap_sections *sections) {
    Elf64_Ehdr header;
    Elf64_Shdr names, section;
    if (!read_exactly(file, &header, sizeof header, 0) || header.e_shentsize != sizeof section || header.e_shnum > MAX_SECTIONS ||
        header.e_shstrndx >= header.e_shnum ||
        !read_exactly(file, &names, sizeof names, header.e_shoff + header.e_shstrndx * sizeof names))
        return;
    for (unsigned i = 0; i < header.e_shnum; i++) {
        char name[16] = "";
        if (read_exactly(file, &section, sizeof section, header.e_shoff + i * sizeof section) &&
            read_exactly(file, name, sizeof name - 1, names.sh_offset + section.sh_name))
            take_section(file, &section, name, sections);
    }
}

void stackcap_sections_read(stackcap_unwinder *unwinder, const struct stackcap_origin *origin, struct stackcap_sections *sections) {
    memset(sections, 0, sizeof *sections);
    int file = open_mapped(unwinder, origin);
    if (file < 0)
        return;
    read_sections(file, sections);
    close(file);
}

void stackcap_sections_free(struct stackcap_sections *sections) {
    free(sections->loaded);
    free(sections->debug);
    memset(sections, 0, sizeof *sections);
}
