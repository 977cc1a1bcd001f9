#define SIMDJSON_EXCEPTIONS 0
#include "json_tape.h"

#include <new>
#include <simdjson.h>

struct json_tape {
    explicit json_tape(size_t maximum_bytes) : parser(maximum_bytes) {}
    simdjson::dom::parser parser;
};

json_tape *json_tape_create(size_t maximum_bytes, size_t maximum_depth) {
    auto tape = new (std::nothrow) json_tape(maximum_bytes);
    if (tape && tape->parser.allocate(0, maximum_depth)) {
        delete tape;
        return nullptr;
    }
    return tape;
}

void json_tape_free(json_tape *tape) { delete tape; }

bool json_tape_parse(json_tape *tape, const uint8_t *bytes, size_t count) {
    return !tape->parser.parse(bytes, count).error();
}

const uint64_t *json_tape_values(const json_tape *tape) { return tape->parser.doc.tape.get(); }

const uint8_t *json_tape_texts(const json_tape *tape) { return tape->parser.doc.string_buf.get(); }
