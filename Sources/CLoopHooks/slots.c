#define _GNU_SOURCE
#include "slots.h"

#include <CRunLoopShims.h>
#include <errno.h>
#include <semaphore.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// The states of a slot. The registrar makes the transitions with an asterisk, the slot's thread the others.
//
//     FREE ───> CLAIMED ───> FOUND ──*──> INSPECTED ──*──> KNOWN
//      ▲                       │                             │
//      └───────────── the loop's or the thread's end ────────┘
enum { FREE, CLAIMED, FOUND, INSPECTED, KNOWN };

static loop_slot slots[LOOP_HOOKS_CAPACITY];
static _Atomic uint32_t overflow;
/// The slots from this number on were never used. A search, and a fork, leave them alone: together they are 80 pages of memory.
static _Atomic uint32_t reach;
/// Where to search for a free slot first. Only a hint: mostly the lowest one, so that `reach` stays low.
static _Atomic uint32_t next_free;
static sem_t wakeups;
/// The key whose destructor frees the slot of an ending thread, plus one. 0 while there is no key.
static _Atomic uint32_t ends;

/// The calling thread's slot. Initial-exec: at a fixed distance from the thread pointer, so that the first use does not allocate.
static _Thread_local __attribute__((tls_model("initial-exec"))) loop_slot *own;
/// Whether the calling thread is ending. Another key's destructor may wait again; a slot claimed in the last round of destructors would never
/// be freed.
static _Thread_local __attribute__((tls_model("initial-exec"))) bool is_ending;

/// Not by clock_nanosleep(3), which is a cancellation point: a thread that was cancelled and returns would end here, its slot would
/// stay, and its loop would be taken for stalled.
static void nap(void) {
    struct timespec time = {.tv_nsec = 100000};
    syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &time, NULL);
}

static void set_free(loop_slot *slot) {
    atomic_store(&slot->state, FREE);
    uint32_t number = (uint32_t)(slot - slots), hint = atomic_load_explicit(&next_free, memory_order_relaxed);
    while (number < hint && !atomic_compare_exchange_weak(&next_free, &hint, number)) {}
}

/// Frees a slot. The registrar may be reading the thread's attributes, which end with the thread: this waits for it. That takes microseconds.
/// After ten seconds without progress the slot is never freed.
static void free_slot(loop_slot *slot) {
    for (int naps = 0; naps < 100000; naps++) {
        int state = FOUND;
        if (atomic_compare_exchange_strong(&slot->state, &state, CLAIMED)) return set_free(slot);
        if (state == KNOWN) {
            void *heartbeat = atomic_exchange(&slot->heartbeat, NULL);
            slot->publisher->end(heartbeat);
            return set_free(slot);
        }
        nap();
    }
}

void loop_slot_give_up(void) {
    loop_slot *slot = own;
    if (!slot) return;
    own = *slot->holder = NULL;
    free_slot(slot);
}

/// Called on an ending thread. The key's value is not used: after fork(2) the child's thread has the parent's.
static void free_own_slot(void *value) {
    (void)value;
    is_ending = true;
    loop_slot_give_up();
}

/// Called after fork(2) on the child's only thread. The child has no other thread and no registrar, and its thread is found again.
static void forget_all(void) {
    if (own) own = *own->holder = NULL;
    memset(slots, 0, atomic_load(&reach) * sizeof *slots);
    atomic_store(&reach, 0);
    atomic_store(&next_free, 0);
    atomic_store(&overflow, 0);
    sem_init(&wakeups, 0, 0);
}

/// Creates the key, once. glibc creates keys without a lock. If two threads call this at once, one of them deletes its key.
static uint32_t make_key(void) {
    uint32_t known = atomic_load(&ends);
    pthread_key_t key;
    if (known || pthread_key_create(&key, free_own_slot) != 0) return known;
    if (atomic_compare_exchange_strong(&ends, &known, key + 1)) return key + 1;
    pthread_key_delete(key);
    return known;
}

__attribute__((constructor(101))) static void prepare(void) {
    sem_init(&wakeups, 0, 0);
    pthread_atfork(NULL, NULL, forget_all);
    make_key();
}

/// Sets the key's value, so that the thread's end frees the slot. glibc keeps the values of the first 32 keys in the thread, so setting one is a
/// store; this key is created before main. A thread started by another library's constructor may come before our constructor.
static bool frees_at_end(loop_slot *slot) {
    uint32_t key = make_key();
    return key && pthread_setspecific(key - 1, slot) == 0;
}

static void publish(loop_slot *slot, loop_slot **holder, int set) {
    slot->thread = (int32_t)syscall(SYS_gettid);
    slot->pthread = pthread_self();
    slot->holder = holder;
    atomic_store_explicit(&slot->set, set, memory_order_relaxed);
    atomic_store_explicit(&slot->rests, false, memory_order_relaxed);
    atomic_store_explicit(&slot->polled_count, 0, memory_order_relaxed);
    slot->polled_array = NULL;
    own = *holder = slot;
    // Releasing, for the registrar.
    atomic_store(&slot->state, FOUND);
    loop_hooks_wake();
}

void loop_slot_claim(loop_slot **holder, int set) {
    if (is_ending) return;
    uint32_t first = atomic_load_explicit(&next_free, memory_order_relaxed);
    for (uint32_t i = 0; i < LOOP_HOOKS_CAPACITY; i++) {
        uint32_t number = (first + i) % LOOP_HOOKS_CAPACITY, end = atomic_load(&reach);
        loop_slot *slot = &slots[number];
        int state = FREE;
        // First this, for a fork between the two.
        while (number >= end && !atomic_compare_exchange_weak(&reach, &end, number + 1)) {}
        if (!atomic_compare_exchange_strong(&slot->state, &state, CLAIMED)) continue;
        atomic_store_explicit(&next_free, number + 1, memory_order_relaxed);
        if (frees_at_end(slot)) return publish(slot, holder, set);
        set_free(slot);
        break;
    }
    atomic_fetch_add(&overflow, 1);
    loop_hooks_wake();
}

uint32_t loop_hooks_overflow(void) { return atomic_load(&overflow); }

void loop_hooks_wait(void) {
    while (sem_wait(&wakeups) != 0 && errno == EINTR) {}
    // One wake-up for all threads found in the meantime.
    while (sem_trywait(&wakeups) == 0) {}
}

void loop_hooks_wake(void) {
    int saved = errno;
    sem_post(&wakeups);
    errno = saved;
}

bool loop_hooks_next(uint32_t *cursor, loop_hooks_found *found) {
    for (uint32_t end = atomic_load(&reach); *cursor < end; ++*cursor) {
        loop_slot *slot = &slots[*cursor];
        int state = FOUND;
        if (!atomic_compare_exchange_strong(&slot->state, &state, INSPECTED)) continue;
        *found = (loop_hooks_found){.number = (*cursor)++, .thread = slot->thread};
        // The thread is alive: its end waits until the inspection is over. If this fails, both bounds stay 0.
        run_loop_stack_bounds(slot->pthread, &found->stack_low, &found->stack_high);
        return true;
    }
    return false;
}

uint32_t loop_hooks_polled(uint32_t number, int *descriptors) {
    loop_slot *slot = &slots[number % LOOP_HOOKS_CAPACITY];
    uint32_t count = atomic_load_explicit(&slot->polled_count, memory_order_acquire);
    if (count > LOOP_HOOKS_POLLED) count = LOOP_HOOKS_POLLED;
    for (uint32_t i = 0; i < count; i++) descriptors[i] = atomic_load_explicit(&slot->polled[i], memory_order_relaxed);
    return count;
}

void loop_hooks_bind(uint32_t number, const loop_hooks_publisher *publisher, void *heartbeat) {
    loop_slot *slot = &slots[number % LOOP_HOOKS_CAPACITY];
    slot->publisher = publisher;
    atomic_store_explicit(&slot->heartbeat, heartbeat, memory_order_release);
    atomic_store(&slot->state, KNOWN);
}

// MARK: Epoll sets

// The kernel gives the number of a closed epoll set to the next file. A thread that has closed its loop's set, and does something else, still has
// the number in its slot. So when a loop arrives at a number that other slots have, all of them are in doubt. A thread that waits for the set
// again, or returns from its wait for it, shows that it uses the set. A thread that has left its loop does not.

/// The value of `set` in a slot while it is in doubt whether the thread uses the set. Less than -1; the function is its own inverse.
static int in_doubt(int set) { return -2 - set; }

static int set_of(const loop_slot *slot) { return atomic_load_explicit(&slot->set, memory_order_relaxed); }

/// Whether the slot has the set's number, in doubt or not.
static bool has_number(loop_slot *slot, int set) {
    return atomic_load(&slot->state) >= FOUND && (set_of(slot) == set || set_of(slot) == in_doubt(set));
}

/// Whether the slot's thread uses the set: it waits for it now, or there is no doubt.
static bool uses(loop_slot *slot, int set) {
    return has_number(slot, set) && (set_of(slot) == set || atomic_load_explicit(&slot->rests, memory_order_relaxed));
}

void loop_slot_end_doubt(loop_slot *slot, int set) {
    atomic_store_explicit(&slot->set, set, memory_order_relaxed);
    loop_hooks_wake();
}

int loop_hooks_set(uint32_t number) {
    int set = set_of(&slots[number % LOOP_HOOKS_CAPACITY]);
    return set >= 0 ? set : -1;
}

bool loop_hooks_is_in_doubt(uint32_t number) { return set_of(&slots[number % LOOP_HOOKS_CAPACITY]) < -1; }

void loop_hooks_doubt(int set) {
    uint32_t count = 0, end = atomic_load(&reach);
    for (uint32_t i = 0; i < end; i++) count += has_number(&slots[i], set);
    for (uint32_t i = 0; count > 1 && i < end; i++) {
        int known = set;
        if (atomic_load(&slots[i].state) >= FOUND) atomic_compare_exchange_strong(&slots[i].set, &known, in_doubt(set));
    }
}

bool loop_hooks_shares_set(uint32_t number) {
    loop_slot *slot = &slots[number % LOOP_HOOKS_CAPACITY];
    int seen = set_of(slot), set = seen < -1 ? in_doubt(seen) : seen;
    if (set < 0 || !uses(slot, set)) return false;
    for (uint32_t i = 0, end = atomic_load(&reach); i < end; i++)
        if (&slots[i] != slot && uses(&slots[i], set)) return true;
    return false;
}
