/// Registers whose values are not known, and what else is the same on all architectures.
#include "registers.h"

/// Nothing can be mapped there: on x86-64 it is not a canonical address, and on aarch64, where the kernel may ignore the top byte, the
/// rest is not a user address, with bit 55 set. The distance is large enough that offsets do not lead from one register to another.
static const uint64_t unknown_base = 0x5afe000000000000;
static const uint64_t unknown_stride = 0x10000000;

static uint64_t unknown_value(int number) {
    return unknown_base + unknown_stride * (uint64_t)(number + 1);
}

void stackcap_registers_unknown(struct stackcap_registers *registers, uint64_t program_counter, uint64_t stack_pointer) {
    for (int i = 0; i < REGISTER_COUNT; i++)
        registers->value[i] = unknown_value(i);
    registers->value[REGISTER_PROGRAM_COUNTER] = program_counter;
    registers->value[REGISTER_STACK_POINTER] = stack_pointer;
}

void stackcap_registers_all_unknown(struct stackcap_registers *registers, uint64_t program_counter) {
    stackcap_registers_unknown(registers, program_counter, unknown_value(REGISTER_STACK_POINTER));
}

int stackcap_unknown_origin(uint64_t address, int64_t *offset) {
    uint64_t distance = address - unknown_base;
    uint64_t nearest = (distance + unknown_stride / 2) / unknown_stride;
    *offset = (int64_t)(distance - nearest * unknown_stride);
    return (int)nearest - 1;
}

bool stackcap_is_unknown(uint64_t address) {
    return address >> 48 == unknown_base >> 48;
}

uint64_t stackcap_plain_frame_pointer(uint64_t value) {
    return value & ~(UINT64_C(1) << 60);
}
