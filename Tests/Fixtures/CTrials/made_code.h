/// Code that no compiler made: it has no tables, and lies alone, between pages that cannot be read.
#pragma once

#include "blocking.h"

#pragma clang assume_nonnull begin

typedef struct made_code {
    void *memory;
    void *function;
} made_code;

/// \param ends_page Whether the code's last byte is its page's, else its first is.
made_code make_code(const void *code, size_t size, bool ends_page);
void unmake_code(made_code code);

#pragma clang assume_nonnull end
