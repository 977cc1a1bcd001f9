#define _GNU_SOURCE
#include "rule.h"

#include <CRunLoopShims.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// A thread's loop is the wait that it comes back to: twice for the same epoll set, or twice by a poll at one place of the code and one
// height of the stack, for what loops poll. A look that does not wait teaches nothing.
//
// A thread has one loop. A wait further out on its stack takes the loop's place when it comes a second time: the loop that was taken for
// it was within one of its turns. A wait further in is such a nested loop itself, and no rest: what the loop is to serve waits meanwhile.
// Only if it is all that the thread does for five seconds the loop is taken to be over, and it for the next.

_Thread_local __attribute__((tls_model("initial-exec"))) loop_thread loop_thread_own;

static const uint64_t NESTED_FOR_NS = 5000000000;

static uint64_t coarse_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

// MARK: What loops poll

enum kind { NOTHING, CONNECTION, LISTENER, CHANNEL, WAKER, OWN_SET };

/// The name that /proc has for the descriptor. snprintf is not async-signal-safe.
static ssize_t name_of(int descriptor, char name[64]) {
    char path[32] = "/proc/self/fd/", digits[12];
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

/// The `index`th descriptor polled; -1 for none.
static int descriptor_at(const loop_polled *polled, unsigned long index) {
    if (polled->descriptors) return polled->descriptors[index].fd;
    bool is_asked = (polled->readable && FD_ISSET(index, polled->readable)) || (polled->writable && FD_ISSET(index, polled->writable));
    return is_asked ? (int)index : -1;
}

/// Whether the memory can be read, which a caller may have wrong: the kernel then refuses the wait by EFAULT, and so has nothing to be read
/// here. Asked of a call that looks at eight bytes and then refuses all the same.
static bool is_readable(const void *start, size_t length) {
    enum { PAGE = 4096 };
    uintptr_t last = (uintptr_t)start + length;
    if (last < (uintptr_t)start) return false;
    for (uintptr_t at = (uintptr_t)start & ~(uintptr_t)7; at < last; at = (at & ~(uintptr_t)(PAGE - 1)) + PAGE)
        if (syscall(SYS_rt_sigprocmask, ~0, at, NULL, 8) != 0 && errno == EFAULT) return false;
    return true;
}

static bool can_be_looked_at(const loop_polled *polled, unsigned long count) {
    size_t bits = (count + 7) / 8;
    return (!polled->descriptors || is_readable(polled->descriptors, count * sizeof *polled->descriptors)) &&
           (!polled->readable || is_readable(polled->readable, bits)) && (!polled->writable || is_readable(polled->writable, bits));
}

/// Servers poll what tells them of clients, of time and of other threads. A client polls its connection, which is as often as it asks its
/// server for something, and between two questions it may do or await anything: it is no loop.
static bool is_of_a_loop(const loop_polled *polled, bool is_unbounded) {
    unsigned seen = 0;
    unsigned long count = polled->count < FD_SETSIZE ? polled->count : FD_SETSIZE;
    if (!can_be_looked_at(polled, count)) return false;
    for (unsigned long i = 0; i < count; i++) {
        seen |= 1u << kind_of(descriptor_at(polled, i));
        if (seen & (1u << LISTENER | 1u << OWN_SET)) return true;
    }
    // Clients poll these, too, to be cancelled or to follow a child's output, but seldom so and without a limit of time.
    return is_unbounded && ((seen & 1u << WAKER) || ((seen & 1u << CHANNEL) && (seen & 1u << CONNECTION)));
}

// MARK: The rule

static void take_for_candidate(loop_thread *thread, loop_wait wait) {
    thread->candidate = wait;
    thread->waits_before = thread->waits;
    thread->candidate_since_ns = coarse_now_ns();
}

/// The same call as the loop's, for another set: the loop has made itself a new one.
static bool has_moved(const loop_thread *thread, loop_wait wait) {
    return wait.place == thread->loop.place && wait.frame == thread->loop.frame;
}

/// Of a thread with a loop: whether the wait, in which it has been before, takes the loop's place.
static bool replaces(const loop_thread *thread, loop_wait wait) {
    if (wait.frame > thread->loop.frame) return true;
    return coarse_now_ns() - thread->candidate_since_ns >= NESTED_FOR_NS;
}

/// Whether the thread comes back to the wait. Not if the loop has waited since, and it is not further out than that: then it is within one
/// of the loop's turns after the other.
static bool is_come_back_to(const loop_thread *thread, loop_wait wait) {
    if (!thread->candidate.place || !loop_wait_is_same(wait, thread->candidate)) return false;
    return !thread->slot || wait.frame > thread->loop.frame || thread->waits == thread->waits_before;
}

/// What a poll is for takes a system call or two for each descriptor to find out, and a client may poll at one place for ever: asked at the
/// first, second, fourth, eighth … time.
static bool is_to_be_asked(loop_thread *thread, loop_wait wait) {
    if (!thread->asked.place || !loop_wait_is_same(wait, thread->asked)) {
        thread->asked = wait;
        thread->times_asked = 0;
    }
    thread->times_asked++;
    return (thread->times_asked & (thread->times_asked - 1)) == 0;
}

static bool is_loops(loop_thread *thread, loop_wait wait, const loop_polled *polled, bool is_unbounded) {
    if (!thread->slot || !has_moved(thread, wait)) {
        if (!is_come_back_to(thread, wait)) {
            take_for_candidate(thread, wait);
            return false;
        }
        if (thread->slot && !replaces(thread, wait)) return false;
    }
    return !polled || (is_to_be_asked(thread, wait) && is_of_a_loop(polled, is_unbounded));
}

bool loop_rule_learn(loop_thread *thread, loop_wait wait, const loop_polled *polled, bool is_unbounded) {
    // The run loops of this package publish their waits themselves.
    if (run_loop_publishes_wait_at(wait.place)) return false;
    // There may be room again later.
    if (thread->is_refused && ++thread->waits_refused % 1024 != 0) return false;
    int saved = errno;
    bool is_loop = is_loops(thread, wait, polled, is_unbounded);
    if (is_loop && !thread->slot) loop_slot_claim(&thread->slot);
    errno = saved;
    if (!is_loop) return false;
    thread->is_refused = !thread->slot;
    thread->loop = wait;
    if (thread->slot) atomic_store_explicit(&thread->slot->set, wait.set, memory_order_relaxed);
    return !thread->is_refused;
}
