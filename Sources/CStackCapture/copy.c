/// The copy of a stack: made in the signal handler or from outside, then read by the unwinder as if it were memory.
#include "walk.h"

#include <errno.h>
#include <string.h>

/// The two ends that are copied of a stack that is larger than the buffer.
enum { OUTER_BYTES = 64 * 1024, INNER_BYTES = STACKCAP_MAX_COPY - OUTER_BYTES };
/// The most that is copied of each of two stacks, a foreign one and the thread's own; and the part in which the own one is read if not
/// all of it can be.
enum { EACH_BYTES = STACKCAP_MAX_COPY / 2, STEP_BYTES = 32 * 1024 };

static bool read_part(stackcap_unwinder *unwinder, uint8_t *bytes, uint64_t start, uint64_t length, struct stackcap_part *part) {
    if (stackcap_read_live(&unwinder->reader, start, bytes, length) != (ssize_t)length)
        return false;
    *part = (struct stackcap_part){bytes, start, length};
    return true;
}

/// \returns 0 or an errno.
static int copy_from(stackcap_unwinder *unwinder, uint64_t start, uint64_t stack_pointer, uint64_t high) {
    struct stackcap_copy *copy = &unwinder->copy;
    bool is_large = high - start > STACKCAP_MAX_COPY;
    copy->high = high;
    copy->is_foreign = false;
    copy->outer = (struct stackcap_part){copy->bytes + INNER_BYTES, high, 0};
    ssize_t count = stackcap_read_live(&unwinder->reader, start, copy->bytes, is_large ? INNER_BYTES : high - start);
    copy->inner = (struct stackcap_part){copy->bytes, start, count < 0 ? 0 : (uint64_t)count};
    if (count < 0)
        return (int)-count;
    if (is_large && count == INNER_BYTES)
        read_part(unwinder, copy->bytes + INNER_BYTES, high - OUTER_BYTES, OUTER_BYTES, &copy->outer);
    return start + copy->inner.length > stack_pointer ? 0 : EFAULT;
}

int stackcap_copy_stack(stackcap_unwinder *unwinder, uint64_t stack_pointer, uint64_t low, uint64_t high) {
    // The compiler may still assume "frame pointer saved at CFA − 16" after the pop that restored it: that is in the red zone.
    uint64_t start = stack_pointer - low < RED_ZONE ? low : stack_pointer - RED_ZONE;
    int error = copy_from(unwinder, start, stack_pointer, high);
    // The first thread's stack is mapped only as far as it has been used: there may be no page below the stack pointer.
    return error && start < stack_pointer ? copy_from(unwinder, stack_pointer, stack_pointer, high) : error;
}

/// Copies the outer part of the thread's own stack. The first thread's stack is mapped only as far as it has been used: if the
/// whole cannot be read, this copies what is readable from its outer end.
static void copy_home(stackcap_unwinder *unwinder, uint64_t low, uint64_t high) {
    struct stackcap_copy *copy = &unwinder->copy;
    uint8_t *end = copy->bytes + STACKCAP_MAX_COPY;
    uint64_t size = high > low ? high - low : 0, length = size < EACH_BYTES ? size : EACH_BYTES;
    copy->home_low = low;
    copy->outer = (struct stackcap_part){end, high, 0};
    if (read_part(unwinder, end - length, high - length, length, &copy->outer))
        return;
    for (uint64_t taken = STEP_BYTES; taken <= length; taken += STEP_BYTES) {
        if (stackcap_read_live(&unwinder->reader, high - taken, end - taken, STEP_BYTES) != STEP_BYTES)
            return;
        copy->outer = (struct stackcap_part){end - taken, high - taken, taken};
    }
}

int stackcap_copy_foreign_stack(stackcap_unwinder *unwinder, uint64_t stack_pointer, uint64_t low, uint64_t high) {
    struct stackcap_copy *copy = &unwinder->copy;
    copy->is_foreign = true;
    copy_home(unwinder, low, high);
    // There may be no page below the stack pointer.
    for (uint64_t red_zone = RED_ZONE;; red_zone = 0) {
        uint64_t start = stack_pointer - red_zone;
        ssize_t count = stackcap_read_live(&unwinder->reader, start, copy->bytes, EACH_BYTES);
        copy->inner = (struct stackcap_part){copy->bytes, start, count < 0 ? 0 : (uint64_t)count};
        copy->high = start + copy->inner.length;
        if (copy->high > stack_pointer && copy->inner.length > 0)
            return 0;
        if (red_zone == 0)
            return count < 0 ? (int)-count : EFAULT;
    }
}

void stackcap_bound_copy(stackcap_unwinder *unwinder, uint64_t high) {
    struct stackcap_copy *copy = &unwinder->copy;
    uint64_t length = high - copy->inner.start;
    copy->high = high;
    copy->inner.length = copy->inner.length < length ? copy->inner.length : length;
}

// Whether memory is still as it was copied.

static bool holds(const stackcap_unwinder *unwinder, const struct stackcap_part *part) {
    uint8_t live[PAGE_SIZE];
    for (uint64_t at = 0; at < part->length; at += sizeof live) {
        size_t length = part->length - at < sizeof live ? part->length - at : sizeof live;
        ssize_t count = stackcap_read_live(&unwinder->reader, part->start + at, live, length);
        if (count != (ssize_t)length || memcmp(live, part->bytes + at, length) != 0)
            return false;
    }
    return true;
}

bool stackcap_copy_holds(const stackcap_unwinder *unwinder) {
    const struct stackcap_copy *copy = &unwinder->copy;
    return copy->inner.length > 0 && holds(unwinder, &copy->inner) && holds(unwinder, &copy->outer);
}

bool stackcap_middle_holds(const stackcap_unwinder *unwinder) {
    const struct stackcap_copy *copy = &unwinder->copy;
    const struct stackcap_part *inner = &copy->inner;
    uint64_t length = inner->length < OUTER_BYTES ? inner->length : OUTER_BYTES, skipped = inner->length - length;
    struct stackcap_part edge = {inner->bytes + skipped, inner->start + skipped, length};
    struct stackcap_part outer = copy->outer;
    // Beyond the outermost frame are the thread's variables, which may fill all that was copied of this end. The kernel also
    // writes there whenever the thread moves to another processor: rseq(2).
    uint64_t outermost = unwinder->frame_count ? stackcap_frame_at(unwinder, unwinder->frame_count - 1)->stack_pointer : UINT64_MAX;
    if (outermost < outer.start + outer.length)
        outer.length = outermost > outer.start ? outermost - outer.start : 0;
    return holds(unwinder, &edge) && holds(unwinder, &outer);
}

// Which addresses are where.

/// Whether the whole of [address, address + length) is in the range, without overflow.
static bool contains(uint64_t start, uint64_t size, uint64_t address, size_t length) {
    return length <= size && address - start <= size - length;
}

static bool lies_in(const struct stackcap_part *part, uint64_t address, size_t length) {
    return contains(part->start, part->length, address, length);
}

static bool lies_at_home(const stackcap_unwinder *unwinder, uint64_t address, size_t length) {
    const struct stackcap_copy *copy = &unwinder->copy;
    uint64_t home_high = copy->outer.start + copy->outer.length;
    return copy->is_foreign && contains(copy->home_low, home_high - copy->home_low, address, length);
}

bool stackcap_in_copy(const stackcap_unwinder *unwinder, uint64_t address, size_t length) {
    return lies_in(&unwinder->copy.inner, address, length);
}

bool stackcap_in_outer_copy(const stackcap_unwinder *unwinder, uint64_t address, size_t length) {
    return lies_in(&unwinder->copy.outer, address, length);
}

bool stackcap_leads_home(const stackcap_unwinder *unwinder, uint64_t from, uint64_t to) {
    return lies_at_home(unwinder, to, 1) && !lies_at_home(unwinder, from, 1);
}

bool stackcap_is_off_stack(const stackcap_unwinder *unwinder, uint64_t stack_pointer) {
    const struct stackcap_copy *copy = &unwinder->copy;
    return stack_pointer - copy->inner.start > copy->high - copy->inner.start && !lies_at_home(unwinder, stack_pointer, 1);
}

enum stackcap_place stackcap_copy_read(const stackcap_unwinder *unwinder, uint64_t address, void *to, size_t length) {
    const struct stackcap_copy *copy = &unwinder->copy;
    const struct stackcap_part *part = lies_in(&copy->inner, address, length)   ? &copy->inner
                                       : lies_in(&copy->outer, address, length) ? &copy->outer
                                                                                : NULL;
    if (part) {
        memcpy(to, part->bytes + (address - part->start), length);
        return PLACE_COPIED;
    }
    if (lies_at_home(unwinder, address, length))
        return PLACE_NOT_COPIED;
    if (copy->high <= copy->inner.start || !contains(copy->inner.start, copy->high - copy->inner.start, address, length))
        return PLACE_ELSEWHERE;
    bool is_middle = !copy->is_foreign && copy->outer.length > 0 && address >= copy->inner.start + copy->inner.length;
    return is_middle ? PLACE_MIDDLE : PLACE_NOT_COPIED;
}
