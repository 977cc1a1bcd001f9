/// Calls that block: each for `seconds`, or until another event that
/// happens then. The result shows whether the call was cut short.
#include "target.h"

#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds;

static struct timespec length(void) {
    return (struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
}

static struct timespec moment(clockid_t clock) {
    struct timespec now, by = length();
    clock_gettime(clock, &now);
    now.tv_sec += by.tv_sec + (now.tv_nsec + by.tv_nsec) / 1000000000;
    now.tv_nsec = (now.tv_nsec + by.tv_nsec) % 1000000000;
    return now;
}

static struct timeval interval(void) {
    struct timespec time = length();
    return (struct timeval){time.tv_sec, time.tv_nsec / 1000};
}

static int milliseconds(void) {
    return (int)(seconds * 1000);
}

/// For functions that return an error number: sets errno.
static int as_errno(int error) {
    errno = error;
    return error ? -1 : 0;
}

static int quiet_pipe(void) {
    static int ends[2];
    if (pipe(ends) != 0)
        abort();
    return ends[0];
}

/// A descriptor that becomes readable after the time: for calls without a timeout.
static int timer(void) {
    int file = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec time = {.it_value = length()};
    timerfd_settime(file, 0, &time, NULL);
    return file;
}

/// Executes an action on another thread after the time.
static void *late(void *action) {
    struct timespec rest = length();
    nanosleep(&rest, NULL);
    ((void (*)(void))action)();
    return NULL;
}

static void later(void (*action)(void)) {
    pthread_t thread;
    pthread_create(&thread, NULL, late, (void *)action);
    pthread_detach(thread);
}

static int call_nanosleep(void) {
    struct timespec time = length();
    return nanosleep(&time, NULL);
}

static int call_clock_nanosleep(void) {
    struct timespec time = moment(CLOCK_MONOTONIC);
    return as_errno(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL));
}

static int call_poll(void) {
    struct pollfd wanted = {quiet_pipe(), POLLIN, 0};
    return poll(&wanted, 1, milliseconds());
}

static int call_ppoll(void) {
    struct pollfd wanted = {quiet_pipe(), POLLIN, 0};
    struct timespec time = length();
    return ppoll(&wanted, 1, &time, NULL);
}

static int call_select(void) {
    struct timeval time = interval();
    fd_set set;
    int file = quiet_pipe();
    FD_ZERO(&set);
    FD_SET(file, &set);
    return select(file + 1, &set, NULL, NULL, &time);
}

static int call_pselect(void) {
    struct timespec time = length();
    fd_set set;
    int file = quiet_pipe();
    FD_ZERO(&set);
    FD_SET(file, &set);
    return pselect(file + 1, &set, NULL, NULL, &time, NULL);
}

static int call_epoll_wait(void) {
    struct epoll_event event;
    return epoll_wait(epoll_create1(0), &event, 1, milliseconds());
}

static int call_epoll_pwait(void) {
    struct epoll_event event;
    return epoll_pwait(epoll_create1(0), &event, 1, milliseconds(), NULL);
}

static int call_epoll_pwait2(void) {
    struct epoll_event event;
    struct timespec time = length();
    return epoll_pwait2(epoll_create1(0), &event, 1, &time, NULL);
}

static int call_sem_timedwait(void) {
    static sem_t semaphore;
    struct timespec time = moment(CLOCK_REALTIME);
    sem_init(&semaphore, 0, 0);
    return sem_timedwait(&semaphore, &time);
}

static sem_t given;
static void give(void) { sem_post(&given); }

static int call_sem_wait(void) {
    sem_init(&given, 0, 0);
    later(give);
    return sem_wait(&given);
}

static int call_futex(void) {
    static int word;
    struct timespec time = length();
    return (int)syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &time, NULL, 0);
}

static int call_futex_bitset(void) {
    static int word;
    struct timespec time = moment(CLOCK_MONOTONIC);
    return (int)syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 0, &time, NULL, FUTEX_BITSET_MATCH_ANY);
}

static int call_cond_timedwait(void) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    struct timespec time = moment(CLOCK_REALTIME);
    pthread_mutex_lock(&lock);
    return as_errno(pthread_cond_timedwait(&condition, &lock, &time));
}

static int call_mutex_timedlock(void) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct timespec time = moment(CLOCK_REALTIME);
    pthread_mutex_lock(&lock);
    return as_errno(pthread_mutex_timedlock(&lock, &time));
}

static void nothing(void) {}

static int call_join(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, late, (void *)nothing);
    return as_errno(pthread_join(thread, NULL));
}

static int call_read_timerfd(void) {
    uint64_t count;
    return (int)read(timer(), &count, sizeof count);
}

static int pipe_ends[2];
static void write_pipe(void) { (void)!write(pipe_ends[1], "x", 1); }

static int call_read_pipe(void) {
    char byte;
    if (pipe(pipe_ends) != 0)
        abort();
    later(write_pipe);
    return (int)read(pipe_ends[0], &byte, 1);
}

static void drain_pipe(void) {
    static char bytes[1 << 16];
    for (int i = 0; i < 4; i++)
        (void)!read(pipe_ends[0], bytes, sizeof bytes);
}

static int call_write_pipe(void) {
    static char bytes[1 << 17];
    if (pipe(pipe_ends) != 0)
        abort();
    later(drain_pipe);
    return (int)write(pipe_ends[1], bytes, sizeof bytes);
}

/// An end of a pair whose reads have a timeout.
static int silent_end(void) {
    int ends[2];
    struct timeval time = interval();
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        abort();
    setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    return ends[0];
}

static int call_recv(void) {
    char byte;
    return (int)recv(silent_end(), &byte, 1, 0);
}

static int call_recvmsg(void) {
    int ends[2];
    struct timeval time = interval();
    char byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) != 0)
        abort();
    setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    return (int)recvmsg(ends[0], &message, 0);
}

static int call_read_socket(void) {
    char byte;
    return (int)read(silent_end(), &byte, 1);
}

static int call_readv(void) {
    char byte;
    struct iovec part = {&byte, 1};
    return (int)readv(silent_end(), &part, 1);
}

static int call_recvmmsg(void) {
    char byte;
    struct iovec part = {&byte, 1};
    struct mmsghdr message = {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};
    return recvmmsg(silent_end(), &message, 1, 0, NULL);
}

static int call_accept(void) {
    int file = socket(AF_INET, SOCK_STREAM, 0);
    struct timeval time = interval();
    setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    listen(file, 1);
    return accept(file, NULL, NULL);
}

static int call_sigtimedwait(void) {
    sigset_t set;
    struct timespec time = length();
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return sigtimedwait(&set, NULL, &time);
}

static int call_semtimedop(void) {
    int set = semget(IPC_PRIVATE, 1, 0600);
    struct sembuf take = {0, -1, 0};
    struct timespec time = length();
    int result = semtimedop(set, &take, 1, &time), error = errno;
    semctl(set, 0, IPC_RMID);
    errno = error;
    return result;
}

static int queue;
static void remove_queue(void) { msgctl(queue, IPC_RMID, NULL); }

static int call_msgrcv(void) {
    struct { long type; char bytes[8]; } message;
    queue = msgget(IPC_PRIVATE, 0600);
    later(remove_queue);
    return (int)msgrcv(queue, &message, sizeof message.bytes, 0, 0);
}

static int call_mq_timedreceive(void) {
    struct mq_attr attributes = {.mq_maxmsg = 1, .mq_msgsize = 8};
    char name[32], bytes[8];
    snprintf(name, sizeof name, "/target-%d", getpid());
    mqd_t messages = mq_open(name, O_RDONLY | O_CREAT, 0600, &attributes);
    mq_unlink(name);
    struct timespec time = moment(CLOCK_REALTIME);
    return (int)mq_timedreceive(messages, bytes, sizeof bytes, NULL, &time);
}

static int call_io_getevents(void) {
    aio_context_t context = 0;
    struct io_event event;
    struct timespec time = length();
    if (syscall(SYS_io_setup, 1, &context) != 0)
        return -1;
    return (int)syscall(SYS_io_getevents, context, 1L, 1L, &event, &time);
}

static int call_io_uring(void) {
    struct io_uring_params parameters;
    memset(&parameters, 0, sizeof parameters);
    int ring = (int)syscall(SYS_io_uring_setup, 2, &parameters);
    struct __kernel_timespec time = {.tv_sec = (long long)seconds, .tv_nsec = length().tv_nsec};
    struct io_uring_getevents_arg argument = {.ts = (uint64_t)(uintptr_t)&time};
    if (ring < 0)
        return -1;
    return (int)syscall(SYS_io_uring_enter, ring, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &argument, sizeof argument);
}

static int watch;
static char watched[] = "/tmp/sample-target-XXXXXX";
static void touch_watched(void) { close(open(watched, O_WRONLY | O_TRUNC)), unlink(watched); }

static int call_inotify(void) {
    char bytes[4096];
    // It is also called repeatedly in the same process.
    strcpy(watched, "/tmp/sample-target-XXXXXX");
    close(mkstemp(watched));
    watch = inotify_init1(0);
    inotify_add_watch(watch, watched, IN_CLOSE_WRITE);
    later(touch_watched);
    return read(watch, bytes, sizeof bytes) > 0 ? 1 : -1;
}

static void signal_self(void) { kill(getpid(), SIGUSR2); }

static int call_signalfd(void) {
    struct signalfd_siginfo info;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    later(signal_self);
    return read(signalfd(-1, &set, 0), &info, sizeof info) > 0 ? 1 : -1;
}

static int call_waitpid(void) {
    pid_t child = fork();
    if (child == 0) {
        struct timespec rest = length();
        nanosleep(&rest, NULL);
        _exit(0);
    }
    return waitpid(child, NULL, 0) == child ? 1 : -1;
}

static int call_vfork(void) {
    pid_t child = vfork();
    if (child == 0) {
        struct timespec rest = length();
        nanosleep(&rest, NULL);
        _exit(0);
    }
    return child > 0 ? 1 : -1;
}

static int call_flock(void) {
    char path[] = "/tmp/sample-target-XXXXXX", byte;
    int file = mkstemp(path), second = open(path, O_RDWR), seen[2];
    unlink(path);
    if (pipe(seen) != 0)
        abort();
    pid_t child = fork();
    if (child == 0) {
        close(second);
        close(seen[1]);
        flock(file, LOCK_EX);
        // The time begins when the parent knows of the lock, and closes the pipe: it might find it free again, and look for it forever.
        (void)!read(seen[0], &byte, 1);
        struct timespec rest = length();
        nanosleep(&rest, NULL);
        _exit(0);
    }
    close(file);
    // Until the child has the lock, however late it runs. Without a call that waits: only the last one is tested.
    while (flock(second, LOCK_EX | LOCK_NB) == 0) {
        flock(second, LOCK_UN);
        sched_yield();
    }
    close(seen[0]), close(seen[1]);
    return flock(second, LOCK_EX);
}

static int call_fcntl_lock(void) {
    char path[] = "/tmp/sample-target-XXXXXX", byte;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET}, found;
    int file = mkstemp(path), seen[2];
    unlink(path);
    if (pipe(seen) != 0)
        abort();
    if (fork() == 0) {
        close(seen[1]);
        fcntl(file, F_SETLK, &lock);
        // As above.
        (void)!read(seen[0], &byte, 1);
        struct timespec rest = length();
        nanosleep(&rest, NULL);
        _exit(0);
    }
    // As above.
    do {
        sched_yield();
        found = lock;
        fcntl(file, F_GETLK, &found);
    } while (found.l_type == F_UNLCK);
    close(seen[0]), close(seen[1]);
    return fcntl(file, F_SETLKW, &lock);
}

static const struct { const char *name; int (*call)(void); int result, error; } calls[] = {
    {"nanosleep", call_nanosleep, 0, 0},
    {"clock_nanosleep", call_clock_nanosleep, 0, 0},
    {"poll", call_poll, 0, 0},
    {"ppoll", call_ppoll, 0, 0},
    {"select", call_select, 0, 0},
    {"pselect", call_pselect, 0, 0},
    {"epoll_wait", call_epoll_wait, 0, 0},
    {"epoll_pwait", call_epoll_pwait, 0, 0},
    {"epoll_pwait2", call_epoll_pwait2, 0, 0},
    {"sem_timedwait", call_sem_timedwait, -1, ETIMEDOUT},
    {"sem_wait", call_sem_wait, 0, 0},
    {"futex", call_futex, -1, ETIMEDOUT},
    {"futex_bitset", call_futex_bitset, -1, ETIMEDOUT},
    {"cond_timedwait", call_cond_timedwait, -1, ETIMEDOUT},
    {"mutex_timedlock", call_mutex_timedlock, -1, ETIMEDOUT},
    {"join", call_join, 0, 0},
    {"read_timerfd", call_read_timerfd, 8, 0},
    {"read_pipe", call_read_pipe, 1, 0},
    {"write_pipe", call_write_pipe, 1 << 17, 0},
    {"recv", call_recv, -1, EAGAIN},
    {"recvmsg", call_recvmsg, -1, EAGAIN},
    {"recvmmsg", call_recvmmsg, -1, EAGAIN},
    {"read_socket", call_read_socket, -1, EAGAIN},
    {"readv", call_readv, -1, EAGAIN},
    {"accept", call_accept, -1, EAGAIN},
    {"sigtimedwait", call_sigtimedwait, -1, EAGAIN},
    {"semtimedop", call_semtimedop, -1, EAGAIN},
    {"msgrcv", call_msgrcv, -1, EIDRM},
    {"mq_timedreceive", call_mq_timedreceive, -1, ETIMEDOUT},
    {"io_getevents", call_io_getevents, 0, 0},
    {"io_uring", call_io_uring, -1, ETIME},
    {"inotify", call_inotify, 1, 0},
    {"signalfd", call_signalfd, 1, 0},
    {"waitpid", call_waitpid, 1, 0},
    {"vfork", call_vfork, 1, 0},
    {"flock", call_flock, 0, 0},
    {"fcntl_lock", call_fcntl_lock, 0, 0},
};

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int block_in(const char *name, double time) {
    seconds = time;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (strcmp(calls[i].name, name) != 0)
            continue;
        puts("READY");
        fflush(stdout);
        double began = now();
        errno = 0;
        int result = calls[i].call(), error = errno;
        bool as_usual = result == calls[i].result && (result >= 0 || error == calls[i].error);
        printf("%s %d %d %.3f\n", as_usual ? "WHOLE" : "CUT", result, error, now() - began);
        return 0;
    }
    return 64;
}

bool make_one_call(const char *name, double time) {
    seconds = time;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (strcmp(calls[i].name, name) != 0)
            continue;
        errno = 0;
        int result = calls[i].call(), error = errno;
        return result == calls[i].result && (result >= 0 || error == calls[i].error);
    }
    return false;
}

void list_calls(void) {
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        puts(calls[i].name);
}
