#define _GNU_SOURCE
#include "slots.h"

#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// A slot's life. Arrows with an asterisk are the registrar's, the others the slot's thread's.
//
//     FREE ───> CLAIMED ───> FOUND ──*──> INSPECTED ──*──> KNOWN
//      ▲                       │                             │
//      └────────────────────── thread's end ─────────────────┘
enum { FREE, CLAIMED, FOUND, INSPECTED, KNOWN };

static loop_slot slots[LOOP_HOOKS_CAPACITY];
static _Atomic uint32_t overflow;
/// Where to look for a free slot first: no more than a hint.
static _Atomic uint32_t next_free;
static sem_t news;
/// The key whose destructor gives a slot back, plus one: 0 while there is none.
static _Atomic uint32_t ends;

/// The calling thread's slot. Initial-exec: a word at a fixed distance from the thread pointer, which no first use has to allocate.
static _Thread_local __attribute__((tls_model("initial-exec"))) loop_slot *own;
/// It has begun to end. The destructor of another key may wait once more; a slot that it took in the last round would never be given back.
static _Thread_local __attribute__((tls_model("initial-exec"))) bool is_ending;

static void nap(void) {
    struct timespec time = {.tv_nsec = 100000};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
}

/// The registrar may be reading the thread's attributes, which go with it: that takes microseconds, and is waited for. Should it not go on
/// for ten seconds, the slot is left to it.
static void give_back(loop_slot *slot) {
    for (int naps = 0; naps < 100000; naps++) {
        int state = FOUND;
        if (atomic_compare_exchange_strong(&slot->state, &state, FREE)) return;
        if (state == KNOWN) {
            void *heartbeat = atomic_exchange(&slot->heartbeat, NULL);
            slot->publisher->end(heartbeat);
            return atomic_store(&slot->state, FREE);
        }
        nap();
    }
}

/// On a thread that ends. The key's value is of no interest: a forked child's thread has its parent's.
static void give_own_back(void *value) {
    (void)value;
    is_ending = true;
    loop_slot *slot = own;
    if (!slot) return;
    own = *slot->holder = NULL;
    give_back(slot);
}

/// Runs on a forked child's only thread: it has none of the others, nor the registrar, and is found anew.
static void forget_all(void) {
    if (own) own = *own->holder = NULL;
    memset(slots, 0, sizeof slots);
    atomic_store(&overflow, 0);
    sem_init(&news, 0, 0);
}

/// Once. glibc makes a key without a lock; of two threads that come at once one takes its own back.
static uint32_t make_key(void) {
    uint32_t known = atomic_load(&ends);
    pthread_key_t key;
    if (known || pthread_key_create(&key, give_own_back) != 0) return known;
    if (atomic_compare_exchange_strong(&ends, &known, key + 1)) return key + 1;
    pthread_key_delete(key);
    return known;
}

__attribute__((constructor(101))) static void prepare(void) {
    sem_init(&news, 0, 0);
    pthread_atfork(NULL, NULL, forget_all);
    make_key();
}

/// glibc keeps the values of the first 32 keys, of which this one is made before main, in the thread itself: to set one is a store. A
/// thread that a library's constructor has started may come before ours has run.
static bool will_give_back(loop_slot *slot) {
    uint32_t key = make_key();
    return key && pthread_setspecific(key - 1, slot) == 0;
}

static void show(loop_slot *slot, loop_slot **holder, int set) {
    slot->thread = (int32_t)syscall(SYS_gettid);
    slot->pthread = pthread_self();
    slot->holder = holder;
    atomic_store_explicit(&slot->set, set, memory_order_relaxed);
    own = *holder = slot;
    // Releasing, for the registrar.
    atomic_store(&slot->state, FOUND);
    loop_hooks_ring();
}

void loop_slot_claim(loop_slot **holder, int set) {
    if (is_ending) return;
    uint32_t first = atomic_load_explicit(&next_free, memory_order_relaxed);
    for (uint32_t i = 0; i < LOOP_HOOKS_CAPACITY; i++) {
        loop_slot *slot = &slots[(first + i) % LOOP_HOOKS_CAPACITY];
        int state = FREE;
        if (!atomic_compare_exchange_strong(&slot->state, &state, CLAIMED)) continue;
        atomic_store_explicit(&next_free, first + i + 1, memory_order_relaxed);
        if (will_give_back(slot)) return show(slot, holder, set);
        atomic_store(&slot->state, FREE);
        break;
    }
    atomic_fetch_add(&overflow, 1);
    loop_hooks_ring();
}

uint32_t loop_hooks_overflow(void) { return atomic_load(&overflow); }

void loop_hooks_wait(void) {
    while (sem_wait(&news) != 0 && errno == EINTR) {}
    // One wake for all that were found meanwhile.
    while (sem_trywait(&news) == 0) {}
}

void loop_hooks_ring(void) {
    int saved = errno;
    sem_post(&news);
    errno = saved;
}

/// The thread lives: it does not end while it is inspected.
static void find_stack(const loop_slot *slot, loop_hooks_found *found) {
    pthread_attr_t attributes;
    if (pthread_getattr_np(slot->pthread, &attributes) != 0) return;
    void *address = NULL;
    size_t size = 0;
    if (pthread_attr_getstack(&attributes, &address, &size) == 0) {
        // For main, glibc takes RLIMIT_STACK for the size. Unlimited, it can reach below address 0.
        uintptr_t top = (uintptr_t)address + size;
        found->stack_low = (uintptr_t)address <= top ? (uintptr_t)address : 0;
        found->stack_high = top;
    }
    pthread_attr_destroy(&attributes);
}

bool loop_hooks_next(uint32_t *cursor, loop_hooks_found *found) {
    for (; *cursor < LOOP_HOOKS_CAPACITY; ++*cursor) {
        loop_slot *slot = &slots[*cursor];
        int state = FOUND;
        if (!atomic_compare_exchange_strong(&slot->state, &state, INSPECTED)) continue;
        *found = (loop_hooks_found){.number = (*cursor)++, .thread = slot->thread};
        find_stack(slot, found);
        return true;
    }
    return false;
}

int loop_hooks_set(uint32_t number) {
    return atomic_load_explicit(&slots[number % LOOP_HOOKS_CAPACITY].set, memory_order_relaxed);
}

uint32_t loop_hooks_count_waiting_for(int set) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < LOOP_HOOKS_CAPACITY; i++) {
        bool is_there = atomic_load(&slots[i].state) >= FOUND;
        count += is_there && atomic_load_explicit(&slots[i].set, memory_order_relaxed) == set;
    }
    return count;
}

void loop_hooks_bind(uint32_t number, const loop_hooks_publisher *publisher, void *heartbeat) {
    loop_slot *slot = &slots[number % LOOP_HOOKS_CAPACITY];
    slot->publisher = publisher;
    atomic_store_explicit(&slot->heartbeat, heartbeat, memory_order_release);
    atomic_store(&slot->state, KNOWN);
}
