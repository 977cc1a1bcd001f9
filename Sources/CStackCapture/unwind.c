/// Unwinding a copy: as many walks as it takes until the result is known to be that of one moment; then the awaiting
/// functions, and which frames of a deep stack are kept. Most stacks need one walk.
///
///     stackcap_unwind_copy
///       walk_settled         once, and again without the modules that may have been replaced since the copy
///         walk_whole         once; of a large stack again, to check its uncopied middle, or to leave it out
///           walk_once        walk.c; for a sleeping thread guess.c, which walks with each guess
#include "session.h"
#include "walk.h"

#include <string.h>

/// \param reads_middle whether the part between the two copied ends is read as it is now. \returns whether the first frame was found.
static bool walk_once(stackcap_unwinder *unwinder, bool reads_middle) {
    stackcap_pages_forget(&unwinder->pages);
    unwinder->registers = unwinder->start;
    unwinder->scanned_count = 0;
    unwinder->reads_middle = reads_middle;
    unwinder->is_late = false;
    unwinder->walk_until_ns = stackcap_own_time_ns() + STACKCAP_MAX_WALK_NS;
    return unwinder->registers_are_guessed ? stackcap_unwind_guessing(unwinder) : stackcap_unwind_from_registers(unwinder);
}

/// Whether a running thread is still where it was copied, as far as can be determined: it may have left and returned by another
/// path, so two walks must see the same frames, and the memory copied next to the middle must be unchanged after each.
static bool is_still_there(stackcap_unwinder *unwinder) {
    uint64_t seen = unwinder->trail;
    return stackcap_middle_holds(unwinder) && walk_once(unwinder, true) && unwinder->trail == seen &&
           unwinder->end == STACKCAP_END_COMPLETE && stackcap_middle_holds(unwinder);
}

/// Walks the stack. The uncopied part between the two ends of a large stack is read as it is now, and then checked.
static bool walk_whole(stackcap_unwinder *unwinder) {
    unwinder->start = unwinder->registers;
    bool found = walk_once(unwinder, true);
    if (!found || !unwinder->read_middle)
        return found;
    bool is_quiet = unwinder->registers_are_guessed;
    // If the thread has not run since, nothing has changed, wherever its stack leads.
    if (is_quiet ? stackcap_sleeps_on(unwinder) : unwinder->end == STACKCAP_END_COMPLETE && is_still_there(unwinder))
        return true;
    return walk_once(unwinder, false);
}

/// Whether the walk may have used the table or the instructions of a module that was replaced since the copy was made. Only
/// modules that can be replaced count: most stacks contain none.
static bool may_be_replaced(const stackcap_unwinder *unwinder) {
    if (unwinder->modules || !stackcap_loader_has_moved(&unwinder->loader))
        return false;
    for (size_t i = 0; i < unwinder->frame_count && i < STACKCAP_MAX_FRAMES; i++)
        if (!stackcap_is_lasting(unwinder, unwinder->frames[i].address - (i > 0)))
            return true;
    return unwinder->frame_count > STACKCAP_MAX_FRAMES;  // those in the middle are not known any more
}

/// Walks the stack, and again without the modules that may have been replaced if the walk led through any.
/// \param unsettled set if that is the case: another copy may show more.
static bool walk_settled(stackcap_unwinder *unwinder, bool *unsettled) {
    unwinder->distrusts_loaded = false;
    bool found = walk_whole(unwinder);
    *unsettled = found && may_be_replaced(unwinder);
    if (!*unsettled)
        return found;
    unwinder->distrusts_loaded = true;
    unwinder->rows.walk++;  // none that this walk has learnt
    unwinder->registers = unwinder->start;
    return walk_whole(unwinder);
}

/// Reads the chain of awaiting functions, and drops it if the thread may have left its position before it was read.
static void read_async(stackcap_unwinder *unwinder) {
    stackcap_async_read(unwinder);
    if (unwinder->async.callers.end == STACKCAP_ASYNC_NONE)
        return;
    bool sleeps_on = unwinder->registers_are_guessed && stackcap_sleeps_on(unwinder);
    if (!sleeps_on && !stackcap_async_holds(unwinder))
        stackcap_async_doubt(unwinder);
}

/// The index of a frame after the middle ones have been left out; one of those counts as the last before the gap.
static size_t index_of(size_t frame, size_t left_out) {
    if (left_out == 0 || frame < HALF_OF_FRAMES)
        return frame;
    return frame < HALF_OF_FRAMES + left_out ? HALF_OF_FRAMES - 1 : frame - left_out;
}

/// Rotates the ring so that the innermost of its frames comes first. \returns the number of frames that were dropped.
static size_t order_frames(stackcap_unwinder *unwinder) {
    if (unwinder->frame_count <= STACKCAP_MAX_FRAMES)
        return 0;
    stackcap_frame turned[HALF_OF_FRAMES];
    for (size_t i = 0; i < HALF_OF_FRAMES; i++)
        turned[i] = *stackcap_frame_at(unwinder, unwinder->frame_count - HALF_OF_FRAMES + i);
    memcpy(unwinder->frames + HALF_OF_FRAMES, turned, sizeof turned);
    return unwinder->frame_count - STACKCAP_MAX_FRAMES;
}

stackcap_outcome stackcap_unwind(stackcap_session *session, stackcap_unwound *unwound) {
    return stackcap_unwind_copy(&session->unwinder, unwound);
}

stackcap_outcome stackcap_unwind_copy(stackcap_unwinder *unwinder, stackcap_unwound *unwound) {
    uint64_t began = stackcap_now_ns();
    unwinder->rows.walk++;
    bool is_unsettled, found = walk_settled(unwinder, &is_unsettled);
    read_async(unwinder);
    size_t left_out = order_frames(unwinder);
    unwinder->async.callers.frame = index_of(unwinder->async.callers.frame, left_out);
    *unwound = (stackcap_unwound){
        .frames = unwinder->frames,
        .count = unwinder->frame_count - left_out,
        .left_out = left_out,
        .left_out_after = HALF_OF_FRAMES,
        .end = unwinder->end,
        .is_unsettled = is_unsettled,
        .unwinder_error = unwinder->unwinder_error,
        .held_ns = unwinder->copy.held_ns,
        .unwind_ns = stackcap_now_ns() - began,
        .copied_bytes = unwinder->copy.inner.length + unwinder->copy.outer.length,
        .async = unwinder->async.callers,
    };
    return (stackcap_outcome){found ? STACKCAP_OK : STACKCAP_UNWINDER, 0};
}
