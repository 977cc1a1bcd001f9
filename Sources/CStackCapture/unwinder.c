/// The buffers of one unwinder.
#include "walk.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

/// The first bytes of the buffer for a stack's copy, which are populated.
enum { STACKCAP_POPULATED = 128 * 1024 };

/// The memory's first part is populated: the handler must not wait for a page, and few stacks are larger. The rest takes no memory until it
/// is used.
static void *_Nullable map(size_t size, size_t populated) {
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    for (size_t at = 0; at < populated; at += PAGE_SIZE)
        *(volatile char *)(memory + at) = 0;
    return memory;
}

static void unmap(void *_Nullable memory, size_t size) {
    if (memory)
        munmap(memory, size);
}

int stackcap_unwinder_prepare(stackcap_unwinder *unwinder) {
    unwinder->reader.file = -1;
    unwinder->walk_until_ns = UINT64_MAX;  // no limit before the first walk
    unwinder->copy.bytes = map(STACKCAP_MAX_COPY, STACKCAP_POPULATED);
    unwinder->pages.bytes = map((size_t)PAGE_SLOTS * PAGE_SIZE, 0);
    unwinder->rows.slots = map(ROW_SLOTS * sizeof *unwinder->rows.slots, 0);
    unwinder->programs = map(MAX_PROGRAM_BYTES, 0);
    unwinder->frames = calloc(STACKCAP_MAX_FRAMES, sizeof *unwinder->frames);
    bool complete = unwinder->copy.bytes && unwinder->pages.bytes && unwinder->rows.slots && unwinder->programs && unwinder->frames;
    int error = complete ? stackcap_reader_prepare(&unwinder->reader, false) : ENOMEM;
    return error ? error : stackcap_space_prepare(unwinder);  // which reads memory
}

void stackcap_unwinder_finish(stackcap_unwinder *unwinder) {
    stackcap_reader_finish(&unwinder->reader);
    if (unwinder->space)
        unw_destroy_addr_space(unwinder->space);
    unmap(unwinder->copy.bytes, STACKCAP_MAX_COPY);
    unmap(unwinder->pages.bytes, (size_t)PAGE_SLOTS * PAGE_SIZE);
    unmap(unwinder->rows.slots, ROW_SLOTS * sizeof *unwinder->rows.slots);
    unmap(unwinder->programs, MAX_PROGRAM_BYTES);
    free(unwinder->frames);
}
