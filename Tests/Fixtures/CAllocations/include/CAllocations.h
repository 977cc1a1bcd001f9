#pragma once

// Counts allocations: linking this replaces the allocator's functions in the whole program by ones that count and pass on. For
// fixtures alone.

#include <stdbool.h>
#include <stdint.h>

/// How often the calling thread has allocated: malloc, calloc, realloc, posix_memalign, aligned_alloc and memalign. Async-signal-safe.
uint64_t allocations_of_this_thread(void);

/// False under a sanitizer, which has an allocator of its own: then all counts are zero.
bool allocations_are_counted(void);

/// Leaves a mark in a system call trace: a write of `text` to no descriptor, which fails. Async-signal-safe; leaves errno alone.
void mark_in_trace(const char *_Nonnull text);
