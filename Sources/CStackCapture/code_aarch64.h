/// The aarch64 instructions that make up calls. All have four bytes (Arm ARM, C6.2).
#pragma once

#include "walk.h"

#pragma clang assume_nonnull begin

static inline bool is_call(uint32_t code) { return code >> 26 == 0x25; }         // bl label
static inline bool is_jump(uint32_t code) { return code >> 26 == 0x05; }         // b label
static inline bool is_indirect_call(uint32_t code) {                             // blr xN, blraa and similar
    return (code & 0xfffffc1f) == 0xd63f0000 || (code & 0xfefff800) == 0xd63f0800;
}

static inline bool is_return(uint32_t code) { return code == 0xd65f03c0 || (code & 0xfffffbff) == 0xd65f0bff; }  // ret, retaa, retab
static inline bool is_frame_setup(uint32_t code) { return (code & 0xff8003ff) == 0x910003fd; }  // add x29, sp, #n; mov x29, sp

/// The target of the bl or b at `address`.
static inline uint64_t branch_target(uint64_t address, uint32_t code) {
    return address + (uint64_t)((int64_t)(int32_t)(code << 6) >> 4);
}

/// The actual target of a call of `address`, after procedure linkage tables and linkers' thunks.
uint64_t stackcap_resolve_stub(stackcap_unwinder *unwinder, uint64_t address);

#pragma clang assume_nonnull end
