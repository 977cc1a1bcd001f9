/// Code that was not compiled: it has no tables, and is isolated between inaccessible pages.
#pragma once

#include "blocking.h"

#pragma clang assume_nonnull begin

typedef struct made_code {
    void *memory;
    void *function;
} made_code;

/// \param ends_page Whether the code ends at the end of its page; otherwise it starts at the beginning of the page.
made_code make_code(const void *code, size_t size, bool ends_page);
void unmake_code(made_code code);

#pragma clang assume_nonnull end
