/// The command that is watched, and signals: started with the signal mask that this program got, its end and its status; signals that arrive
/// here are written to a pipe; the wait for all of this.
#include "CProcessWatch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/// The signal mask with which the program was started.
static sigset_t signals_before;
/// The handler, which may run on any thread, writes to it. The watcher reads from it.
static int signal_pipe[2] = {-1, -1};

__attribute__((constructor)) static void remember_signals(void) { pthread_sigmask(SIG_BLOCK, NULL, &signals_before); }

int process_watch_open_process(pid_t process) {
    int descriptor = (int)syscall(SYS_pidfd_open, process, 0);
    return descriptor >= 0 ? descriptor : -errno;
}

/// SIGQUIT, because it makes some commands, such as a JVM, print their stacks and go on: then they still have to be watched.
static const int ours[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD};

/// If the pipe is full, the signal is lost: there are more than enough unread ones.
static void note(int number, siginfo_t *info, void *context) {
    (void)context;
    int saved = errno;
    process_watch_signal signal = {number, info->si_code == SI_KERNEL};
    if (write(signal_pipe[1], &signal, sizeof signal) < 0) {}
    errno = saved;
}

int process_watch_open_signals(void) {
    if (pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK) != 0)
        return -errno;
    // Only the end of a child matters, not that it is stopped or continued.
    struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO | SA_RESTART | SA_NOCLDSTOP};
    sigset_t set;
    sigemptyset(&action.sa_mask);
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        struct sigaction before;
        // A signal that was ignored when this program was started, for example by nohup, stays ignored.
        bool is_ignored = sigaction(ours[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN && ours[i] != SIGCHLD;
        if (is_ignored)
            continue;
        if (sigaction(ours[i], &action, NULL) != 0)
            return -errno;
        sigaddset(&set, ours[i]);
    }
    // At least one thread has to receive the signals.
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    return signal_pipe[0];
}

static void set_stop(int how) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTSTP);
    pthread_sigmask(how, &set, NULL);
}

void process_watch_hold_stop(void) {
    set_stop(SIG_BLOCK);
}

void process_watch_release_stop(void) {
    if (!sigismember(&signals_before, SIGTSTP))
        set_stop(SIG_UNBLOCK);
}

bool process_watch_take_signal(int descriptor, process_watch_signal *signal) {
    return read(descriptor, signal, sizeof *signal) == sizeof *signal;
}

int process_watch_adopt_orphans(void) {
    return prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 ? 0 : errno;
}

int process_watch_start(char *const *arguments, pid_t *process) {
    posix_spawnattr_t attributes;
    int error = posix_spawnattr_init(&attributes);
    if (error)
        return error;
    // Signals that this program handles have their default action in the new one. The calling thread may block signals that the
    // new program must not block.
    posix_spawnattr_setsigmask(&attributes, &signals_before);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    error = posix_spawnp(process, arguments[0], NULL, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    return error;
}

/// Looks before it takes: while another thread of ours holds the child's first thread to copy its stack, waitpid(2) reports that stop
/// like an end, and takes the signal that the child was about to get.
int process_watch_take_status(pid_t process, int *status) {
    siginfo_t info = {.si_pid = 0};
    if (waitid(P_PID, (id_t)process, &info, WEXITED | WNOHANG | WNOWAIT) != 0)
        return errno == EINTR ? 0 : -1;
    bool has_exited = info.si_code == CLD_EXITED, was_killed = info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED;
    if (info.si_pid != process || (!has_exited && !was_killed))
        return 0;
    *status = has_exited ? info.si_status : 128 + info.si_status;
    waitpid(process, NULL, WNOHANG);
    return 1;
}

int process_watch_wait(const int *descriptors, int count, uint64_t deadline_ns, bool may_stop) {
    enum { MOST = 1024 };
    struct pollfd wanted[MOST];
    if (count > MOST)
        count = MOST;
    for (int i = 0; i < count; i++)
        wanted[i] = (struct pollfd){descriptors[i], POLLIN, 0};
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    if (may_stop && !sigismember(&signals_before, SIGTSTP))
        sigdelset(&mask, SIGTSTP);
    for (;;) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        uint64_t at = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
        uint64_t left = deadline_ns > at ? deadline_ns - at : 0;
        struct timespec rest = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
        int ready = ppoll(wanted, (nfds_t)count, &rest, &mask);
        if (ready >= 0 || errno != EINTR)
            return ready > 0 ? ready : 0;
    }
}
