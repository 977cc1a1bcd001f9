/// An application's own use of a signal.
#include "internal.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static _Atomic uint64_t handled;
static atomic_bool had_info;
static _Atomic uint64_t mask_seen;

static void note(void) {
    sigset_t mask;
    uint64_t word;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    memcpy(&word, &mask, sizeof word);
    mask_seen = word;
    handled++;
}

static void handle_plain(int signal) {
    (void)signal;
    note();
}

static void handle_info(int signal, siginfo_t *info, void *context) {
    had_info = info->si_signo == signal && info->si_pid == getpid() && context != NULL;
    note();
}

void coexist_install(int signal, int kind) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    if (kind & COEXIST_INFO)
        action.sa_sigaction = handle_info;
    else
        action.sa_handler = kind & COEXIST_PLAIN ? handle_plain : kind & COEXIST_IGNORE ? SIG_IGN : SIG_DFL;
    action.sa_flags = (kind & COEXIST_INFO ? SA_SIGINFO : 0) | (kind & COEXIST_ONCE ? (int)SA_RESETHAND : 0) |
                      (kind & COEXIST_NO_DEFER ? SA_NODEFER : 0);
    if (kind & COEXIST_DEFAULT)
        action.sa_handler = SIG_DFL;
    if (kind & COEXIST_MASK)
        sigaddset(&action.sa_mask, SIGUSR2);
    require(sigaction(signal, &action, NULL) == 0);
}

uint64_t coexist_handled(void) { return handled; }
bool coexist_handler_blocked(int signal) { return mask_seen >> (signal - 1) & 1; }
bool coexist_handler_had_info(void) { return had_info; }

static struct sigaction covered;
static atomic_bool passes_on;

static void handle_over(int signal, siginfo_t *info, void *context) {
    handled++;
    if (passes_on && (covered.sa_flags & SA_SIGINFO))
        covered.sa_sigaction(signal, info, context);
}

void coexist_cover(int signal, bool does_pass_on) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    passes_on = does_pass_on;
    action.sa_sigaction = handle_over;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    require(sigaction(signal, &action, &covered) == 0);
}

void coexist_uncover(int signal) { require(sigaction(signal, &covered, NULL) == 0); }

static struct sigaction installed(int signal) {
    struct sigaction action;
    sigaction(signal, NULL, &action);
    return action;
}

bool coexist_handler_is_ours(int signal) {
    struct sigaction action = installed(signal);
    return action.sa_sigaction == handle_info || action.sa_handler == handle_plain || action.sa_sigaction == handle_over;
}

bool coexist_handler_is_default(int signal) { return installed(signal).sa_handler == SIG_DFL; }
bool coexist_handler_is_ignore(int signal) { return installed(signal).sa_handler == SIG_IGN; }
bool coexist_handler_restarts(int signal) { return installed(signal).sa_flags & SA_RESTART; }

bool coexist_handler_blocks_all(int signal) {
    struct {
        void (*handler)(int);
        unsigned long flags;
#if defined(__x86_64__)
        void (*restorer)(void);
#endif
        uint64_t mask;
    } action = {.mask = 0};  // as the kernel has it: rt_sigaction(2)
    require(syscall(SYS_rt_sigaction, signal, NULL, &action, sizeof action.mask) == 0);
    uint64_t unblockable = UINT64_C(1) << (SIGKILL - 1) | UINT64_C(1) << (SIGSTOP - 1);
    return (action.mask | unblockable) == UINT64_MAX;
}

void coexist_send(pid_t thread, int signal) { require(syscall(SYS_tgkill, getpid(), thread, signal) == 0); }

static bool is_pending(pid_t thread, int signal) {
    char path[64], line[128];
    unsigned long long pending = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/status", thread);
    FILE *status = fopen(path, "r");
    require(status != NULL);
    while (fgets(line, sizeof line, status) && sscanf(line, "SigPnd: %llx", &pending) != 1) {}
    fclose(status);
    return pending >> (signal - 1) & 1;
}

void coexist_send_and_wait(pid_t thread, int signal) {
    coexist_send(thread, signal);
    while (is_pending(thread, signal))
        sched_yield();
}

void coexist_profile(int interval_us) {
    struct itimerval timer = {{0, interval_us}, {0, interval_us}};
    require(setitimer(ITIMER_PROF, &timer, NULL) == 0);
}

void coexist_profile_thread(pid_t thread, int interval_us) {
    timer_t timer;
    struct sigevent event;
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGPROF;
    event._sigev_un._tid = thread;
    struct itimerspec time = {{0, interval_us * 1000}, {0, interval_us * 1000}};
    require(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &time, NULL) == 0);
}

bool coexist_gperftools(bool start) {
    static char path[64];
    int (*begin)(const char *) = (int (*)(const char *))(uintptr_t)dlsym(RTLD_DEFAULT, "ProfilerStart");
    void (*end)(void) = (void (*)(void))(uintptr_t)dlsym(RTLD_DEFAULT, "ProfilerStop");
    if (!begin || !end)
        return false;
    snprintf(path, sizeof path, "/tmp/coexistence-%d.profile", getpid());
    if (start)
        return begin(path) != 0;
    end();
    struct stat profile;
    bool has_samples = stat(path, &profile) == 0 && profile.st_size > 0;
    unlink(path);
    return has_samples;
}

void coexist_forbid_queueing(void) {
    struct rlimit none = {0, 0};
    require(setrlimit(RLIMIT_SIGPENDING, &none) == 0);
}
