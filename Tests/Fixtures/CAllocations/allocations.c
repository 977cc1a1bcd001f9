#include "CAllocations.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define COUNTS 0
#else
#define COUNTS 1
#endif

// Defined in the executable itself, so the TLS model is initial-exec and access does not allocate.
static _Thread_local uint64_t count;

uint64_t allocations_of_this_thread(void) { return count; }

bool allocations_are_counted(void) { return COUNTS; }

void mark_in_trace(const char *text) {
    int saved = errno;
    ssize_t written = write(-1, text, strlen(text));
    (void)written;
    errno = saved;
}

#if COUNTS

// glibc's internal names of the functions that it exports under the standard names.
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

void *malloc(size_t size) {
    count++;
    return __libc_malloc(size);
}

void *calloc(size_t members, size_t size) {
    count++;
    return __libc_calloc(members, size);
}

void *realloc(void *block, size_t size) {
    count++;
    return __libc_realloc(block, size);
}

void *memalign(size_t alignment, size_t size) {
    count++;
    return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **block, size_t alignment, size_t size) {
    if (alignment % sizeof(void *) != 0 || (alignment & (alignment - 1)) != 0) { return EINVAL; }
    void *made = memalign(alignment, size);
    if (made == NULL && size != 0) { return ENOMEM; }
    *block = made;
    return 0;
}

void free(void *block) { __libc_free(block); }

#endif
