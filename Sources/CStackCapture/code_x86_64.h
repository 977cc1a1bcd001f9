/// Decodes x86-64's instructions, as far as needed to follow what code does with the stack.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma clang assume_nonnull begin

/// An instruction's registers have DWARF's numbers.
struct stackcap_instruction {
    enum {
        CODE_OTHER,       ///< It does not change the stack pointer, as far as is known.
        CODE_PADDING,     ///< It has no effect: between functions, and where code is aligned.
        CODE_TRAP,        ///< Execution does not continue after it.
        CODE_CALL,
        CODE_RETURN,
        CODE_JUMP,        ///< To `target`.
        CODE_JUMP_IF,     ///< To `target`, or to the next instruction.
        CODE_JUMP_SLOT,   ///< To the address in a word of the module: into another module.
        CODE_JUMP_AWAY,   ///< To the address in a register or in memory.
        CODE_PUSH,        ///< Of `from`, if that is ≥ 0.
        CODE_POP,         ///< Into `to`, if that is ≥ 0.
        CODE_LEAVE,       ///< The stack pointer becomes the frame pointer, which is popped.
        CODE_ADDRESS,     ///< `to` becomes the sum of `from` and `amount`.
        CODE_LOAD,        ///< `to` is read from there.
        CODE_LOSE_STACK,  ///< The stack pointer becomes a value that is not known here.
    } kind;
    size_t length;  ///< 0 if it is not an instruction, or an unknown one.
    uint64_t target;
    int to, from;
    int64_t amount;
};

enum { LONGEST_INSTRUCTION = 15 };

/// Decodes the instruction at `address`, given its first bytes; bytes that cannot be read may be zero.
struct stackcap_instruction stackcap_decode(const uint8_t code[_Nonnull LONGEST_INSTRUCTION], uint64_t address);

#pragma clang assume_nonnull end
