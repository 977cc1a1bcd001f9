/// Reading x86-64's instructions: as much as it takes to follow what code does with the stack.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma clang assume_nonnull begin

/// An instruction's registers are named by DWARF's numbers.
struct stackcap_instruction {
    enum {
        CODE_OTHER,       ///< It leaves the stack pointer alone, as far as is known.
        CODE_PADDING,     ///< It does nothing: between functions, and where code is aligned.
        CODE_TRAP,        ///< Nothing comes behind it.
        CODE_CALL,
        CODE_RETURN,
        CODE_JUMP,        ///< To `target`.
        CODE_JUMP_IF,     ///< To `target`, or on.
        CODE_JUMP_SLOT,   ///< To where a word of the module's says: into another module.
        CODE_JUMP_AWAY,   ///< To where a register or memory says.
        CODE_PUSH,        ///< Of `from`, if that is ≥ 0.
        CODE_POP,         ///< Into `to`, if that is ≥ 0.
        CODE_LEAVE,       ///< The stack pointer becomes the frame pointer, which is popped.
        CODE_ADDRESS,     ///< `to` becomes the sum of `from` and `amount`.
        CODE_LOAD,        ///< `to` is read from there.
        CODE_LOSE_STACK,  ///< The stack pointer becomes what is not known here.
    } kind;
    size_t length;  ///< 0 for what is no instruction, or an unknown one.
    uint64_t target;
    int to, from;
    int64_t amount;
};

enum { LONGEST_INSTRUCTION = 15 };

/// Decodes the instruction at `address`, of which the first bytes are given; zeros may stand for what cannot be read.
struct stackcap_instruction stackcap_decode(const uint8_t code[_Nonnull LONGEST_INSTRUCTION], uint64_t address);

#pragma clang assume_nonnull end
