/// The registers of the architecture that this is built for, and everything else that differs between architectures.
/// One implementation per architecture, the files *_x86_64.c and *_aarch64.c; and registers.c for what is the same on both.
#pragma once

#include <elf.h>
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
    ROWS_ARE_LEARNT = 1,  ///< See rows.c.
    KEPT_REGISTERS = 6,  ///< Those that a function hands back as it got them.
    STEADY_REGISTERS = 4,
    RETURN_ADDRESS_BYTES = 8,  ///< It lies directly within the caller's frame.
    REGISTER_ASYNC_CONTEXT = 14,  ///< Swift's asynchronous functions get their context in it.
    RED_ZONE = 128,  ///< Below the stack pointer, and still the program's (System V ABI for x86-64, 3.2.2).
    SYSTEM_CALL_LENGTH = 2,
    ELF_MACHINE = EM_X86_64,
};
#elif defined(__aarch64__)
enum {
    REGISTER_COUNT = 33,  ///< In libunwind's (DWARF's) order: x0 to x30, the stack pointer, and the program counter, which DWARF lacks.
    REGISTER_FRAME_POINTER = 29,
    REGISTER_RETURN_ADDRESS = 30,
    ROWS_ARE_LEARNT = 0,  ///< Not yet: a return address may be in a register.
    KEPT_REGISTERS = 1,
    STEADY_REGISTERS = 7,
    RETURN_ADDRESS_BYTES = 8,
    REGISTER_STACK_POINTER = 31,
    REGISTER_PROGRAM_COUNTER = 32,
    REGISTER_ASYNC_CONTEXT = 22,
    RED_ZONE = 0,  ///< Nothing below the stack pointer is the program's (AAPCS64, 6.4.5.1).
    SYSTEM_CALL_LENGTH = 4,
    ELF_MACHINE = EM_AARCH64,
};
#else
#error "Stack capture knows x86-64 and aarch64 only."
#endif

/// A stopped thread's registers: PTRACE_GETREGSET, NT_PRSTATUS.
typedef struct user_regs_struct stackcap_user_registers;

struct stackcap_registers {
    uint64_t value[REGISTER_COUNT];
};

/// Reads the registers from a signal handler's context. Async-signal-safe.
void stackcap_registers_from_context(struct stackcap_registers *registers, const ucontext_t *context);

/// Reads the registers from ptrace(2)'s data about a stopped thread.
void stackcap_registers_from_user(struct stackcap_registers *registers, const stackcap_user_registers *user);

/// Some system calls return EINTR for a stop, although no signal has to be handled: epoll_wait and others of signal(7). Changes
/// the result to the code by which the kernel restarts the call, unless a handler runs; all other calls restart automatically.
/// \returns whether the registers have to be written back.
bool stackcap_mend_cut_call(stackcap_user_registers *user);

/// Registers of which only two are known. The others hold recognisable invalid values.
void stackcap_registers_unknown(struct stackcap_registers *registers, uint64_t program_counter, uint64_t stack_pointer);

/// The registers that hold a system call's arguments. vfork(3), for example, keeps its return address there.
void stackcap_registers_add_arguments(struct stackcap_registers *registers, const uint64_t arguments[_Nonnull 6]);

/// Registers of which none is known, including the stack pointer.
void stackcap_registers_all_unknown(struct stackcap_registers *registers, uint64_t program_counter);

/// The unknown register from which an address was computed, and the constant that was added.
int stackcap_unknown_origin(uint64_t address, int64_t *offset);

/// The callee-saved registers.
extern const int stackcap_kept_registers[KEPT_REGISTERS];

/// Those of them that Swift's functions also preserve: not the register in which they return an error.
extern const int stackcap_steady_registers[STEADY_REGISTERS];

/// Whether an address was computed from one of the unknown registers.
bool stackcap_is_unknown(uint64_t address);

/// A saved frame pointer without the bit that marks a Swift async frame (-swift-async-frame-pointer=always).
uint64_t stackcap_plain_frame_pointer(uint64_t value);

/// A saved return address without the signature that the code may have put into its upper bits (Armv8.3 pointer authentication).
uint64_t stackcap_plain_return_address(uint64_t value);

/// The system call's result if the context was taken directly after one. `before` is the code before the program counter.
bool stackcap_returned_from_call(const struct stackcap_registers *registers,
                                 const uint8_t before[_Nonnull SYSTEM_CALL_LENGTH], int64_t *result);

#pragma clang assume_nonnull end
