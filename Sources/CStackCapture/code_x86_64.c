#if defined(__x86_64__)

/// Decodes one instruction: its prefixes, its opcode and operands give its length; then, for those that matter, its effect on the stack.
#include "code_x86_64.h"

#include "registers.h"

#include <string.h>

/// The operands that follow each opcode: Intel's manual, volume 2, appendix A. `-` invalid; `.` none; m ModRM; b, w, z an
/// immediate of 1, 2, or 2 or 4 bytes; M, Z both; r a distance of 4 bytes; o an address; v up to 8 bytes; t as its ModRM says;
/// e 3 bytes.
static const char one_byte[256 + 1] =
    "mmmmbz--mmmmbz--" "mmmmbz--mmmmbz--" "mmmmbz--mmmmbz--" "mmmmbz--mmmmbz--"
    "----------------" "................" "---m----zZbM...." "bbbbbbbbbbbbbbbb"
    "MZ-Mmmmmmmmmmmmm" "..........-....." "oooo....bz......" "bbbbbbbbvvvvvvvv"
    "MMw.--MZe.w..b-." "mmmm---.mmmmmmmm" "bbbbbbbbrr-b...." "-.--..tt......mm";
static const char two_bytes[256 + 1] =
    "mmmm-.....-.-m.M" "mmmmmmmmmmmmmmmm" "mmmm----mmmmmmmm" "......-.--------"
    "mmmmmmmmmmmmmmmm" "mmmmmmmmmmmmmmmm" "mmmmmmmmmmmmmmmm" "MMMMmmm.mmmmmmmm"
    "rrrrrrrrrrrrrrrr" "mmmmmmmmmmmmmmmm" "...mMm--...mMmmm" "mmmmmmmmmmMmmmmm"
    "mmMmMMMm........" "mmmmmmmmmmmmmmmm" "mmmmmmmmmmmmmmmm" "mmmmmmmmmmmmmmmm";

/// The parts of one instruction.
struct parts {
    const uint8_t *code;
    size_t at;
    bool is_short, is_wide;  ///< Operands of 2 or 8 bytes.
    uint8_t extension;       ///< REX, without its 0x40.
    int map;                 ///< 1 for one-byte opcodes, 2 after 0x0f, 3 and 4 after 0x0f38 and 0x0f3a.
    bool is_vector;          ///< With a VEX or EVEX prefix.
    uint8_t opcode;
    uint8_t mode, reg, rm;   ///< ModRM, with REX.
    int base;                ///< Of a memory operand without an index: the register's number; otherwise −1.
    int64_t displacement, immediate;
};

enum { RSP = 4, RBP = 5 };

static int64_t take(struct parts *parts, size_t size) {
    uint64_t value = 0;
    if (parts->at + size > LONGEST_INSTRUCTION) {
        parts->at = LONGEST_INSTRUCTION + 1;
        return 0;
    }
    memcpy(&value, parts->code + parts->at, size);
    parts->at += size;
    return size == 0 ? 0 : (int64_t)(value << (64 - 8 * size)) >> (64 - 8 * size);
}

static uint8_t take_byte(struct parts *parts) { return (uint8_t)take(parts, 1); }

static void take_prefixes(struct parts *parts) {
    for (;; parts->at++) {
        uint8_t byte = parts->at < LONGEST_INSTRUCTION ? parts->code[parts->at] : 0;
        bool is_segment = (byte & 0xe7) == 0x26 || byte == 0x64 || byte == 0x65;
        if (byte == 0x66)
            parts->is_short = true;
        else if (!is_segment && byte != 0x67 && byte != 0xf0 && byte != 0xf2 && byte != 0xf3)
            break;
    }
    if (parts->at < LONGEST_INSTRUCTION && (parts->code[parts->at] & 0xf0) == 0x40)
        parts->extension = take_byte(parts) & 0xf;
    parts->is_wide = parts->extension & 8;
}

/// VEX, EVEX: registers' upper bits are left out, since none of these instructions affects what we follow.
static void take_vector_opcode(struct parts *parts, uint8_t first) {
    uint8_t payload = take_byte(parts);
    int map = first == 0xc5 ? 1 : payload & (first == 0xc4 ? 0x1f : 7);
    parts->at += first == 0xc5 ? 0 : first == 0xc4 ? 1 : 2;
    parts->is_vector = true;
    parts->map = map + 1;
    parts->opcode = take_byte(parts);
}

static void take_opcode(struct parts *parts) {
    parts->opcode = take_byte(parts);
    parts->map = 1;
    if (parts->opcode == 0xc4 || parts->opcode == 0xc5 || parts->opcode == 0x62) {
        take_vector_opcode(parts, parts->opcode);
        return;
    }
    if (parts->opcode != 0x0f)
        return;
    parts->map = 2;
    parts->opcode = take_byte(parts);
    if (parts->opcode != 0x38 && parts->opcode != 0x3a)
        return;
    parts->map = parts->opcode == 0x38 ? 3 : 4;
    parts->opcode = take_byte(parts);
}

static char form_of(const struct parts *parts) {
    switch (parts->map) {
    case 1:
        return one_byte[parts->opcode];
    case 2:
        return two_bytes[parts->opcode];
    case 4:
        return 'M';
    default:
        return parts->map == 3 || parts->map == 6 || parts->map == 7 ? 'm' : '-';
    }
}

static void take_operand(struct parts *parts) {
    uint8_t byte = take_byte(parts);
    parts->mode = byte >> 6;
    parts->reg = (byte >> 3 & 7) | (parts->extension & 4) << 1;
    parts->rm = (byte & 7) | (parts->extension & 1) << 3;
    parts->base = parts->mode == 3 ? -1 : parts->rm;
    if (parts->mode == 3)
        return;
    bool is_bare = parts->mode == 0 && (byte & 7) == 5;  // relative to the program counter
    if ((byte & 7) == 4) {
        uint8_t scale = take_byte(parts);
        bool has_index = (scale >> 3 & 7) != 4 || (parts->extension & 2);
        is_bare = parts->mode == 0 && (scale & 7) == 5;
        parts->base = has_index ? -1 : (scale & 7) | (parts->extension & 1) << 3;
    }
    if (is_bare)
        parts->base = -1;
    parts->displacement = take(parts, is_bare || parts->mode == 2 ? 4 : parts->mode == 1 ? 1 : 0);
}

/// \returns false if it is not an instruction.
static bool take_operands(struct parts *parts) {
    char form = form_of(parts);
    size_t size = parts->is_short && !parts->is_wide ? 2 : 4;
    if (form == '-')
        return false;
    if (strchr("mMZt", form))
        take_operand(parts);
    bool is_test = form == 't' && (parts->reg & 6) == 0;
    switch (form) {
    case 'b': case 'M': parts->immediate = take(parts, 1); break;
    case 'z': case 'Z': parts->immediate = take(parts, size); break;
    case 't': parts->immediate = take(parts, !is_test ? 0 : parts->opcode & 1 ? size : 1); break;
    case 'w': take(parts, 2); break;
    case 'e': take(parts, 3); break;
    case 'r': parts->immediate = take(parts, 4); break;
    case 'o': take(parts, 8); break;
    case 'v': take(parts, parts->is_wide ? 8 : size); break;
    default: break;
    }
    return parts->at <= LONGEST_INSTRUCTION;
}

// The effect of an instruction.

/// From the machine's register numbers to DWARF's.
static int name_of(int number) {
    static const int8_t names[16] = {0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15};
    return number < 0 ? -1 : names[number];
}

static bool is_stack_register(const struct parts *parts) { return parts->mode == 3 && parts->rm == RSP; }

static void set_to(struct stackcap_instruction *found, int kind, int to, int from, int64_t amount) {
    found->kind = to == RSP && (kind == CODE_LOAD || kind == CODE_POP || (from != RSP && from != RBP)) ? CODE_LOSE_STACK : kind;
    found->to = name_of(to);
    found->from = name_of(from);
    found->amount = amount;
}

/// Opcode 0xff with its extension.
static int kind_of_group(const struct parts *parts) {
    switch (parts->reg & 7) {
    case 2:
        return CODE_CALL;
    case 4:
        return parts->mode == 0 && (parts->rm & 7) == 5 ? CODE_JUMP_SLOT : CODE_JUMP_AWAY;
    case 6:
        return CODE_PUSH;
    default:
        return CODE_OTHER;
    }
}

/// Arithmetic on the stack pointer: except for the addition of a constant, the stack pointer is unknown afterwards.
static void read_arithmetic(const struct parts *parts, struct stackcap_instruction *found) {
    int operation = parts->reg & 7;
    if (!is_stack_register(parts) || operation == 7)  // cmp
        return;
    bool is_sum = parts->is_wide && (operation == 0 || operation == 5);
    set_to(found, CODE_ADDRESS, RSP, is_sum ? RSP : -1, operation == 5 ? -parts->immediate : parts->immediate);
}

static void read_one_byte(const struct parts *parts, struct stackcap_instruction *found) {
    uint8_t opcode = parts->opcode;
    int number = (opcode & 7) | (parts->extension & 1) << 3;
    bool is_register = parts->mode == 3;
    if (opcode >= 0x50 && opcode <= 0x57)
        set_to(found, CODE_PUSH, -1, number, 0);
    else if (opcode >= 0x58 && opcode <= 0x5f)
        set_to(found, CODE_POP, number, -1, 0);
    else if (opcode >= 0x70 && opcode <= 0x7f)
        found->kind = CODE_JUMP_IF;
    else if (opcode < 0x38 && (opcode & 7) < 4)  // arithmetic between registers
        found->kind = ((opcode & 2) ? parts->reg == RSP : is_stack_register(parts)) && (opcode & 1) ? CODE_LOSE_STACK : CODE_OTHER;
    else
        switch (opcode) {
        case 0x68: case 0x6a: case 0x9c: found->kind = CODE_PUSH; break;
        case 0x8f: case 0x9d: set_to(found, CODE_POP, -1, -1, 0); break;
        case 0x81: case 0x83: read_arithmetic(parts, found); break;
        case 0x63: case 0x69: case 0x6b: found->kind = parts->reg == RSP ? CODE_LOSE_STACK : CODE_OTHER; break;
        case 0x87: found->kind = is_stack_register(parts) || (is_register && parts->reg == RSP) ? CODE_LOSE_STACK : CODE_OTHER; break;
        case 0x89:
            if (is_register)
                set_to(found, CODE_ADDRESS, parts->rm, parts->is_wide ? parts->reg : -1, 0);
            break;
        case 0x8b:
            if (is_register)
                set_to(found, CODE_ADDRESS, parts->reg, parts->is_wide ? parts->rm : -1, 0);
            else
                set_to(found, CODE_LOAD, parts->reg, parts->is_wide ? parts->base : -1, parts->displacement);
            break;
        case 0x8d: set_to(found, CODE_ADDRESS, parts->reg, parts->is_wide ? parts->base : -1, parts->displacement); break;
        case 0x90: found->kind = CODE_PADDING; break;
        case 0x94: case 0xbc: found->kind = number == RSP ? CODE_LOSE_STACK : CODE_OTHER; break;  // xchg with %rax, mov
        case 0xc2: case 0xc3: found->kind = CODE_RETURN; break;
        case 0xc8: found->kind = CODE_LOSE_STACK; break;
        case 0xc9: found->kind = CODE_LEAVE; break;
        case 0xcc: case 0xf4: case 0xca: case 0xcb: case 0xcf: found->kind = CODE_TRAP; break;
        case 0xe0: case 0xe1: case 0xe2: case 0xe3: found->kind = CODE_JUMP_IF; break;
        case 0xe8: found->kind = CODE_CALL; break;
        case 0xe9: case 0xeb: found->kind = CODE_JUMP; break;
        case 0xff: found->kind = kind_of_group(parts); break;
        default: break;
        }
}

static void read_two_bytes(const struct parts *parts, struct stackcap_instruction *found) {
    uint8_t opcode = parts->opcode;
    if (opcode >= 0x80 && opcode <= 0x8f)
        found->kind = CODE_JUMP_IF;
    else if (opcode == 0x0b || opcode == 0xb9 || opcode == 0xff)
        found->kind = CODE_TRAP;
    else if (opcode == 0x1f)
        found->kind = CODE_PADDING;
    else if (opcode >= 0x40 && opcode <= 0x4f && parts->reg == RSP)
        found->kind = CODE_LOSE_STACK;
}

struct stackcap_instruction stackcap_decode(const uint8_t code[LONGEST_INSTRUCTION], uint64_t address) {
    struct parts parts = {.code = code, .base = -1};
    struct stackcap_instruction found = {.kind = CODE_OTHER, .to = -1, .from = -1};
    take_prefixes(&parts);
    take_opcode(&parts);
    if (!take_operands(&parts))
        return found;
    found.length = parts.at;
    found.target = address + parts.at + (uint64_t)parts.immediate;
    if (!parts.is_vector && parts.map == 1)
        read_one_byte(&parts, &found);
    else if (!parts.is_vector && parts.map == 2)
        read_two_bytes(&parts, &found);
    return found;
}

#endif
