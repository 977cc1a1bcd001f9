#include "internal.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MOST_GATES = 512 };

static int gates[MOST_GATES][2];
static atomic_bool opened[MOST_GATES];
static atomic_int gate_count;

int gate_create(void) {
    int gate = atomic_fetch_add(&gate_count, 1);
    if (gate >= MOST_GATES || pipe2(gates[gate], O_CLOEXEC) != 0)
        abort();
    return gate;
}

void gate_wait(int gate) {
    char byte;
    while (read(gates[gate][0], &byte, 1) < 0) {}
}

void gate_open(int gate) {
    opened[gate] = true;
    close(gates[gate][1]);
}

pid_t lock_name_thread(const char *name) {
    pthread_setname_np(pthread_self(), name);
    return (pid_t)syscall(SYS_gettid);
}

// Threads that hold something.

struct holder {
    int lock, other, gate;
    bool reads, is_busy, crosses;
    char name[16];
    _Atomic pid_t thread;
};

__attribute__((noinline)) static void lock_hold_at_gate(int gate) {
    gate_wait(gate);
    __asm__ volatile("");  // Prevents a tail call: the function's name must remain on the stack.
}

__attribute__((noinline)) static void lock_hold_busily(int gate) {
    for (volatile unsigned sum = 0; !opened[gate]; sum++) {}
    __asm__ volatile("");
}

__attribute__((noinline)) static void lock_cross(int other) {
    lock_take(other);
    lock_release(other);
    __asm__ volatile("");
}

static void *hold(void *context) {
    struct holder *holder = context;
    pid_t thread = lock_name_thread(holder->name);
    if (holder->reads)
        lock_take_to_read(holder->lock);
    else if (holder->lock >= 0)
        lock_take(holder->lock);
    holder->thread = thread;
    if (holder->crosses) {
        gate_wait(holder->gate);
        lock_cross(holder->other);
        return NULL;  // The test resolved the deadlock by releasing the first lock.
    }
    if (holder->is_busy)
        lock_hold_busily(holder->gate);
    else
        lock_hold_at_gate(holder->gate);
    if (holder->lock >= 0)
        lock_release(holder->lock);
    return NULL;
}

/// Returns once the thread holds its lock. Never frees its argument, which the thread keeps using.
static pid_t start(void *(*body)(void *), struct holder as, const char *name, pthread_t *handle) {
    struct holder *holder = malloc(sizeof *holder);
    if (!holder)
        abort();
    *holder = as;
    strncpy(holder->name, name, sizeof holder->name - 1);
    holder->name[sizeof holder->name - 1] = 0;
    if (pthread_create(handle, NULL, body, holder) != 0)
        abort();
    struct timespec pause = {0, 1000000};
    while (holder->thread == 0)
        nanosleep(&pause, NULL);
    return holder->thread;
}

static pid_t start_detached(struct holder as, const char *name) {
    pthread_t handle;
    pid_t thread = start(hold, as, name, &handle);
    pthread_detach(handle);
    return thread;
}

pid_t lock_start_holder(int lock, int gate, const char *name) {
    return start_detached((struct holder){.lock = lock, .gate = gate}, name);
}

pid_t lock_start_reader(int lock, int gate, const char *name) {
    return start_detached((struct holder){.lock = lock, .gate = gate, .reads = true}, name);
}

pid_t lock_start_busy_holder(int lock, int gate, const char *name) {
    return start_detached((struct holder){.lock = lock, .gate = gate, .is_busy = true}, name);
}

pid_t lock_start_crossing(int first, int gate, int second, const char *name) {
    return start_detached((struct holder){.lock = first, .gate = gate, .other = second, .crosses = true}, name);
}

static void *take_and_end(void *context) {
    struct holder *holder = context;
    holder->thread = lock_name_thread("abandons");
    lock_take(holder->lock);
    return NULL;
}

pid_t lock_abandon(int lock) {
    struct holder holder = {.lock = lock};
    pthread_t handle;
    if (pthread_create(&handle, NULL, take_and_end, &holder) != 0)
        abort();
    pthread_join(handle, NULL);
    return holder.thread;
}

static void *wait_for_lock(void *context) {
    struct holder *holder = context;
    int lock = holder->lock;
    holder->thread = lock_name_thread(holder->name);
    lock_take(lock);
    lock_release(lock);
    return NULL;
}

pid_t lock_start_waiter(int lock, const char *name) {
    pthread_t handle;
    pid_t thread = start(wait_for_lock, (struct holder){.lock = lock}, name, &handle);
    pthread_detach(handle);
    return thread;
}

static pthread_t last_joined;

pid_t lock_start_joined(int gate, const char *name) {
    return start(hold, (struct holder){.lock = -1, .gate = gate}, name, &last_joined);
}

void lock_join_last(void) {
    pthread_join(last_joined, NULL);
}

// Once.

/// libdispatch's function: the Swift runtime includes the library, but not its header.
void dispatch_once_f(long *predicate, void *_Nullable context, void (*function)(void *_Nullable));

static atomic_bool once_begun[MOST_GATES];

bool lock_once_has_begun(int gate) { return once_begun[gate]; }

__attribute__((noinline)) static void lock_initialize(int gate) {
    once_begun[gate] = true;
    gate_wait(gate);
    __asm__ volatile("");
}

static void initialize_for_dispatch(void *gate) {
    lock_initialize((int)(intptr_t)gate);
    __asm__ volatile("");
}

void lock_run_dispatch_once(int gate) {
    // One for each gate: a test that is repeated needs a fresh one.
    static long predicates[MOST_GATES];
    dispatch_once_f(&predicates[gate], (void *)(intptr_t)gate, initialize_for_dispatch);
    __asm__ volatile("");
}

// A contest.

static struct {
    int lock;
    atomic_bool ends;
    _Atomic uint64_t turn;
    _Atomic pid_t waiter;
    pthread_t threads[3];
} contest;

static void *take_turns(void *unused) {
    (void)unused;
    uint64_t thread = (uint64_t)syscall(SYS_gettid);
    for (uint32_t count = 1; !contest.ends; count++) {
        lock_take(contest.lock);
        contest.turn = thread << 32 | count;
        struct timespec time = {0, count % 8 == 0 ? 3000000 : 100000};
        nanosleep(&time, NULL);
        contest.turn = 0;
        lock_release(contest.lock);
    }
    return NULL;
}

static void *wait_for_turns(void *unused) {
    (void)unused;
    contest.waiter = (pid_t)syscall(SYS_gettid);
    while (!contest.ends) {
        lock_take(contest.lock);
        lock_release(contest.lock);
    }
    return NULL;
}

void lock_start_contest(int lock) {
    contest.lock = lock;
    contest.ends = false;
    contest.turn = 0;
    contest.waiter = 0;
    for (int i = 0; i < 3; i++)
        if (pthread_create(&contest.threads[i], NULL, i < 2 ? take_turns : wait_for_turns, NULL) != 0)
            abort();
    struct timespec pause = {0, 1000000};
    while (contest.waiter == 0)
        nanosleep(&pause, NULL);
}

void lock_end_contest(void) {
    contest.ends = true;
    for (int i = 0; i < 3; i++)
        pthread_join(contest.threads[i], NULL);
}

pid_t lock_contestant(void) {
    return contest.waiter;
}

uint64_t lock_turn(void) {
    return contest.turn;
}
