#include "made_code.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>

struct storm_thread {
    trial_storm *storm;
    pthread_t handle;
    trial_thread thread;
    atomic_bool started, ended;
    _Atomic uint64_t rounds;
};

struct trial_storm {
    trial_load load;
    char folder[256];
    trial_work work;
    atomic_bool released;
    pthread_mutex_t mutex;
    struct storm_thread threads[TRIAL_STORM_THREADS];
};

#define LOAD __attribute__((noinline)) static void

static atomic_uint_fast64_t storm_signals;

LOAD load_malloc(struct storm_thread *t) {
    void *kept[64];
    unsigned random = (unsigned)t->rounds * 2654435761u;
    for (int i = 0; i < 64; i++) {
        random = random * 1103515245 + 12345;
        kept[i] = malloc(16 + (random >> 8 & (i == 7 ? 0xfffff : 4095)));
    }
    for (int i = 0; i < 64; i++)
        free(kept[i]);
}

LOAD load_reload(struct storm_thread *t) {
    char file[sizeof t->storm->folder + 32];
    snprintf(file, sizeof file, "%s/plugin%d.so", t->storm->folder, (int)(t->rounds & 3));
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    require(handle != NULL);
    int (*run)(int) = (int (*)(int))(uintptr_t)dlsym(handle, "plugin_run");
    require(run != NULL && run(12) >= 0);
    dlclose(handle);
}

static int count_object(struct dl_phdr_info *info, size_t size, void *count) {
    (void)info, (void)size;
    ++*(volatile long *)count;
    return 0;
}

LOAD load_iterate(struct storm_thread *t) {
    long count = 0;
    dl_iterate_phdr(count_object, &count);
    t->rounds += count == 0;
}

LOAD load_throw(struct storm_thread *t) {
    trial_throw_once();
    t->rounds += 0;
}

LOAD load_stdio(struct storm_thread *t) {
    char text[128];
    FILE *file = fopen("/dev/null", "w");
    require(file != NULL);
    for (int i = 0; i < 20; i++) {
        fprintf(file, "%d %s %f\n", i, "a line of the log", (double)t->rounds / 3);
        snprintf(text, sizeof text, "%08lx %e", (unsigned long)t->rounds, (double)i);
    }
    fputs(text, file);
    require(fclose(file) == 0);
    t->rounds += 0;  // Prevents a tail call: tests search for the load's frame.
}

LOAD load_locks(struct storm_thread *t) {
    for (int i = 0; i < 50; i++) {
        pthread_mutex_lock(&t->storm->mutex);
        for (volatile int j = 0; j < 100; j++) {}
        pthread_mutex_unlock(&t->storm->mutex);
    }
}

LOAD load_fork(struct storm_thread *t) {
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    require(child > 0 && waitpid(child, NULL, 0) == child);
    for (volatile int i = 0; i < 20000; i++) {}
    t->rounds += 0;
}

LOAD load_signals(struct storm_thread *t) {
    syscall(SYS_tgkill, getpid(), t->thread.number, SIGUSR1);
    for (volatile int i = 0; i < 3000; i++) {}
}

__attribute__((noinline)) static int doze_below(uint64_t round, int depth) {
    volatile char frame[72] = {0};
    struct timespec time = {0, 50000 + (long)(round % 5) * 40000};
    if (depth > 0)
        return doze_below(round, depth - 1) + frame[depth];
    if (round & 1)
        nanosleep(&time, NULL);
    else
        poll(NULL, 0, 1);
    for (volatile int i = 0; i < 20000; i++) {}
    return frame[0];
}

LOAD load_doze(struct storm_thread *t) {
    require(doze_below(t->rounds, (int)(t->rounds * 7919 % 41)) == 0);
    t->rounds += 0;
}

LOAD load_churn(struct storm_thread *t) {
    for (volatile uint64_t i = t->rounds % 7 * 400000; i > 0; i--) {}
}

/// Like many functions of the runtime's libraries: functions that cannot throw, for which their compiler generated no table.
LOAD load_untabled(struct storm_thread *t) {
#if defined(__x86_64__)
    // push %rbp; mov %rsp, %rbp; pop %rbp; ret
    static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3};
    static _Atomic(void *) functions[2];  // at either edge of a page; never freed, because a walk may still read them
    _Atomic(void *) *function = functions + t->rounds % 2;
    if (!atomic_load(function))
        atomic_store(function, make_code(code, sizeof code, t->rounds % 2).function);
    void (*call)(void) = (void (*)(void))(uintptr_t)atomic_load(function);
    for (int i = 0; i < 5000; i++)
        call();
#endif
    t->rounds += 0;
}

LOAD load_custom(struct storm_thread *t) {
    t->storm->work();
    t->rounds += 0;
}

static void (*const loads[])(struct storm_thread *) = {
    [TRIAL_LOAD_MALLOC] = load_malloc,   [TRIAL_LOAD_RELOAD] = load_reload, [TRIAL_LOAD_ITERATE] = load_iterate,
    [TRIAL_LOAD_THROW] = load_throw,     [TRIAL_LOAD_STDIO] = load_stdio,   [TRIAL_LOAD_LOCKS] = load_locks,
    [TRIAL_LOAD_FORK] = load_fork,       [TRIAL_LOAD_SIGNALS] = load_signals, [TRIAL_LOAD_DOZE] = load_doze,
    [TRIAL_LOAD_CHURN] = load_churn,     [TRIAL_LOAD_UNTABLED] = load_untabled,
    [TRIAL_LOAD_CUSTOM] = load_custom,
};

// The threads. One call site for all loads, so that the frames from here outwards are the same in every capture.

__attribute__((noinline)) static int trial_storm_work(struct storm_thread *t) {
    atomic_store(&t->started, true);
    do {
        loads[t->storm->load](t);
        t->rounds++;
    } while (t->storm->load != TRIAL_LOAD_CHURN && !atomic_load_explicit(&t->storm->released, memory_order_relaxed));
    return 0;
}

__attribute__((noinline)) static int trial_storm_descend(struct storm_thread *t, int depth) {
    volatile char frame[40] = {0};
    int result = depth == 0 ? trial_storm_work(t) : trial_storm_descend(t, depth - 1);
    return result + frame[depth];
}

static void *trial_storm_thread_main(void *context) {
    struct storm_thread *t = context;
    t->thread = trial_own_thread();
    if (t->storm->load == TRIAL_LOAD_CHURN)
        atomic_store(&t->started, true);
    trial_storm_descend(t, TRIAL_STORM_DEPTH);
    atomic_store(&t->ended, true);
    return NULL;
}

static void start_thread(struct storm_thread *t) {
    atomic_store(&t->started, false);
    atomic_store(&t->ended, false);
    require(pthread_create(&t->handle, NULL, trial_storm_thread_main, t) == 0);
    while (!atomic_load(&t->started))
        sched_yield();
}

static void note_signal(int signal) {
    (void)signal;
    atomic_fetch_add(&storm_signals, 1);
    for (volatile int i = 0; i < 200; i++) {}
}

static void set_timer(int which, long microseconds) {
    struct itimerval time = {{0, microseconds}, {0, microseconds}};
    setitimer((__itimer_which_t)which, &time, NULL);
}

/// The first call of fork and similar functions sets up permanent state; handlers, too, are installed once.
static void prepare(trial_load load) {
    if (load != TRIAL_LOAD_SIGNALS)
        return;
    signal(SIGUSR1, note_signal);
    signal(SIGALRM, note_signal);
    set_timer(ITIMER_REAL, 1000);
    set_timer(ITIMER_PROF, 4000);
}

trial_storm *trial_storm_start(trial_load load, const char *folder, trial_work work) {
    trial_storm *storm = calloc(1, sizeof *storm);
    require(storm != NULL);
    storm->load = load;
    storm->work = work;
    snprintf(storm->folder, sizeof storm->folder, "%s", folder);
    pthread_mutex_init(&storm->mutex, NULL);
    prepare(load);
    for (int i = 0; i < TRIAL_STORM_THREADS; i++) {
        storm->threads[i].storm = storm;
        start_thread(&storm->threads[i]);
    }
    return storm;
}

trial_thread trial_storm_thread(trial_storm *storm, int index) {
    struct storm_thread *t = &storm->threads[index];
    if (storm->load == TRIAL_LOAD_CHURN && atomic_load(&t->ended)) {
        pthread_join(t->handle, NULL);
        start_thread(t);
    }
    return t->thread;
}

uint64_t trial_storm_rounds(const trial_storm *storm) {
    uint64_t rounds = 0;
    for (int i = 0; i < TRIAL_STORM_THREADS; i++)
        rounds += storm->threads[i].rounds;
    return rounds;
}

void trial_storm_finish(trial_storm *storm) {
    atomic_store(&storm->released, true);
    for (int i = 0; i < TRIAL_STORM_THREADS; i++)
        pthread_join(storm->threads[i].handle, NULL);
    set_timer(ITIMER_REAL, 0);
    set_timer(ITIMER_PROF, 0);
    free(storm);
}

void trial_handle_prof(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = note_signal;
    action.sa_flags = SA_RESTART;
    sigaction(SIGPROF, &action, NULL);
}

// The watchdog.

static _Atomic uint64_t fed_ns;

static void *watch(void *context) {
    uint64_t patience_ns = (uint64_t)(uintptr_t)context;
    while (trial_now_ns() < atomic_load(&fed_ns) + patience_ns) {
        struct timespec rest = {0, 100000000};
        nanosleep(&rest, NULL);
    }
    static const char word[] = "DEADLOCK: no capture came to its end\n";
    (void)!write(STDOUT_FILENO, word, sizeof word - 1);
    _exit(3);
}

void trial_watchdog_start(uint64_t patience_ns) {
    pthread_t handle;
    trial_watchdog_feed();
    require(pthread_create(&handle, NULL, watch, (void *)(uintptr_t)patience_ns) == 0);
    pthread_detach(handle);
}

void trial_watchdog_feed(void) { atomic_store(&fed_ns, trial_now_ns()); }
