/// A process to be sampled: it blocks in a call, computes, or does something that makes sampling difficult.
#include "target.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static atomic_bool is_ended;
static _Atomic uint64_t signals;

static void end(int signal) {
    (void)signal;
    is_ended = true;
}

static void count(int signal) {
    (void)signal;
    signals++;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void ready(void) {
    puts("READY");
    fflush(stdout);
}

// Computing at a known depth; measures the pauses by its own clock.

enum { MAX_GAPS = 1 << 20 };
static uint32_t gaps[MAX_GAPS];
static size_t gap_count;

/// A time above the maximum of an iteration is a gap.
__attribute__((noinline)) static uint64_t spin(void) {
    uint64_t before = now_ns(), rounds = 0;
    ready();
    while (!is_ended) {
        uint64_t now = now_ns();
        if (now - before > 5000 && gap_count < MAX_GAPS)
            gaps[gap_count++] = (uint32_t)(now - before);
        before = now;
        rounds++;
    }
    return rounds;
}

__attribute__((noinline)) static uint64_t descend(int depth) {
    uint64_t rounds = depth > 0 ? descend(depth - 1) : spin();
    __asm__ volatile("" ::: "memory");  // no tail call
    return rounds + 1;
}

static int compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static int compute(int depth) {
    uint64_t rounds = descend(depth);
    qsort(gaps, gap_count, sizeof *gaps, compare);
    printf("ROUNDS %llu SIGNALS %llu GAPS %zu", (unsigned long long)rounds, (unsigned long long)signals, gap_count);
    for (size_t i = 0; i < gap_count; i++)
        printf(" %u", gaps[i]);
    puts("");
    return 0;
}

// Threads.

/// Whether a thread or a process waits in a system call: the file begins with the call's number then (proc(5)).
static bool is_in_call(pid_t thread) {
    char path[64], first = 0;
    snprintf(path, sizeof path, "/proc/%d/syscall", thread);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t count = read(file, &first, 1);
    close(file);
    return count == 1 && first >= '0' && first <= '9';
}

/// Returns when a thread or a process waits in a call, at the latest after ten seconds. The machine may be busy.
static void await_call(_Atomic pid_t *thread) {
    uint64_t until = now_ns() + 10000000000;
    while ((*thread == 0 || !is_in_call(*thread)) && now_ns() < until)
        usleep(1000);
}

enum { MAX_WAITERS = 64 };
static _Atomic pid_t waiters[MAX_WAITERS];
static atomic_int waiter_count;

static void *wait_forever(void *argument) {
    (void)argument;
    prctl(PR_SET_NAME, "waiter");
    int number = waiter_count++;
    if (number < MAX_WAITERS)
        waiters[number] = gettid();
    for (;;)
        pause();
}

static void *live_briefly(void *argument) {
    volatile int sum = 0;
    for (int i = 0; i < 20000; i++)
        sum += i;
    return argument;
}

static int keep_threads(int number) {
    pthread_t thread;
    for (int i = 0; i < number; i++)
        pthread_create(&thread, NULL, wait_forever, NULL);
    for (int i = 0; i < number && i < MAX_WAITERS; i++)
        await_call(&waiters[i]);
    ready();
    while (!is_ended)
        pause();
    return 0;
}

static void *compute_on(void *argument) {
    (void)argument;
    prctl(PR_SET_NAME, "computer");
    exit(compute(3));
}

/// Ends the first thread when there is input; the others continue.
static int end_first_thread(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, wait_forever, NULL);
    await_call(&waiters[0]);
    pthread_create(&thread, NULL, compute_on, NULL);
    getchar();
    pthread_exit(NULL);
}

static int churn_threads(void) {
    ready();
    while (!is_ended) {
        pthread_t thread[4];
        for (int i = 0; i < 4; i++)
            pthread_create(&thread[i], NULL, live_briefly, NULL);
        for (int i = 0; i < 4; i++)
            pthread_join(thread[i], NULL);
    }
    return 0;
}

// Other programs.

/// Executes itself repeatedly, and computes in between. The argument is the number of remaining times.
static int replace(char **arguments) {
    int left = atoi(arguments[2]);
    if (!arguments[3])
        ready();
    uint64_t until = now_ns() + 3000000;
    while (now_ns() < until)
        continue;
    if (left == 0)
        return compute(5);
    char text[16];
    snprintf(text, sizeof text, "%d", left - 1);
    execl("/proc/self/exe", arguments[0], "exec", text, "again", (char *)NULL);
    return 1;
}

static int fork_over_and_over(void) {
    ready();
    while (!is_ended) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        waitpid(child, NULL, 0);
    }
    return 0;
}

/// Counts received signals. Real-time signals are queued, so none may be lost.
static int count_signals(void) {
    struct sigaction action = {.sa_handler = count};
    sigaction(SIGRTMIN, &action, NULL);
    return compute(5);
}

/// Loads a library late: its code is in no module that was loaded at the start.
static int load_late(const char *path) {
    ready();
    getchar();
    void *library = dlopen(path, RTLD_NOW);
    uint64_t (*run)(uint64_t (*)(void)) = library ? (uint64_t (*)(uint64_t (*)(void)))dlsym(library, "plugin_spin") : NULL;
    return run && run(spin) ? 0 : 1;
}

/// Alternately computes for a short time and waits for a shorter one, in epoll_wait(2) and in a read(2) that has a timeout: a stop
/// can hit it at the wrong moment.
static int wait_often(void) {
    unsigned long waits = 0, cut = 0;
    int queue = epoll_create1(0), ends[2];
    struct epoll_event event;
    struct timeval timeout = {.tv_usec = 1000};
    char byte;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return 1;
    setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    ready();
    while (!is_ended) {
        uint64_t until = now_ns() + 200000;
        while (now_ns() < until)
            continue;
        if (waits % 2 == 0)
            cut += epoll_wait(queue, &event, 1, 1) < 0 && !is_ended;
        else
            cut += read(ends[0], &byte, 1) < 0 && errno != EAGAIN && !is_ended;
        waits++;
    }
    printf("WAITS %lu CUT %lu\n", waits, cut);
    return 0;
}

/// Traces a child that computes or sleeps.
static int trace_child(bool computes) {
    _Atomic pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (computes)
            continue;
        for (;;)
            pause();
    }
    if (!computes)
        await_call(&child);
    if (ptrace(PTRACE_SEIZE, child, 0, PTRACE_O_EXITKILL) != 0)
        return 1;
    printf("READY %d\n", child);
    fflush(stdout);
    while (!is_ended)
        pause();
    kill(child, SIGKILL);
    return 0;
}

/// Traces a thread of its parent and does not collect its end, which an execve(2) of the parent waits for. Ends after some time in any case.
static void hold_by_trace(pid_t thread) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGTERM, SIG_DFL);
    if (ptrace(PTRACE_SEIZE, thread, 0, 0) != 0)
        _exit(1);
    printf("READY %d\n", getpid());
    fflush(stdout);
    alarm(180);
    for (;;)
        pause();
}

static _Atomic pid_t held;

static void *be_held(void *argument) {
    held = gettid();
    return wait_forever(argument);
}

/// Calls execve(2) when there is input, and is held in it until the announced process ends.
static int be_held_in_exec(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, be_held, NULL);
    while (held == 0)
        usleep(1000);
    if (fork() == 0)
        hold_by_trace(held);
    getchar();
    execl("/bin/true", "true", (char *)NULL);
    return 1;
}

static int leave_zombie(void) {
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    // Until it has ended, without letting it go.
    siginfo_t ended;
    while (waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT) != 0 && errno == EINTR)
        continue;
    printf("READY %d\n", child);
    fflush(stdout);
    while (!is_ended)
        pause();
    return 0;
}

int main(int count_of_arguments, char **arguments) {
    const char *what = count_of_arguments > 1 ? arguments[1] : "";
    const char *more = count_of_arguments > 2 ? arguments[2] : "0";
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGTERM, end);
    if (strcmp(what, "list") == 0)
        return list_calls(), 0;
    if (strcmp(what, "call") == 0 && count_of_arguments > 3)
        return block_in(more, atof(arguments[3]));
    if (strcmp(what, "compute") == 0)
        return compute(atoi(more));
    if (strcmp(what, "first") == 0 || strcmp(what, "made") == 0)
        return stand_first(strcmp(what, "made") == 0);
    if (strcmp(what, "sealed") == 0)
        return wait_in_sealed_code();
    if (strcmp(what, "held") == 0)
        return be_held_in_exec();
    if (strcmp(what, "threads") == 0)
        return keep_threads(atoi(more));
    if (strcmp(what, "headless") == 0)
        return end_first_thread();
    if (strcmp(what, "churn") == 0)
        return churn_threads();
    if (strcmp(what, "exec") == 0)
        return replace(arguments);
    if (strcmp(what, "fork") == 0)
        return fork_over_and_over();
    if (strcmp(what, "signals") == 0)
        return count_signals();
    if (strcmp(what, "load") == 0)
        return load_late(more);
    if (strcmp(what, "waits") == 0)
        return wait_often();
    if (strcmp(what, "traced") == 0)
        return trace_child(strcmp(more, "computing") == 0);
    if (strcmp(what, "loop") == 0)
        return turn_loop_after(strtoul(more, NULL, 10));
    if (strcmp(what, "polling") == 0)
        return turn_loop_that_polls();
    if (strcmp(what, "timed") == 0)
        return turn_loop_with_timer();
    if (strcmp(what, "beside") == 0)
        return turn_loop_beside();
    if (strcmp(what, "zombie") == 0)
        return leave_zombie();
    if (strcmp(what, "protected") == 0)
        return prctl(PR_SET_DUMPABLE, 0), keep_threads(0);
    return 64;
}
