/// The cost of a signal handler for the interrupted thread, for comparison.
#include "blocking.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <libunwind.h>

static _Atomic(trial_handler) wanted;
static _Atomic uint64_t handled;

void trial_handler_nothing(void *context) { (void)context; }

// libunwind for the process itself, through its exported names: if it were linked, it would replace the C++ exception support.
static int (*init_local)(unw_cursor_t *, void *, int);
static int (*step)(unw_cursor_t *);
static volatile int stepped;

bool trial_handler_step_prepare(void) {
    void *library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return false;
    *(void **)&init_local = dlsym(library, "_ULx86_64_init_local2");
    *(void **)&step = dlsym(library, "_ULx86_64_step");
    return init_local && step;
}

void trial_handler_step(void *context) {
    unw_cursor_t cursor;
    int frames = 1;
    if (init_local(&cursor, context, UNW_INIT_SIGNAL_FRAME) != 0)
        return;
    while (step(&cursor) > 0)
        frames++;
    stepped = frames;
}

int trial_handler_step_frames(void) { return stepped; }

static void on_signal(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    int error = errno;
    trial_handler handler = atomic_load(&wanted);
    handler(context);
    atomic_fetch_add(&handled, 1);
    errno = error;
}

void trial_interrupt(pid_t thread, trial_handler handler) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(SIGUSR2, &action, NULL);
    atomic_store(&wanted, handler);
    uint64_t before = atomic_load(&handled);
    require(syscall(SYS_tgkill, getpid(), thread, SIGUSR2) == 0);
    while (atomic_load(&handled) == before) {}
}

static uint64_t in_ns(struct timeval time) { return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_usec * 1000; }

int trial_run_program(const char *const *arguments, uint64_t *wall_ns, uint64_t *cpu_ns) {
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status;
    struct rusage usage;
    posix_spawn_file_actions_init(&actions);
    for (int file = 0; file < 3; file++)
        posix_spawn_file_actions_addopen(&actions, file, "/dev/null", O_RDWR, 0);
    char *environment[] = {"PATH=/usr/bin:/bin", "HOME=/root", "DEBUGINFOD_URLS=", NULL};
    uint64_t began = trial_now_ns();
    int error = posix_spawnp(&child, arguments[0], &actions, NULL, (char *const *)arguments, environment);
    posix_spawn_file_actions_destroy(&actions);
    if (error || wait4(child, &status, 0, &usage) != child)
        return -1;
    *wall_ns = trial_now_ns() - began;
    *cpu_ns = in_ns(usage.ru_utime) + in_ns(usage.ru_stime);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
