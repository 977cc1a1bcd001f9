#define _GNU_SOURCE
#include "code.h"

#include <link.h>
#include <stdatomic.h>

struct search {
    uintptr_t address;
    code_range *range;
};

static int look_in(struct dl_phdr_info *info, size_t size, void *context) {
    (void)size;
    const struct search *search = context;
    uintptr_t low = UINTPTR_MAX, high = 0;
    bool is_it = false;
    for (int number = 0; number < info->dlpi_phnum; number++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[number];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X)) { continue; }
        uintptr_t start = info->dlpi_addr + part->p_vaddr;
        if (start < low) { low = start; }
        if (start + part->p_memsz > high) { high = start + part->p_memsz; }
        is_it |= search->address - start < part->p_memsz;
    }
    if (!is_it) { return 0; }
    atomic_store(&search->range->low, low);
    atomic_store(&search->range->high, high);
    return 1;
}

void code_around(const void *address, code_range *range) {
    struct search search = {.address = (uintptr_t)address, .range = range};
    if (address) { dl_iterate_phdr(look_in, &search); }
}
