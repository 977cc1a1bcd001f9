/// Copies the program of an unwind row and looks through it before libunwind interprets it. A damaged or hostile one could end this
/// process: libunwind divides the smallest number by −1, which the processor answers with SIGFPE, and takes the numbers of some
/// registers as indices without a check. Or it could keep it busy: expressions may jump.
///
/// libunwind gets the copy: another process could change its memory after the look.
///
/// What libunwind itself refuses with an error is left to it.
#include "walk.h"

#include <string.h>

enum { LONGEST_NUMBER = 10, WORD_BYTES = 8 };

/// Where libunwind sees the copy: in the kernel's half of the address space, which no program uses, and not where it sees an index.
static const uint64_t shown_at = 0xffff900000000000;

/// Where libunwind has found the programs: the beginning of its dwarf_cie_info, which is the same in versions 1.1 to 1.8.
struct row_programs {
    uint64_t common_start, common_end, start, end;
    uint64_t code_alignment, data_alignment;
    uint64_t return_address;  ///< The register.
};

/// A program that is being looked through. Beyond its end all bytes are 0.
struct program {
    const uint8_t *at, *end;
    bool is_over;
};

static uint8_t take_byte(struct program *program) {
    program->is_over |= program->at == program->end;
    return program->is_over ? 0 : *program->at++;
}

static void skip(struct program *program, uint64_t length) {
    program->is_over |= length > (uint64_t)(program->end - program->at);
    program->at += program->is_over ? 0 : length;
}

/// LEB128. \returns false if it is longer than any number.
static bool take_number(struct program *program, uint64_t *value) {
    *value = 0;
    for (int i = 0; i < LONGEST_NUMBER; i++) {
        uint8_t byte = take_byte(program);
        *value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

static bool skip_numbers(struct program *program, int count) {
    uint64_t value;
    while (count-- > 0)
        if (!take_number(program, &value))
            return false;
    return true;
}

/// Skips the operands of an operation of an expression: DWARF 5, 7.7.1. \returns false for a division and for jumps.
static bool check_operation(struct program *expression, uint8_t operation) {
    if (operation >= 0x70 && operation <= 0x8f)  // DW_OP_breg0 to 31
        return skip_numbers(expression, 1);
    switch (operation) {
    case 0x1b: case 0x28: case 0x2f:  // DW_OP_div, bra, skip
        return false;
    case 0x08: case 0x09: case 0x15: case 0x94: case 0x95:  // const1u, const1s, pick, deref_size, xderef_size
        skip(expression, 1);
        return true;
    case 0x0a: case 0x0b: case 0x98:  // const2u, const2s, call2
        skip(expression, 2);
        return true;
    case 0x0c: case 0x0d: case 0x99:  // const4u, const4s, call4
        skip(expression, 4);
        return true;
    case 0x03: case 0x0e: case 0x0f:  // addr, const8u, const8s
        skip(expression, 8);
        return true;
    case 0x10: case 0x11: case 0x23: case 0x90: case 0x91: case 0x93:  // constu, consts, plus_uconst, regx, fbreg, piece
        return skip_numbers(expression, 1);
    case 0x92:  // bregx
        return skip_numbers(expression, 2);
    default:
        return true;
    }
}

static bool check_expression(struct program *program) {
    uint64_t length;
    if (!take_number(program, &length) || length > (uint64_t)(program->end - program->at))
        return false;
    struct program expression = {.at = program->at, .end = program->at + length};
    while (!expression.is_over && expression.at < expression.end)
        if (!check_operation(&expression, take_byte(&expression)))
            return false;
    skip(program, length);
    return true;
}

/// Skips the operands of an instruction: DWARF 5, 7.24; and GNU's. \returns false for one that must not be interpreted.
static bool check_instruction(struct program *program, uint8_t code) {
    uint64_t value;
    if (code >= 0x40)  // DW_CFA_advance_loc, offset, restore
        return (code & 0xc0) != 0x80 || skip_numbers(program, 1);
    switch (code) {
    case 0x01:  // set_loc: its operand has any length, and no compiler uses it
        return false;
    case 0x02:  // advance_loc1
        skip(program, 1);
        return true;
    case 0x03:  // advance_loc2
        skip(program, 2);
        return true;
    case 0x04:  // advance_loc4
        skip(program, 4);
        return true;
    case 0x1d:  // MIPS_advance_loc8
        skip(program, 8);
        return true;
    case 0x06: case 0x07: case 0x08: case 0x0d: case 0x0e: case 0x13: case 0x2e:  // with a register or an offset
        return skip_numbers(program, 1);
    case 0x09:  // register
        return skip_numbers(program, 1) && take_number(program, &value) && value < REGISTER_COUNT;
    case 0x05: case 0x0c: case 0x11: case 0x12: case 0x2f:  // with two numbers
        return skip_numbers(program, 2);
    case 0x0f:  // def_cfa_expression
        return check_expression(program);
    case 0x10: case 0x16:  // expression, val_expression
        return take_number(program, &value) && check_expression(program);
    case 0x00: case 0x0a: case 0x0b: case 0x2d:  // nop, remember_state, restore_state, GNU_window_save
        return true;
    default:
        // libunwind skips an instruction that it does not know, and takes its operands for instructions. Version 1.6 does not know
        // val_offset and val_offset_sf, later ones do; no compiler uses them on these processors.
        return false;
    }
}

/// An instruction that continues behind the program's end is refused, too: libunwind reads on there, and would evaluate what nobody has
/// looked at.
static bool is_harmless(struct program program) {
    while (program.at < program.end)
        if (!check_instruction(&program, take_byte(&program)) || program.is_over)
            return false;
    return true;
}

/// Copies a program behind what was copied before, in the words that libunwind would read, and changes its addresses to those of
/// the copy. \returns false if it cannot be read, or is too long.
static bool copy_program(stackcap_unwinder *unwinder, size_t *used, uint64_t *start, uint64_t *end, struct program *program) {
    uint64_t length = *start < *end ? *end - *start : 0, offset = *start % WORD_BYTES, word;
    if (length > MAX_PROGRAM_BYTES || *used + length > MAX_PROGRAM_BYTES - 2 * WORD_BYTES)
        return false;
    uint8_t *to = unwinder->programs + *used;
    size_t bytes = (size_t)((offset + length + WORD_BYTES - 1) / WORD_BYTES * WORD_BYTES);
    for (size_t i = 0; i < bytes; i += WORD_BYTES) {
        if (!stackcap_may_read(unwinder) || !stackcap_read_word(unwinder, *start - offset + i, &word))
            return false;
        memcpy(to + i, &word, WORD_BYTES);
    }
    *program = (struct program){.at = to + offset, .end = to + offset + length};
    *start = shown_at + *used + offset;
    *end = *start + length;
    *used += bytes;
    return true;
}

bool stackcap_row_read(const stackcap_unwinder *unwinder, uint64_t address, uint64_t *word) {
    if (address - shown_at > MAX_PROGRAM_BYTES - WORD_BYTES)
        return false;
    memcpy(word, unwinder->programs + (address - shown_at), WORD_BYTES);
    return true;
}

void stackcap_row_check(stackcap_unwinder *unwinder, unw_proc_info_t *procedure) {
    struct row_programs *row = procedure->unwind_info;
    struct program common, own;
    size_t used = 0;
    if (!row || procedure->unwind_info_size < (int)sizeof *row ||
        (row->return_address < REGISTER_COUNT && copy_program(unwinder, &used, &row->common_start, &row->common_end, &common) &&
         copy_program(unwinder, &used, &row->start, &row->end, &own) && is_harmless(common) && is_harmless(own)))
        return;
    // Nothing can be read there. So libunwind reports an error, and frees its data.
    row->common_start = UINT64_MAX - 4095;
    row->common_end = row->common_start + 8;
}
