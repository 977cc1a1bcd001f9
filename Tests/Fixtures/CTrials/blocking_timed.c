/// Calls that return after a given time. A signal with a handler would end most of them early, with EINTR: signal(7).
#include "blocking.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <mqueue.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#define CALL __attribute__((noinline)) static int64_t

static int milliseconds(const trial_block *b) { return (int)(b->time_ns / 1000000); }
static struct timeval in_timeval(const trial_block *b) {
    return (struct timeval){(time_t)(b->time_ns / 1000000000), (suseconds_t)(b->time_ns % 1000000000 / 1000)};
}

static int make_pipe(trial_block *b) { return pipe2(b->file, O_CLOEXEC) ? errno : 0; }

CALL call_nanosleep(trial_block *b) {
    struct timespec time = in_timespec(b->time_ns);
    return ended(b, nanosleep(&time, NULL));
}
CALL call_nanosleep_raw(trial_block *b) {
    struct timespec time = in_timespec(b->time_ns);
    return ended(b, syscall(SYS_nanosleep, &time, NULL));
}
CALL call_clock_nanosleep(trial_block *b) {
    struct timespec until = from_now(CLOCK_MONOTONIC, b->time_ns);
    return ended(b, clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL));
}
CALL call_usleep(trial_block *b) { return ended(b, usleep((useconds_t)(b->time_ns / 1000))); }

CALL call_poll(trial_block *b) {
    struct pollfd wanted = {b->file[0], POLLIN, 0};
    return ended(b, poll(&wanted, 1, milliseconds(b)));
}
CALL call_ppoll(trial_block *b) {
    struct pollfd wanted = {b->file[0], POLLIN, 0};
    struct timespec time = in_timespec(b->time_ns);
    sigset_t none;
    sigemptyset(&none);
    return ended(b, ppoll(&wanted, 1, &time, &none));
}
CALL call_select(trial_block *b) {
    struct timeval time = in_timeval(b);
    fd_set files;
    FD_ZERO(&files);
    FD_SET(b->file[0], &files);
    return ended(b, select(b->file[0] + 1, &files, NULL, NULL, &time));
}
CALL call_pselect(trial_block *b) {
    struct timespec time = in_timespec(b->time_ns);
    sigset_t none;
    sigemptyset(&none);
    return ended(b, pselect(0, NULL, NULL, NULL, &time, &none));
}

static int make_epoll(trial_block *b) {
    int error = make_pipe(b);
    if (error)
        return error;
    struct epoll_event event = {.events = EPOLLIN};
    b->file[2] = epoll_create1(EPOLL_CLOEXEC);
    return b->file[2] < 0 || epoll_ctl(b->file[2], EPOLL_CTL_ADD, b->file[0], &event) ? errno : 0;
}
CALL call_epoll_wait(trial_block *b) {
    struct epoll_event event;
    return ended(b, epoll_wait(b->file[2], &event, 1, milliseconds(b)));
}
CALL call_epoll_pwait(trial_block *b) {
    struct epoll_event event;
    sigset_t none;
    sigemptyset(&none);
    return ended(b, epoll_pwait(b->file[2], &event, 1, milliseconds(b), &none));
}
CALL call_epoll_pwait2(trial_block *b) {
    struct epoll_event event;
    struct timespec time = in_timespec(b->time_ns);
    return ended(b, epoll_pwait2(b->file[2], &event, 1, &time, NULL));
}

static int make_semaphore(trial_block *b) { return sem_init(&b->semaphore, 0, 0) ? errno : 0; }
CALL call_sem_timedwait(trial_block *b) {
    struct timespec until = from_now(CLOCK_REALTIME, b->time_ns);
    return ended(b, sem_timedwait(&b->semaphore, &until));
}
CALL call_futex(trial_block *b) {
    struct timespec time = in_timespec(b->time_ns);
    return ended(b, syscall(SYS_futex, &b->word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, &time, NULL, 0));
}
#ifdef SYS_futex_waitv
CALL call_futex_waitv(trial_block *b) {
    struct futex_waitv wait = {.uaddr = (uintptr_t)&b->word, .flags = FUTEX_32 | FUTEX_PRIVATE_FLAG};
    struct timespec until = from_now(CLOCK_MONOTONIC, b->time_ns);
    return ended(b, syscall(SYS_futex_waitv, &wait, 1, 0, &until, CLOCK_MONOTONIC));
}
#endif
static int make_locks(trial_block *b) {
    pthread_mutex_init(&b->mutex, NULL);
    pthread_cond_init(&b->condition, NULL);
    return pthread_mutex_lock(&b->mutex);
}
CALL call_cond_timedwait(trial_block *b) {
    pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    struct timespec until = from_now(CLOCK_REALTIME, b->time_ns);
    pthread_mutex_lock(&own);
    return ended(b, pthread_cond_timedwait(&b->condition, &own, &until));
}
CALL call_mutex_timedlock(trial_block *b) {
    struct timespec until = from_now(CLOCK_REALTIME, b->time_ns);
    return ended(b, pthread_mutex_timedlock(&b->mutex, &until));
}

static int make_pair(trial_block *b) {
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, b->file))
        return errno;
    struct timeval time = in_timeval(b);
    setsockopt(b->file[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    setsockopt(b->file[0], SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
    return 0;
}
CALL call_recv_timeout(trial_block *b) {
    char byte;
    return ended(b, recv(b->file[0], &byte, 1, 0));
}
static int make_full_pair(trial_block *b) {
    int error = make_pair(b);
    if (!error)
        trial_fill(b->file[0]);
    return error;
}
CALL call_send_timeout(trial_block *b) { return ended(b, send(b->file[0], "", 1, MSG_NOSIGNAL)); }
static int make_accept_timeout(trial_block *b) {
    struct timeval time = in_timeval(b);
    b->file[0] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(b->file[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    return listen(b->file[0], 1) ? errno : 0;
}
/// A socket without an address gets one from the kernel if it is bound with only the family: unix(7).
static int make_bound_accept_timeout(trial_block *b) {
    sa_family_t family = AF_UNIX;
    int error = make_accept_timeout(b);
    if (error != EINVAL)
        return error;
    if (bind(b->file[0], (const struct sockaddr *)&family, sizeof family))
        return errno;
    return listen(b->file[0], 1) ? errno : 0;
}
CALL call_accept_timeout(trial_block *b) { return ended(b, accept(b->file[0], NULL, NULL)); }
static int make_connect_timeout(trial_block *b) {
    struct timeval time = in_timeval(b);
    int error = trial_full_listener(b);
    setsockopt(b->file[2], SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
    return error;
}
CALL call_connect_timeout(trial_block *b) {
    char address[110];
    socklen_t length = sizeof address;
    getsockname(b->file[0], (struct sockaddr *)address, &length);
    return ended(b, connect(b->file[2], (const struct sockaddr *)address, length));
}

CALL call_sigtimedwait(trial_block *b) {
    struct timespec time = in_timespec(b->time_ns);
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &wanted, NULL);
    return ended(b, sigtimedwait(&wanted, NULL, &time));
}
static int make_semaphores(trial_block *b) {
    b->queue = semget(IPC_PRIVATE, 1, 0600);
    return b->queue < 0 ? errno : 0;
}
static void remove_semaphores(trial_block *b) { semctl(b->queue, 0, IPC_RMID); }
CALL call_semtimedop(trial_block *b) {
    struct sembuf take = {0, -1, 0};
    struct timespec time = in_timespec(b->time_ns);
    return ended(b, semtimedop(b->queue, &take, 1, &time));
}

static int make_queue(trial_block *b) {
    struct mq_attr attributes = {.mq_maxmsg = 1, .mq_msgsize = 8};
    snprintf(b->path, sizeof b->path, "/trial-%d", getpid());
    b->queue = mq_open(b->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600, &attributes);
    if (b->queue < 0)
        return errno;
    mq_unlink(b->path);
    return 0;
}
static int make_full_queue(trial_block *b) {
    int error = make_queue(b);
    if (!error)
        require(mq_send(b->queue, "", 1, 0) == 0);
    return error;
}
static void close_queue(trial_block *b) { mq_close(b->queue); }
CALL call_mq_timedreceive(trial_block *b) {
    char message[8];
    struct timespec until = from_now(CLOCK_REALTIME, b->time_ns);
    return ended(b, mq_timedreceive(b->queue, message, sizeof message, NULL, &until));
}
CALL call_mq_timedsend(trial_block *b) {
    struct timespec until = from_now(CLOCK_REALTIME, b->time_ns);
    return ended(b, mq_timedsend(b->queue, "", 1, 0, &until));
}

static int make_aio(trial_block *b) {
    aio_context_t context = 0;
    if (syscall(SYS_io_setup, 1, &context))
        return errno;
    b->memory = (void *)(uintptr_t)context;
    return 0;
}
static void destroy_aio(trial_block *b) { syscall(SYS_io_destroy, b->memory); }
CALL call_io_getevents(trial_block *b) {
    struct io_event event;
    struct timespec time = in_timespec(b->time_ns);
    return ended(b, syscall(SYS_io_getevents, b->memory, 1, 1, &event, &time));
}
CALL call_io_uring_timed(trial_block *b) {
    struct timespec time = in_timespec(b->time_ns);
    struct __kernel_timespec kernel_time = {time.tv_sec, time.tv_nsec};
    struct io_uring_getevents_arg argument = {.ts = (uintptr_t)&kernel_time};
    return ended(b, syscall(SYS_io_uring_enter, b->file[0], 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG,
                            &argument, sizeof argument));
}
static int make_timer(trial_block *b) {
    b->file[0] = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    return b->file[0] < 0 ? errno : 0;
}
CALL call_timerfd(trial_block *b) {
    struct itimerspec time = {.it_value = in_timespec(b->time_ns)};
    uint64_t expirations;
    timerfd_settime(b->file[0], 0, &time, NULL);
    return ended(b, read(b->file[0], &expirations, sizeof expirations));
}

const struct blocking_call trial_timed_calls[] = {
    {.name = "nanosleep", .number = SYS_clock_nanosleep, .or_number = SYS_nanosleep, .run = call_nanosleep},
    {.name = "nanosleep, raw", .number = SYS_nanosleep, .run = call_nanosleep_raw},
    {.name = "clock_nanosleep until", .number = SYS_clock_nanosleep, .run = call_clock_nanosleep},
    {.name = "usleep", .number = SYS_clock_nanosleep, .or_number = SYS_nanosleep, .run = call_usleep},
    {.name = "poll", .number = SYS_poll, .prepare = make_pipe, .run = call_poll},
    {.name = "ppoll", .number = SYS_ppoll, .prepare = make_pipe, .run = call_ppoll},
    {.name = "select", .number = SYS_pselect6, .prepare = make_pipe, .run = call_select},
    {.name = "pselect", .number = SYS_pselect6, .run = call_pselect},
    {.name = "epoll_wait", .number = SYS_epoll_wait, .or_number = SYS_epoll_pwait, .prepare = make_epoll, .run = call_epoll_wait},
    {.name = "epoll_pwait", .number = SYS_epoll_pwait, .prepare = make_epoll, .run = call_epoll_pwait},
    {.name = "epoll_pwait2", .number = SYS_epoll_pwait2, .prepare = make_epoll, .run = call_epoll_pwait2},
    {.name = "sem_timedwait", .number = SYS_futex, .prepare = make_semaphore, .run = call_sem_timedwait, .result = -1, .error = ETIMEDOUT},
    {.name = "futex, timed", .number = SYS_futex, .run = call_futex, .result = -1, .error = ETIMEDOUT},
#ifdef SYS_futex_waitv
    {.name = "futex_waitv", .number = SYS_futex_waitv, .run = call_futex_waitv, .result = -1, .error = ETIMEDOUT},
#endif
    {.name = "pthread_cond_timedwait", .number = SYS_futex, .prepare = make_locks, .run = call_cond_timedwait, .result = ETIMEDOUT},
    {.name = "pthread_mutex_timedlock", .number = SYS_futex, .prepare = make_locks, .run = call_mutex_timedlock, .result = ETIMEDOUT},
    {.name = "recv, SO_RCVTIMEO", .number = SYS_recvfrom, .prepare = make_pair, .run = call_recv_timeout, .result = -1, .error = EAGAIN},
    {.name = "send, SO_SNDTIMEO", .number = SYS_sendto, .prepare = make_full_pair, .run = call_send_timeout, .result = -1, .error = EAGAIN},
    {.name = "accept, SO_RCVTIMEO", .number = SYS_accept, .prepare = make_bound_accept_timeout, .run = call_accept_timeout, .result = -1, .error = EAGAIN},
    {.name = "connect, SO_SNDTIMEO", .number = SYS_connect, .prepare = make_connect_timeout, .run = call_connect_timeout, .result = -1, .error = EAGAIN},
    {.name = "sigtimedwait", .number = SYS_rt_sigtimedwait, .run = call_sigtimedwait, .result = -1, .error = EAGAIN},
    {.name = "semtimedop", .number = SYS_semtimedop, .prepare = make_semaphores, .run = call_semtimedop, .clean = remove_semaphores, .result = -1, .error = EAGAIN},
    {.name = "mq_timedreceive", .number = SYS_mq_timedreceive, .prepare = make_queue, .run = call_mq_timedreceive, .clean = close_queue, .result = -1, .error = ETIMEDOUT},
    {.name = "mq_timedsend", .number = SYS_mq_timedsend, .prepare = make_full_queue, .run = call_mq_timedsend, .clean = close_queue, .result = -1, .error = ETIMEDOUT},
    {.name = "io_getevents", .number = SYS_io_getevents, .prepare = make_aio, .run = call_io_getevents, .clean = destroy_aio},
    {.name = "io_uring_enter, timed", .number = SYS_io_uring_enter, .prepare = trial_ring_open, .run = call_io_uring_timed, .clean = trial_ring_close, .result = -1, .error = ETIME},
    {.name = "read of a timerfd", .number = SYS_read, .prepare = make_timer, .run = call_timerfd, .result = 8},
};
const size_t trial_timed_call_count = sizeof trial_timed_calls / sizeof *trial_timed_calls;
