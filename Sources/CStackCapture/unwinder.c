/// The buffers of one unwinder.
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

/// Populated, so that neither the handler nor a first capture under memory pressure waits for a page.
static void *_Nullable map(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void unmap(void *_Nullable memory, size_t size) {
    if (memory)
        munmap(memory, size);
}

int stackcap_unwinder_prepare(stackcap_unwinder *unwinder) {
    unwinder->reader.file = -1;
    unwinder->copy.bytes = map(STACKCAP_MAX_COPY);
    unwinder->pages.bytes = map((size_t)PAGE_SLOTS * PAGE_SIZE);
    unwinder->frames = calloc(STACKCAP_MAX_FRAMES, sizeof *unwinder->frames);
    bool complete = unwinder->copy.bytes && unwinder->pages.bytes && unwinder->frames;
    int error = complete ? stackcap_reader_prepare(&unwinder->reader, false) : ENOMEM;
    return error ? error : stackcap_space_prepare(unwinder);  // which reads memory
}

void stackcap_unwinder_finish(stackcap_unwinder *unwinder) {
    stackcap_reader_finish(&unwinder->reader);
    if (unwinder->space)
        unw_destroy_addr_space(unwinder->space);
    unmap(unwinder->copy.bytes, STACKCAP_MAX_COPY);
    unmap(unwinder->pages.bytes, (size_t)PAGE_SLOTS * PAGE_SIZE);
    free(unwinder->frames);
}
