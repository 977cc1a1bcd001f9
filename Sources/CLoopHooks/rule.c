#define _GNU_SOURCE
#include "rule.h"

#include <CRunLoopShims.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// A thread's loop is the wait to which it returns. So a loop is found at its second wait:
// - the second wait for the same epoll set; or
// - the second poll at the same place in the code and the same height of the stack, if it waits for what loops wait for; or
// - the second poll, anywhere, of one descriptor that only loops poll.
// Calls with a timeout of 0 do not count.
//
// A thread has one loop. If the thread returns to a wait further out on its stack, that wait becomes the loop: the former one ran within one of
// its turns. A wait further in is a nested loop. It is not a rest, because what the loop serves has to wait meanwhile. Only if the thread waits
// nowhere else for five seconds is the loop over, and the inner wait becomes the loop.
//
// The run loops of this package publish their waits themselves. While a thread runs one, that is its loop, and all of this holds for its other
// waits, too. When the run loop waits again, an inner loop is over.

_Thread_local __attribute__((tls_model("initial-exec"))) loop_thread loop_thread_own;

static const uint64_t NESTED_FOR_NS = 5000000000;

static uint64_t coarse_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

// MARK: What loops wait for

enum kind { NOTHING, CONNECTION, LISTENER, CHANNEL, WAKER, OWN_SET };

/// The descriptor's name in /proc. (snprintf is not async-signal-safe.)
static ssize_t name_of(int descriptor, char name[64]) {
    char path[32] = "/proc/thread-self/fd/", digits[12];
    int count = 0;
    unsigned number = (unsigned)descriptor;
    do digits[count++] = (char)('0' + number % 10);
    while ((number /= 10) != 0);
    char *end = path + strlen(path);
    while (count > 0) *end++ = digits[--count];
    *end = 0;
    return readlink(path, name, 63);
}

static bool begins(const char *name, const char *start) { return strncmp(name, start, strlen(start)) == 0; }

static enum kind kind_of(int descriptor) {
    char name[64];
    if (descriptor < 0) return NOTHING;
    ssize_t length = name_of(descriptor, name);
    if (length <= 0) return NOTHING;
    name[length] = 0;
    if (begins(name, "socket:")) {
        int listens = 0;
        socklen_t size = sizeof listens;
        bool asked = getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0;
        return asked && listens ? LISTENER : CONNECTION;
    }
    if (begins(name, "pipe:")) return CHANNEL;
    if (begins(name, "anon_inode:[eventfd]")) return WAKER;
    static const char *const sets[] = {
        "anon_inode:[eventpoll]", "anon_inode:[timerfd]", "anon_inode:[signalfd]", "anon_inode:inotify",
    };
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (begins(name, sets[i])) return OWN_SET;
    return NOTHING;
}

/// The polled descriptor with this index; -1 if there is none.
static int descriptor_at(const loop_polled *polled, unsigned long index) {
    if (polled->descriptors) return polled->descriptors[index].fd;
    bool is_asked = (polled->readable && FD_ISSET(index, polled->readable)) || (polled->writable && FD_ISSET(index, polled->writable));
    return is_asked ? (int)index : -1;
}

/// Uses a system call that reads eight bytes and then fails anyway, because its first argument is not valid.
bool loop_rule_can_read(const void *start, size_t length) {
    enum { PAGE = 4096 };
    uintptr_t last = (uintptr_t)start + length;
    if (last < (uintptr_t)start) return false;
    for (uintptr_t at = (uintptr_t)start & ~(uintptr_t)7; at < last; at = (at & ~(uintptr_t)(PAGE - 1)) + PAGE)
        if (syscall(SYS_rt_sigprocmask, ~0, at, NULL, 8) != 0 && errno == EFAULT) return false;
    return true;
}

static bool can_be_looked_at(const loop_polled *polled, unsigned long count) {
    size_t bits = (count + 7) / 8;
    return (!polled->descriptors || loop_rule_can_read(polled->descriptors, count * sizeof *polled->descriptors)) &&
           (!polled->readable || loop_rule_can_read(polled->readable, bits)) && (!polled->writable || loop_rule_can_read(polled->writable, bits));
}

/// The number of descriptors that no client polls.
enum { MANY = 8 };

/// Servers wait for clients, for a time, or for other threads. A client waits for its connection, once per request, and between two requests
/// it may do anything: that is not a loop.
///
/// `PolledSet.isOfLoop` decides the same for other processes.
static bool is_what_loops_poll(const loop_polled *polled, bool is_unbounded) {
    unsigned seen = 0, found = 0;
    unsigned long count = polled->count < FD_SETSIZE ? polled->count : FD_SETSIZE;
    if (!can_be_looked_at(polled, count)) return false;
    for (unsigned long i = 0; i < count; i++) {
        int descriptor = descriptor_at(polled, i);
        found += descriptor >= 0;
        seen |= 1u << kind_of(descriptor);
        if (found >= MANY || seen & (1u << LISTENER | 1u << OWN_SET)) return true;
    }
    // Clients also wait for these, to be cancelled or to read a child's output, but rarely without a timeout.
    return is_unbounded && ((seen & 1u << WAKER) || ((seen & 1u << CHANNEL) && (seen & 1u << CONNECTION)));
}

void loop_rule_note_polled(loop_slot *slot, const loop_polled *polled) {
    int saved = errno;
    uint32_t found = 0;
    unsigned long count = polled->count < FD_SETSIZE ? polled->count : FD_SETSIZE;
    if (!can_be_looked_at(polled, count)) count = 0;
    for (unsigned long i = 0; i < count && found < LOOP_HOOKS_POLLED; i++) {
        int descriptor = descriptor_at(polled, i);
        if (descriptor >= 0) atomic_store_explicit(&slot->polled[found++], descriptor, memory_order_relaxed);
    }
    slot->polled_array = polled->descriptors ? (const void *)polled->descriptors : polled->readable;
    slot->polled_length = polled->count;
    atomic_store_explicit(&slot->polled_count, found, memory_order_release);
    errno = saved;
}

// MARK: The rule

/// Whether it is the loop's call with another epoll set: the loop has created a new one.
static bool has_moved(const loop_thread *thread, loop_wait wait) {
    return wait.place == thread->loop.place && wait.frame == thread->loop.frame;
}

/// The entry for a wait. If all entries are taken, it replaces the innermost one, so that inner waits never displace all outer
/// waits, however many there are.
static loop_candidate *candidate_for(loop_thread *thread, loop_wait wait) {
    loop_candidate *innermost = &thread->candidates[0], *unused = NULL;
    for (int i = 0; i < LOOP_CANDIDATES; i++) {
        loop_candidate *candidate = &thread->candidates[i];
        if (!candidate->is_taken) unused = candidate;
        else if (loop_wait_is_same(wait, candidate->wait)) return candidate;
        else if (candidate->wait.frame < innermost->wait.frame) innermost = candidate;
    }
    if (unused) return unused;
    innermost->is_taken = false;
    return innermost;
}

/// The height of the stack at which the thread's loop waits, or at which it runs a run loop of this package. 0: it has no loop.
static uintptr_t height_of_loop(const loop_thread *thread) { return thread->slot ? thread->loop.frame : run_loop_height_of_run(); }

/// Whether the thread has returned to the wait. It has not if the loop has waited since then, and the wait is not further out than the loop: then
/// it is within two different turns of the loop.
static bool has_returned_to(const loop_thread *thread, const loop_candidate *candidate, loop_wait wait) {
    if (!candidate->is_taken) return false;
    uintptr_t height = height_of_loop(thread);
    return height == 0 || wait.frame > height || thread->waits == candidate->waits_before;
}

/// Records a wait that is seen for the first time, or for the first time since the loop has waited.
static void begin(loop_candidate *candidate, const loop_thread *thread, loop_wait wait) {
    if (!candidate->is_taken) candidate->times[false] = candidate->times[true] = 0;
    candidate->wait = wait;
    candidate->waits_before = thread->waits;
    candidate->since_ns = coarse_now_ns();
    candidate->is_taken = true;
}

/// For a thread with a loop: whether a wait to which it has returned becomes its loop.
static bool replaces(const loop_thread *thread, const loop_candidate *candidate, loop_wait wait) {
    return wait.frame > height_of_loop(thread) || coarse_now_ns() - candidate->since_ns >= NESTED_FOR_NS;
}

/// Whether to find out what a poll waits for. That takes one or two system calls for each descriptor, and a client may poll at one place
/// any number of times. So it is done at the first, second, fourth, eighth … time; of those without a timeout, too, which show more: a loop of GLib
/// may have a timer most of the time.
static bool is_examined(loop_candidate *candidate, bool is_unbounded) {
    uint32_t times = ++candidate->times[is_unbounded];
    return (times & (times - 1)) == 0;
}

/// Whether the wait, which is not that of the thread's known loop, is a loop's. Records it if it is seen for the first time.
static bool is_loop_wait(loop_thread *thread, loop_wait wait, const loop_polled *polled, bool is_unbounded) {
    if (thread->slot && !polled && has_moved(thread, wait)) return true;
    loop_candidate *candidate = candidate_for(thread, wait);
    if (!has_returned_to(thread, candidate, wait)) {
        begin(candidate, thread, wait);
        return false;
    }
    bool is_same_place = candidate->wait.place == wait.place && candidate->wait.frame == wait.frame;
    candidate->wait = wait;
    if (height_of_loop(thread) != 0 && !replaces(thread, candidate, wait)) return false;
    if (!polled) return true;
    // A descriptor of another kind may be polled at several places that have nothing in common.
    return is_examined(candidate, is_unbounded) && (is_same_place || kind_of(wait.only) == OWN_SET) && is_what_loops_poll(polled, is_unbounded);
}

/// Makes the wait the thread's loop. The thread's data is also kept without a slot: for the next try, and for a child after fork(2), which then
/// finds its loop at once.
static void set_loop(loop_thread *thread, loop_wait wait) {
    // Another descriptor may belong to different things at different times.
    if (wait.only >= 0 && kind_of(wait.only) != OWN_SET) wait.only = -1;
    bool is_new = !thread->slot;
    if (is_new) loop_slot_claim(&thread->slot, wait.set);
    thread->is_refused = !thread->slot;
    thread->loop = wait;
    thread->is_in_run = thread->runs > 0;
    // The registrar checks whether another thread waits for the same set.
    if (thread->slot && !is_new && atomic_exchange_explicit(&thread->slot->set, wait.set, memory_order_relaxed) != wait.set)
        loop_hooks_wake();
}

/// Notes that a run loop of this package is about to wait. A loop that was found further in than its run was within one of its turns, or before it,
/// and is over.
static void note_wait_of_run_loop(loop_thread *thread) {
    int saved = errno;
    if (thread->slot && thread->loop.frame < run_loop_height_of_run()) loop_slot_give_up();
    if (!thread->slot) thread->waits++;
    errno = saved;
}

bool loop_rule_learn(loop_thread *thread, loop_wait wait, const loop_polled *polled, bool is_unbounded) {
    // The kernel refuses a wait for a negative descriptor.
    if (!polled && wait.set < 0) return false;
    if (run_loop_publishes_wait_at(wait.place)) return note_wait_of_run_loop(thread), false;
    // Sometimes tries again, because a slot may be free now.
    if (thread->is_refused && ++thread->waits_refused % 1024 != 0) return false;
    int saved = errno;
    bool is_loop = is_loop_wait(thread, wait, polled, is_unbounded);
    if (is_loop) set_loop(thread, wait);
    errno = saved;
    return is_loop && !thread->is_refused;
}
