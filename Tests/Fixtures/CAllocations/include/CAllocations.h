#pragma once

// Counts allocations: a program that links this gets allocator functions that count and forward each call. Only for fixtures.

#include <stdbool.h>
#include <stdint.h>

/// The number of allocations of the calling thread: malloc, calloc,
/// realloc, posix_memalign, aligned_alloc and memalign. Async-signal-safe.
uint64_t allocations_of_this_thread(void);

/// False with a sanitizer, which has its own allocator: then all counts are zero.
bool allocations_are_counted(void);

/// Writes a mark into a system call trace: a write of `text` to no descriptor, which fails. Async-signal-safe; preserves errno.
void mark_in_trace(const char *_Nonnull text);
