/// The call by which the Swift concurrency runtime starts a job: `job->resume(job->context)`. Asynchronous functions call each
/// other by jumps, so one of them is directly above this call on the stack, and its job is in the register used by the call.
/// Pure functions of instruction bytes, for each architecture: all of them are compiled, and tested, everywhere.
#include "CStackCapture.h"

#include <string.h>

enum { RESUME_OFFSET = 56 };  ///< The offset of a job's function, known to compiled code and so stable: swift/ABI/Task.h, Job.

/// Maps x86-64's instruction encoding of a register to DWARF's number, for callee-saved registers; −1 for the others.
static const int preserved[16] = {-1, -1, -1, 3, -1, 6, -1, -1, -1, -1, -1, -1, 12, 13, 14, 15};

/// `call *56(%register)`: [REX.B] 0xff, mod 1 /2, [SIB for %r12], 56.
int stackcap_job_register_x86_64(const uint8_t before[STACKCAP_JOB_CALL_BYTES]) {
    const uint8_t *end = before + STACKCAP_JOB_CALL_BYTES;
    if (end[-1] != RESUME_OFFSET)
        return -1;
    if (memcmp(end - 5, (uint8_t[]){0x41, 0xff, 0x54, 0x24}, 4) == 0)
        return preserved[12];
    if (end[-3] != 0xff || (end[-2] & 0xf8) != 0x50 || (end[-2] & 7) == 4)
        return -1;
    int number = end[-2] & 7;
    return preserved[end[-4] == 0x41 ? number + 8 : number];
}

static uint32_t word_at(const uint8_t *bytes) {
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/// The base register of `ldr xTO, [xBASE, #56]` or `ldp xTO, …, [xBASE, #56]`, or −1.
static int base_of_load(uint32_t instruction, uint32_t to) {
    bool single = (instruction & 0xffc00000) == 0xf9400000 && ((instruction >> 10) & 0xfff) == RESUME_OFFSET / 8;
    bool pair = (instruction & 0xffc00000) == 0xa9400000 && ((instruction >> 15) & 0x7f) == RESUME_OFFSET / 8;
    if ((!single && !pair) || (instruction & 31) != to)
        return -1;
    return (int)(instruction >> 5 & 31);
}

/// `blr xN`, with the load of xN in the few instructions before it.
int stackcap_job_register_aarch64(const uint8_t before[STACKCAP_JOB_CALL_BYTES]) {
    uint32_t call = word_at(before + STACKCAP_JOB_CALL_BYTES - 4);
    if ((call & 0xfffffc1f) != 0xd63f0000)
        return -1;
    for (int at = STACKCAP_JOB_CALL_BYTES - 8; at >= 0; at -= 4) {
        int base = base_of_load(word_at(before + at), call >> 5 & 31);
        if (base >= 19 && base <= 28)
            return base;
    }
    return -1;
}
