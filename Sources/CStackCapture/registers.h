/// The register file of the architecture we are built for, and everything else that differs between architectures.
/// One implementation per architecture: registers_x86_64.c.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <ucontext.h>

#pragma clang assume_nonnull begin

#if defined(__x86_64__)
enum {
    REGISTER_COUNT = 17,  ///< In libunwind's (DWARF's) order, the program counter last.
    REGISTER_FRAME_POINTER = 6,
    REGISTER_STACK_POINTER = 7,
    REGISTER_PROGRAM_COUNTER = 16,
    KEPT_REGISTERS = 6,  ///< Those that a function hands back as it got them.
    RETURN_ADDRESS_BYTES = 8,  ///< It lies directly within the caller's frame.
    RED_ZONE = 128,  ///< Below the stack pointer, and still the program's (System V ABI for x86-64, 3.2.2).
};
#else
#error "Stack capture knows x86-64 only, so far."
#endif

struct stackcap_registers {
    uint64_t value[REGISTER_COUNT];
};

/// Takes the registers out of a signal handler's context. Async-signal-safe.
void stackcap_registers_from_context(struct stackcap_registers *registers, const ucontext_t *context);

/// Registers of which only two are known. The others hold recognisable nonsense.
void stackcap_registers_unknown(struct stackcap_registers *registers, uint64_t program_counter, uint64_t stack_pointer);

/// Registers of which none is known, stack pointer included.
void stackcap_registers_all_unknown(struct stackcap_registers *registers, uint64_t program_counter);

/// Which unknown register an address was computed from, and what was added to it.
int stackcap_unknown_origin(uint64_t address, int64_t *offset);

/// The registers that a function hands back as it got them.
extern const int stackcap_kept_registers[KEPT_REGISTERS];

/// Whether an address was computed from one of the unknown registers.
bool stackcap_is_unknown(uint64_t address);

/// A saved frame pointer without the bit that marks a Swift async frame (-swift-async-frame-pointer=always).
uint64_t stackcap_plain_frame_pointer(uint64_t value);

/// The system call's result if the context was taken directly behind one. `before` are the two bytes before the program counter.
bool stackcap_returned_from_call(const struct stackcap_registers *registers, const uint8_t before[_Nonnull 2], int64_t *result);

#pragma clang assume_nonnull end
