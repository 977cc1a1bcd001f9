#define _GNU_SOURCE
#include "direct.h"
#include "rule.h"

#include <CRunLoopShims.h>
#include <dlfcn.h>
#include <errno.h>
#include <sys/epoll.h>

// The hooks of the wait functions. Each has a name of its own, and, at the end of this file, a weak alias with the C library's name.

/// Foundation's CFRunLoopRunSpecific: loop, name of the mode, seconds, whether it returns after one source.
typedef int32_t run_specific(void *, const void *, double, unsigned char);

/// The C library's functions, written before main: by the constructor, or by an earlier call. And Foundation's, which may also be written later.
static struct {
    int (*epoll_wait)(int, struct epoll_event *, int, int);
    int (*epoll_pwait)(int, struct epoll_event *, int, int, const sigset_t *);
    int (*epoll_pwait2)(int, struct epoll_event *, int, const struct timespec *, const sigset_t *);
    int (*poll)(struct pollfd *, nfds_t, int);
    int (*ppoll)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);
    int (*poll_chk)(struct pollfd *, nfds_t, int, size_t);
    int (*ppoll_chk)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *, size_t);
    int (*select)(int, fd_set *, fd_set *, fd_set *, struct timeval *);
    int (*pselect)(int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *);
    run_specific *run_specific;
} next;

/// In a fully static program the C library's function is missing. Then the system call is used.
#define FIND_AS(name, symbol)                                    \
    next.name = (__typeof__(next.name))dlsym(RTLD_NEXT, symbol); \
    if (!next.name) next.name = direct_##name
#define FIND(name) FIND_AS(name, #name)

__attribute__((constructor(101))) static void find_next(void) {
    if (next.pselect) return;
    FIND(epoll_wait);
    FIND(epoll_pwait);
    FIND(epoll_pwait2);
    FIND(poll);
    FIND(ppoll);
    FIND_AS(poll_chk, "__poll_chk");
    FIND_AS(ppoll_chk, "__ppoll_chk");
    FIND(select);
    FIND(pselect);
}

/// Another library's constructor may wait before ours has run.
#define NEXT(name) \
    if (__builtin_expect(!next.name, 0)) find_next()

/// Called before a wait. Returns whether it is a wait of the thread's loop.
static inline __attribute__((always_inline)) bool
enter(loop_wait wait, const loop_polled *polled, bool rests, bool is_unbounded) {
    loop_thread *thread = &loop_thread_own;
    bool is_known = __builtin_expect(thread->slot && loop_wait_is_same(wait, thread->loop), 1);
    // Only calls that may sleep show where a loop waits.
    if (!is_known && (!rests || !loop_rule_learn(thread, wait, polled, is_unbounded))) return false;
    thread->waits++;
    loop_slot_note_use(thread->slot, wait.set, rests);
    if (polled && rests && __builtin_expect(loop_rule_has_news(thread->slot, polled, thread->waits), 0))
        loop_rule_note_polled(thread->slot, polled);
    void *heartbeat = loop_slot_heartbeat(thread->slot);
    if (!heartbeat || !rests) return true;
    int saved = errno;
    thread->slot->publisher->rest(heartbeat);
    errno = saved;
    return true;
}

/// Called after a wait. If the thread became known during the wait, its heartbeat was at rest from the beginning.
static inline __attribute__((always_inline)) void leave(bool is_loop_wait, bool rests) {
    // If a signal handler called fork(2) during the wait, the child has no slot any more.
    loop_slot *slot = is_loop_wait ? loop_thread_own.slot : NULL;
    if (!slot) return;
    loop_slot_note_use(slot, loop_thread_own.loop.set, false);
    void *heartbeat = loop_slot_heartbeat(slot);
    if (!heartbeat) return;
    int saved = errno;
    (rests ? slot->publisher->leave : slot->publisher->turn)(heartbeat);
    errno = saved;
}

// The caller, and the height of the stack. Used directly in the hooks, which are never inlined.
#define WAIT(set_, only_) \
    ((loop_wait){(uintptr_t)__builtin_return_address(0), (uintptr_t)__builtin_frame_address(0), set_, only_})

#define HOOK static __attribute__((noinline)) int

static inline bool lasts(const struct timespec *timeout) { return !timeout || timeout->tv_sec != 0 || timeout->tv_nsec != 0; }

/// The same for a call whose timeout the C library does not read itself. If it cannot be read, the kernel refuses the call at
/// once. The present stack page is readable; for other places the kernel is asked.
static inline bool lasts_if_readable(const struct timespec *timeout) {
    enum { PAGE = 4096 };
    uintptr_t place = (uintptr_t)timeout, here = (uintptr_t)__builtin_frame_address(0);
    bool is_here = place / PAGE == here / PAGE && (place + sizeof *timeout - 1) / PAGE == here / PAGE;
    if (!timeout || is_here) return lasts(timeout);
    int saved = errno;
    bool can_be_read = loop_rule_can_read(timeout, sizeof *timeout);
    errno = saved;
    return can_be_read && lasts(timeout);
}

// MARK: Sets

HOOK hook_epoll_wait(int set, struct epoll_event *events, int capacity, int timeout) {
    NEXT(epoll_wait);
    bool is_loop_wait = enter(WAIT(set, -1), NULL, timeout != 0, timeout < 0);
    int count = next.epoll_wait(set, events, capacity, timeout);
    leave(is_loop_wait, timeout != 0);
    queue_hooks_note_events((uintptr_t)__builtin_return_address(0));
    return count;
}

HOOK hook_epoll_pwait(int set, struct epoll_event *events, int capacity, int timeout, const sigset_t *mask) {
    NEXT(epoll_pwait);
    bool is_loop_wait = enter(WAIT(set, -1), NULL, timeout != 0, timeout < 0);
    int count = next.epoll_pwait(set, events, capacity, timeout, mask);
    leave(is_loop_wait, timeout != 0);
    return count;
}

HOOK hook_epoll_pwait2(int set, struct epoll_event *events, int capacity, const struct timespec *timeout, const sigset_t *mask) {
    NEXT(epoll_pwait2);
    bool rests = lasts_if_readable(timeout);
    bool is_loop_wait = enter(WAIT(set, -1), NULL, rests, !timeout);
    int count = next.epoll_pwait2(set, events, capacity, timeout, mask);
    leave(is_loop_wait, rests);
    return count;
}

// MARK: Polls

#define POLLED(descriptors_, count_) (&(loop_polled){.descriptors = descriptors_, .count = count_})

/// The descriptor, if there is only one and if it is certain that it can be read here: in a variable of the caller, as Foundation has it.
static inline int only(const struct pollfd *descriptors, nfds_t count) {
    enum { NEAR = 4096 };
    uintptr_t above = (uintptr_t)descriptors - (uintptr_t)__builtin_frame_address(0);
    return count == 1 && above < NEAR ? descriptors->fd : -1;
}

HOOK hook_poll(struct pollfd *descriptors, nfds_t count, int timeout) {
    NEXT(poll);
    bool is_loop_wait = enter(WAIT(-1, only(descriptors, count)), POLLED(descriptors, count), timeout != 0, timeout < 0);
    int ready = next.poll(descriptors, count, timeout);
    leave(is_loop_wait, timeout != 0);
    return ready;
}

HOOK hook_ppoll(struct pollfd *descriptors, nfds_t count, const struct timespec *timeout, const sigset_t *mask) {
    NEXT(ppoll);
    bool rests = lasts(timeout);
    bool is_loop_wait = enter(WAIT(-1, only(descriptors, count)), POLLED(descriptors, count), rests, !timeout);
    int ready = next.ppoll(descriptors, count, timeout, mask);
    leave(is_loop_wait, rests);
    return ready;
}

// The functions that programs compiled with _FORTIFY_SOURCE call. They end the process if the array is shorter than `count`.

HOOK hook_poll_chk(struct pollfd *descriptors, nfds_t count, int timeout, size_t length) {
    NEXT(poll_chk);
    bool fits = length / sizeof *descriptors >= count;
    bool is_loop_wait = enter(WAIT(-1, fits ? only(descriptors, count) : -1), POLLED(descriptors, fits ? count : 0), timeout != 0, timeout < 0);
    int ready = next.poll_chk(descriptors, count, timeout, length);
    leave(is_loop_wait, timeout != 0);
    return ready;
}

HOOK hook_ppoll_chk(struct pollfd *descriptors, nfds_t count, const struct timespec *timeout, const sigset_t *mask, size_t length) {
    NEXT(ppoll_chk);
    bool fits = length / sizeof *descriptors >= count, rests = lasts(timeout);
    bool is_loop_wait = enter(WAIT(-1, fits ? only(descriptors, count) : -1), POLLED(descriptors, fits ? count : 0), rests, !timeout);
    int ready = next.ppoll_chk(descriptors, count, timeout, mask, length);
    leave(is_loop_wait, rests);
    return ready;
}

// MARK: Selects

#define SELECTED(count_, readable_, writable_) \
    (&(loop_polled){.readable = readable_, .writable = writable_, .count = count_ > 0 ? (unsigned long)count_ : 0})

HOOK hook_select(int count, fd_set *readable, fd_set *writable, fd_set *exceptional, struct timeval *timeout) {
    NEXT(select);
    // Read before the call, because the kernel writes the remaining time there.
    bool rests = !timeout || timeout->tv_sec != 0 || timeout->tv_usec != 0;
    bool is_loop_wait = enter(WAIT(-1, -1), SELECTED(count, readable, writable), rests, !timeout);
    int ready = next.select(count, readable, writable, exceptional, timeout);
    leave(is_loop_wait, rests);
    return ready;
}

HOOK hook_pselect(
    int count, fd_set *readable, fd_set *writable, fd_set *exceptional, const struct timespec *timeout, const sigset_t *mask
) {
    NEXT(pselect);
    bool rests = lasts(timeout);
    bool is_loop_wait = enter(WAIT(-1, -1), SELECTED(count, readable, writable), rests, !timeout);
    int ready = next.pselect(count, readable, writable, exceptional, timeout, mask);
    leave(is_loop_wait, rests);
    return ready;
}

// MARK: Foundation's run loop

// Any thread may run Foundation's loop for a while, as Process.waitUntilExit() does, and then do something else, such as waiting for the next work
// of a pool. Nothing waits for that loop any more, so it is at rest while it does not run. The main thread's is not: programs run it again and
// again, and work in between.

/// Publishes that the thread's outermost run begins or has ended. A loop that was found outside of such a run runs on.
static void note_run(bool begins) {
    loop_slot *slot = loop_thread_own.is_in_run ? loop_thread_own.slot : NULL;
    void *heartbeat = slot ? loop_slot_heartbeat(slot) : NULL;
    if (!heartbeat || run_loop_is_main_thread()) return;
    int saved = errno;
    (begins ? slot->publisher->turn : slot->publisher->rest)(heartbeat);
    errno = saved;
}

/// Foundation may have been loaded after the program's start, and for one other library alone: then it is found by its name only.
/// \returns null if it is not there.
static run_specific *find_run_specific(void) {
    run_specific *found = (run_specific *)dlsym(RTLD_NEXT, "CFRunLoopRunSpecific");
    void *foundation = found ? NULL : dlopen("libFoundation.so", RTLD_LAZY | RTLD_NOLOAD);
    if (foundation) found = (run_specific *)dlsym(foundation, "CFRunLoopRunSpecific");
    __atomic_store_n(&next.run_specific, found, __ATOMIC_RELAXED);
    return found;
}

/// All of Foundation's ways to run a loop call this function.
static __attribute__((noinline)) int32_t hook_run_specific(void *loop, const void *mode, double seconds, unsigned char returns_after_source) {
    run_specific *run = __atomic_load_n(&next.run_specific, __ATOMIC_RELAXED);
    if (!run) run = find_run_specific();
    if (!run) return 1;  // kCFRunLoopRunFinished: there is no loop to run
    if (loop_thread_own.runs++ == 0) note_run(true);
    int32_t result = run(loop, mode, seconds, returns_after_source);
    if (--loop_thread_own.runs == 0) note_run(false);
    return result;
}

// MARK: The C library's names

// Weak: another definition in the program takes precedence, without a conflict when linking.
#define CALL_BY(name, hook) extern __typeof__(hook) name __attribute__((weak, alias(#hook)))

CALL_BY(epoll_wait, hook_epoll_wait);
CALL_BY(epoll_pwait, hook_epoll_pwait);
CALL_BY(epoll_pwait2, hook_epoll_pwait2);
CALL_BY(poll, hook_poll);
CALL_BY(ppoll, hook_ppoll);
CALL_BY(__poll_chk, hook_poll_chk);
CALL_BY(__ppoll_chk, hook_ppoll_chk);
CALL_BY(select, hook_select);
CALL_BY(pselect, hook_pselect);
CALL_BY(CFRunLoopRunSpecific, hook_run_specific);

// The C library's name refers to the definition that the linker and the dynamic loader have chosen.
bool loop_hooks_are_called(void) { return &epoll_wait == &hook_epoll_wait && &poll == &hook_poll; }
