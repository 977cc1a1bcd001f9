/// Unwinds out of a function without an unwind table. Its own instructions, followed from the thread's position to its return,
/// show where the return address is and where registers were saved. This needs neither the function's start nor a frame
/// pointer. A function that never returns is followed from its start to the thread's position.
///
/// Calls return with the stack unchanged. At a branch both paths are followed. A path that ends in a trap gives no information;
/// nor does one on which the stack pointer is computed from an unknown value, until it is set from the frame pointer again.
#if defined(__x86_64__)

#include "walk.h"

#include "code_x86_64.h"

#include <string.h>

enum { MOST_INSTRUCTIONS = 4096, MOST_BRANCHES = 64, MOST_GAP_BYTES = 64 * 1024 };

/// What is known at one point of a path, relative to the registers at its beginning.
struct position {
    uint64_t address;
    struct stackcap_sum stack_pointer, frame_pointer;
    struct stackcap_sum saved[KEPT_REGISTERS];
    bool is_doubtful;  ///< The function's end may have been passed: a call that does not return was its last instruction.
    bool has_released;  ///< The last change of the stack released some of it, as before a return.
    enum { NOT_CARRIED, TAKEN, MOVED, PUT_BACK } carried;  ///< What becomes of the return address: see `carry`.
    int carrier;                                           ///< The register that has it.
    struct stackcap_sum carried_from;
};

struct search {
    stackcap_unwinder *unwinder;
    uint64_t low, high;  ///< The part of the module that belongs to no function of its table.
    struct position branches[MOST_BRANCHES];  ///< Includes those that were followed already: no path is followed twice.
    size_t branch_count;
    int instructions_left;
    uint64_t goal;  ///< The thread's position, for a path from the start; otherwise 0.
    struct stackcap_way_out *way;
};

enum progress { GOES_ON, ENDS_NOWHERE, ARRIVES };

static int kept_index(int number) {
    for (int i = 0; i < KEPT_REGISTERS; i++)
        if (stackcap_kept_registers[i] == number)
            return i;
    return -1;
}

/// Records that the register is read from the stack. Values below the initial stack pointer were pushed on this path: the
/// register gets its former value back.
static void restore(struct position *now, int number, struct stackcap_sum from) {
    int kept = kept_index(number);
    if (kept < 0)
        return;
    bool is_older = from.base == REGISTER_FRAME_POINTER || (from.base == REGISTER_STACK_POINTER && from.offset >= 0);
    now->saved[kept] = is_older ? from : (struct stackcap_sum){0, 0};
    if (number == REGISTER_FRAME_POINTER)
        now->frame_pointer = (struct stackcap_sum){is_older ? 0 : REGISTER_FRAME_POINTER, 0};
}

static void pop(struct position *now, int number) {
    restore(now, number, now->stack_pointer);
    now->stack_pointer.offset += 8;
    now->has_released = true;
}

static void push(const struct search *search, struct position *now, int number) {
    int kept = kept_index(number);
    now->stack_pointer.offset -= 8;
    now->has_released = false;
    if (search->goal != 0 && kept >= 0 && now->saved[kept].base == 0)
        now->saved[kept] = now->stack_pointer;
}

static struct stackcap_sum sum_of(const struct position *now, const struct stackcap_instruction *code) {
    struct stackcap_sum from = code->from == REGISTER_STACK_POINTER   ? now->stack_pointer
                                 : code->from == REGISTER_FRAME_POINTER ? now->frame_pointer
                                                                        : (struct stackcap_sum){0, 0};
    from.offset += code->amount;
    return from;
}

/// Records the path if the return address is at the position's stack pointer.
static enum progress arrive(struct search *search, const struct position *now, bool is_sure) {
    struct stackcap_way_out *way = search->way;
    if (search->goal != 0)
        return ENDS_NOWHERE;
    bool is_known = now->stack_pointer.base != 0;
    bool is_below = now->stack_pointer.base == REGISTER_STACK_POINTER && now->stack_pointer.offset < 0;
    if (!is_known || is_below || (way->return_address.base != 0 && !is_sure))
        return ENDS_NOWHERE;
    way->return_address = now->stack_pointer;
    memcpy(way->saved, now->saved, sizeof way->saved);
    way->is_sure = is_sure && !now->is_doubtful;
    return way->is_sure ? ARRIVES : ENDS_NOWHERE;
}

static struct stackcap_sum seen_from(struct stackcap_sum place, int base, int64_t offset) {
    return place.base == 0 ? place : (struct stackcap_sum){base, place.offset - offset};
}

/// Converts what is relative to the function's start to be relative to the thread's position.
static enum progress arrive_inside(struct search *search, const struct position *now) {
    bool by_stack = now->stack_pointer.base == REGISTER_STACK_POINTER;
    if (!by_stack && now->frame_pointer.base != REGISTER_STACK_POINTER)
        return ENDS_NOWHERE;
    int base = by_stack ? REGISTER_STACK_POINTER : REGISTER_FRAME_POINTER;
    int64_t offset = by_stack ? now->stack_pointer.offset : now->frame_pointer.offset;
    search->way->return_address = (struct stackcap_sum){base, -offset};
    for (int i = 0; i < KEPT_REGISTERS; i++)
        search->way->saved[i] = seen_from(now->saved[i], base, offset);
    return ARRIVES;
}

static void branch(struct search *search, const struct position *now, uint64_t target) {
    for (size_t i = 0; i < search->branch_count; i++)
        if (search->branches[i].address == target)
            return;
    if (search->branch_count == MOST_BRANCHES)
        return;
    search->branches[search->branch_count] = *now;
    search->branches[search->branch_count++].address = target;
}

/// A jump to a function's start is a tail call: that function returns instead.
static enum progress jump(struct search *search, struct position *now, uint64_t target) {
    bool is_outside = target - search->low >= search->high - search->low;
    if (is_outside && stackcap_function_start(search->unwinder, target) == target)
        return arrive(search, now, true);
    branch(search, now, target);
    return ENDS_NOWHERE;
}

static void move_stack(struct position *now, struct stackcap_sum to) {
    bool is_same_base = to.base == now->stack_pointer.base;
    now->has_released = is_same_base ? to.offset > now->stack_pointer.offset : to.base == REGISTER_FRAME_POINTER;
    now->stack_pointer = to;
}

/// A function that removes its arguments from the stack, as the code of V8 does, pops the return address into a register, moves
/// the stack pointer, pushes the address again and returns.
static void carry(struct position *now, const struct stackcap_instruction *code) {
    bool moves = code->kind == CODE_LOSE_STACK || (code->kind == CODE_ADDRESS && code->to == REGISTER_STACK_POINTER);
    if (code->kind == CODE_POP && code->to >= 0) {
        now->carried = TAKEN;
        now->carrier = code->to;
        now->carried_from = now->stack_pointer;
    } else if (now->carried == TAKEN && moves)
        now->carried = MOVED;
    else if (now->carried == MOVED && code->kind == CODE_PUSH && code->from == now->carrier)
        now->carried = PUT_BACK;
    else if (now->carried != PUT_BACK || code->kind != CODE_RETURN)
        now->carried = NOT_CARRIED;
}

/// \returns whether the path continues after the instruction.
static enum progress take(struct search *search, struct position *now, const struct stackcap_instruction *code) {
    carry(now, code);
    switch (code->kind) {
    case CODE_TRAP:
        return ENDS_NOWHERE;
    case CODE_RETURN:
        if (now->carried == PUT_BACK)
            now->stack_pointer = now->carried_from;
        return arrive(search, now, true);
    case CODE_JUMP:
        return jump(search, now, code->target);
    case CODE_JUMP_IF:
        branch(search, now, code->target);
        break;
    case CODE_JUMP_SLOT:
        return arrive(search, now, true);
    case CODE_JUMP_AWAY:  // a tail call, or a switch, whose cases are likely to follow
        if (arrive(search, now, now->has_released) == ARRIVES)
            return ARRIVES;
        now->is_doubtful = true;
        break;
    case CODE_CALL:
        now->has_released = false;
        break;
    case CODE_PUSH:
        push(search, now, code->from);
        break;
    case CODE_POP:
        pop(now, code->to);
        break;
    case CODE_LEAVE:
        now->stack_pointer = now->frame_pointer;
        pop(now, REGISTER_FRAME_POINTER);
        break;
    case CODE_ADDRESS:
        if (code->to == REGISTER_STACK_POINTER)
            move_stack(now, sum_of(now, code));
        else if (code->to == REGISTER_FRAME_POINTER && code->from == REGISTER_STACK_POINTER)
            now->frame_pointer = sum_of(now, code);
        break;
    case CODE_LOAD:
        restore(now, code->to, sum_of(now, code));
        break;
    case CODE_LOSE_STACK:
        now->stack_pointer.base = 0;
        break;
    default:
        break;
    }
    return GOES_ON;
}

/// A call that does not return may be a function's last instruction; padding or another function follows then.
static void doubt_end(struct position *now, int before, const struct stackcap_instruction *code) {
    now->is_doubtful |= before == CODE_CALL && (code->kind == CODE_PADDING || (now->address % 16 == 0 && code->kind == CODE_PUSH));
}

static bool read_instruction(stackcap_unwinder *unwinder, uint64_t address, struct stackcap_instruction *code) {
    uint8_t bytes[LONGEST_INSTRUCTION];
    if (!stackcap_peek(unwinder, address, bytes, 1))
        return false;
    stackcap_peek_code(unwinder, address, bytes, sizeof bytes);
    *code = stackcap_decode(bytes, address);
    return code->length > 0;
}

/// Follows the instructions from the position until the path ends.
/// \param before The kind of the instruction that was executed last.
static enum progress follow(struct search *search, struct position now, int before) {
    enum progress progress = GOES_ON;
    while (progress == GOES_ON && search->instructions_left-- > 0) {
        if (search->goal != 0 && now.address == search->goal)
            return arrive_inside(search, &now);
        struct stackcap_instruction code;
        if (now.address == search->high || !read_instruction(search->unwinder, now.address, &code))
            return ENDS_NOWHERE;
        doubt_end(&now, before, &code);
        progress = take(search, &now, &code);
        before = code.kind;
        now.address += code.length;
    }
    return progress;
}

/// Follows all paths from the address on. \returns whether one reached a return for sure.
static bool go_all_ways(struct search *search, uint64_t address, bool is_return) {
    struct position start = {
        .address = address,
        .stack_pointer = {REGISTER_STACK_POINTER, 0},
        .frame_pointer = {REGISTER_FRAME_POINTER, 0},
    };
    memset(search->way, 0, sizeof *search->way);
    branch(search, &start, address);
    for (size_t i = 0; i < search->branch_count; i++)
        if (follow(search, search->branches[i], i == 0 && is_return ? CODE_CALL : CODE_OTHER) == ARRIVES)
            return true;
    return false;
}

bool stackcap_find_way_out(stackcap_unwinder *unwinder, uint64_t address, bool is_return, struct stackcap_way_out *way) {
    struct search search = {.unwinder = unwinder, .instructions_left = MOST_INSTRUCTIONS, .way = way};
    uint8_t byte;
    if (!stackcap_gap_around(unwinder, is_return ? address - 1 : address, &search.low, &search.high))
        search.low = 0, search.high = UINT64_MAX;
    if (go_all_ways(&search, address, is_return))
        return true;
    // A call of an address that is not code has left its return address on top of the stack.
    if (!is_return && !stackcap_peek(unwinder, address, &byte, sizeof byte))
        way->return_address = (struct stackcap_sum){REGISTER_STACK_POINTER, 0};
    return way->return_address.base != 0;
}

bool stackcap_find_way_in(stackcap_unwinder *unwinder, uint64_t start, uint64_t address, struct stackcap_way_out *way) {
    struct search search = {.unwinder = unwinder, .instructions_left = MOST_INSTRUCTIONS, .way = way, .goal = address};
    return stackcap_gap_around(unwinder, start, &search.low, &search.high) && go_all_ways(&search, start, false);
}

size_t stackcap_find_starts(stackcap_unwinder *unwinder, uint64_t address, uint64_t starts[STACKCAP_STARTS]) {
    uint64_t low, high;
    size_t count = 0;
    if (!stackcap_gap_around(unwinder, address, &low, &high) || address - low > MOST_GAP_BYTES)
        return 0;
    int before = CODE_RETURN;
    bool is_padded = false;
    while (low <= address) {
        struct stackcap_instruction code;
        if (!read_instruction(unwinder, low, &code))
            return count;
        bool is_ended = before == CODE_RETURN || before == CODE_JUMP || before == CODE_JUMP_SLOT || before == CODE_JUMP_AWAY ||
                        before == CODE_TRAP || (before == CODE_CALL && is_padded);
        if (code.kind == CODE_PADDING)
            is_padded = true;
        else {
            if (is_ended && low % 16 == 0)
                starts[count++ % STACKCAP_STARTS] = low;
            before = code.kind;
            is_padded = false;
        }
        low += code.length;
    }
    return count;
}

#endif
