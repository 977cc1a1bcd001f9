#if defined(__aarch64__)

/// Reads calls, the stubs through which they lead, and the beginnings of functions.
#include "code_aarch64.h"

enum { STUB_WORDS = 5, PROLOGUE_WORDS = 24 };

static const uint32_t bti_c = 0xd503245f, paciasp = 0xd503233f, pacibsp = 0xd503237f;

static bool is_landing_pad(uint32_t code) {
    return code == bti_c || code == paciasp || code == pacibsp;
}

/// adrp xN, page
static bool is_page_address(uint32_t code) {
    return (code & 0x9f000000) == 0x90000000;
}

static uint64_t page_of(uint64_t address, uint32_t code) {
    int64_t pages = (int64_t)((uint64_t)(code >> 5 & 0x7ffff) << 45) >> 43 | (code >> 29 & 3);
    return (address & ~UINT64_C(0xfff)) + (uint64_t)pages * 4096;
}

/// The target in x16 or x17 after `adrp x16, page`: `ldr x17, [x16, #slot]` in a linkage table, `add x16, x16, #offset` in a
/// thunk.
static bool follow(stackcap_unwinder *unwinder, uint64_t page, uint32_t code, uint64_t *target) {
    uint64_t immediate = code >> 10 & 0xfff;
    if ((code & 0xffc00000) == 0xf9400000)
        return stackcap_peek(unwinder, page + immediate * 8, target, sizeof *target);
    if ((code & 0xffc00000) != 0x91000000)
        return false;
    *target = page + immediate;
    return true;
}

/// \returns false if there is no stub at the address.
static bool follow_stub(stackcap_unwinder *unwinder, uint64_t address, uint64_t *target) {
    uint32_t code[STUB_WORDS];
    stackcap_peek_code(unwinder, address, code, sizeof code);
    int at = is_landing_pad(code[0]) ? 1 : 0;
    if (is_jump(code[at])) {
        *target = branch_target(address + 4 * (uint64_t)at, code[at]);
        return true;
    }
    bool jumps = false;
    for (int i = at + 2; i < STUB_WORDS; i++)
        jumps |= code[i] == 0xd61f0220 || code[i] == 0xd61f0200;  // br x17, br x16
    return jumps && is_page_address(code[at]) &&
           follow(unwinder, page_of(address + 4 * (uint64_t)at, code[at]), code[at + 1], target);
}

uint64_t stackcap_resolve_stub(stackcap_unwinder *unwinder, uint64_t address) {
    for (int stubs = 0; stubs < 3 && follow_stub(unwinder, address, &address); stubs++)
        ;
    return address;
}

int stackcap_call_before(stackcap_unwinder *unwinder, uint64_t return_address, uint64_t function) {
    uint32_t code;
    if (return_address % 4 != 0 || !stackcap_peek(unwinder, return_address - sizeof code, &code, sizeof code))
        return CALL_NONE;
    if (is_indirect_call(code))
        return CALL_INDIRECT;
    if (!is_call(code))
        return CALL_NONE;
    uint64_t target = branch_target(return_address - 4, code);
    if (target == function)
        return CALL_MATCHES;
    return stackcap_resolve_stub(unwinder, target) == function ? CALL_MATCHES : CALL_ELSEWHERE;
}

/// The immediate of `sub sp, sp, #n` or `add x29, sp, #n`.
static uint64_t immediate_of(uint32_t code) {
    return (uint64_t)(code >> 10 & 0xfff) << (code >> 22 & 1 ? 12 : 0);
}

/// The amount by which an instruction lowers the stack pointer: `sub sp, sp, #n`, or a store with writeback.
static uint64_t lowered_by(uint32_t code) {
    if ((code & 0xff8003ff) == 0xd10003ff)
        return immediate_of(code);
    int64_t pair = (int64_t)((uint64_t)(code >> 15 & 0x7f) << 57) >> 57;
    bool is_pair = (code & 0xffc003e0) == 0xa98003e0 || (code & 0xffc003e0) == 0x6d8003e0;
    if (is_pair && pair < 0)  // stp xA, xB, [sp, #-n]! and the same for d registers
        return (uint64_t)-pair * 8;
    int64_t single = (int64_t)((uint64_t)(code >> 12 & 0x1ff) << 55) >> 55;
    return (code & 0xffe00fe0) == 0xf8000fe0 && single < 0 ? (uint64_t)-single : 0;  // str xA, [sp, #-n]!
}

bool stackcap_frame_pointer_distance(stackcap_unwinder *unwinder, uint64_t function, uint64_t *distance) {
    uint32_t code[PROLOGUE_WORDS];
    if (function == 0)
        return false;
    stackcap_peek_code(unwinder, function, code, sizeof code);
    bool is_set = false;
    *distance = 0;
    for (int i = 0; i < PROLOGUE_WORDS && !is_return(code[i]) && !is_call(code[i]); i++) {
        uint64_t lowered = lowered_by(code[i]);
        if (is_frame_setup(code[i])) {
            *distance = immediate_of(code[i]);
            is_set = true;
        } else if (is_set && lowered > 0)
            *distance += lowered;
        else if (is_set && i > 0 && (code[i] & 0x7c000000) == 0x14000000)  // a branch: the prologue has ended
            break;
    }
    return is_set;
}

#endif
