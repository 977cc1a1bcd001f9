/// simdjson's parser for documents, for Swift. No function throws, locks, sets errno or runs on a signal's stack.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma clang assume_nonnull begin

/// A parser with the memory of the document that it parsed last. For one thread at a time.
typedef struct json_tape json_tape;

/// Allocates a parser of documents of at most this many bytes and levels of nesting. The caller frees it by `json_tape_free`.
/// NULL if there is not enough memory.
json_tape *_Nullable json_tape_create(size_t maximum_bytes, size_t maximum_depth);

void json_tape_free(json_tape *tape);

/// Parses a document, of which nothing is trusted. The bytes are not needed afterwards. Allocates.
///
/// False if it is not JSON as RFC 8259 defines it, is not valid UTF-8, exceeds a limit, or has a whole number beyond 64 bits or a
/// fraction beyond a double.
bool json_tape_parse(json_tape *tape, const uint8_t *bytes, size_t count);

/// The values of the document that was parsed last, as simdjson's doc/tape.md describes them: the root is at 1. Owned by the tape, until
/// the next document.
const uint64_t *json_tape_values(const json_tape *tape);

/// The texts of that document, without escapes: each is a 32-bit count and that many bytes, which are valid UTF-8. Owned by the tape.
const uint8_t *json_tape_texts(const json_tape *tape);

#pragma clang assume_nonnull end
#ifdef __cplusplus
}
#endif
