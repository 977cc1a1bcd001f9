#pragma once

// Where a library's code lies.

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#pragma clang assume_nonnull begin

/// From the first to the last executable byte of a library. Empty while it is not known.
typedef struct {
    _Atomic(uintptr_t) low, high;
} code_range;

/// Fills in where the code lies that `address` is part of; leaves the range as it is if that is nowhere. Takes the loader's lock.
void code_around(const void *_Nullable address, code_range *range);

/// Async-signal-safe. Asked while the range is being filled in, it has nothing: `high` is 0 until it is known, and stored last.
static inline bool code_has(const code_range *range, uintptr_t address) {
    return address >= atomic_load_explicit(&range->low, memory_order_relaxed) &&
           address < atomic_load_explicit(&range->high, memory_order_relaxed);
}

#pragma clang assume_nonnull end
