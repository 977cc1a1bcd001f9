#include "waits.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/// Keeps the call before it from becoming a jump.
#define KEEP __asm__ volatile("nop" ::: "memory")
#define NOINLINE __attribute__((noinline))

#define WAIT(name, ...)                                                                                                    \
    NOINLINE void wait_##name(void) {                                                                                      \
        __VA_ARGS__;                                                                                                       \
        KEEP;                                                                                                              \
    }                                                                                                                      \
    NOINLINE void call_##name(void) {                                                                                      \
        wait_##name();                                                                                                     \
        KEEP;                                                                                                              \
    }

enum { SECONDS = 20 };
static const struct timespec timeout = {SECONDS, 0};
static int pipe_ends[2], sockets[2], listener, queue, locked_file, file, semaphores;
static char name[] = "/tmp/waits-XXXXXX";
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, own_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static uint32_t word;
volatile int waits_over;
volatile uint64_t waits_spins;

static struct timespec later(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_sec += SECONDS;
    return time;
}

/// Jumps to the wrapper at its end, so that the wrapper returns to its caller.
NOINLINE long jump_to_futex(uint32_t *on) {
    return syscall(SYS_futex, on, FUTEX_WAIT_PRIVATE, 0, &timeout, 0, 0);
}

WAIT(nanosleep, nanosleep(&timeout, NULL))
WAIT(usleep, usleep(SECONDS * 1000000))
WAIT(sleep, sleep(SECONDS))
WAIT(poll, struct pollfd one = {pipe_ends[0], POLLIN, 0}; poll(&one, 1, SECONDS * 1000))
WAIT(select, struct timeval time = {SECONDS, 0}; select(0, NULL, NULL, NULL, &time))
WAIT(read, char byte; if (read(pipe_ends[0], &byte, 1) < 0) KEEP)
WAIT(epoll, struct epoll_event event; epoll_wait(queue, &event, 1, SECONDS * 1000))
WAIT(accept, accept(listener, NULL, NULL))
WAIT(receive, char byte; recv(sockets[0], &byte, 1, 0))
WAIT(futex, syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &timeout, 0, 0))
WAIT(jumped_futex, jump_to_futex(&word))
WAIT(semop, struct sembuf down = {0, -1, 0}; semop(semaphores, &down, 1))
WAIT(mutex, pthread_mutex_lock(&mutex))
WAIT(condition, struct timespec end = later(); pthread_mutex_lock(&own_mutex); pthread_cond_timedwait(&condition, &own_mutex, &end);
     pthread_mutex_unlock(&own_mutex))
WAIT(semaphore, struct timespec end = later(); sem_timedwait(&semaphore, &end))
WAIT(flock, flock(file, LOCK_EX))
WAIT(sigwait, sigset_t set; sigemptyset(&set); sigaddset(&set, SIGUSR2); sigtimedwait(&set, NULL, &timeout))
WAIT(pause, pause())
WAIT(child, waitpid(-1, NULL, 0))
WAIT(spin_leaf, while (!waits_over) waits_spins++)

NOINLINE int waits_are_over(void) {
    waits_spins++;
    return waits_over;
}
WAIT(spin_calls, while (!waits_are_over()))

#define ENTRY(name) {#name, wait_##name, call_##name}
const struct wait waits[] = {
    ENTRY(nanosleep), ENTRY(usleep), ENTRY(sleep),        ENTRY(poll),  ENTRY(select), ENTRY(read),      ENTRY(epoll),
    ENTRY(accept),    ENTRY(receive), ENTRY(futex),       ENTRY(jumped_futex), ENTRY(semop), ENTRY(condition), ENTRY(semaphore),
    ENTRY(flock),     ENTRY(sigwait), ENTRY(pause),       ENTRY(child), ENTRY(mutex),
};
const int wait_count = sizeof waits / sizeof *waits;
const struct wait spins[2] = {ENTRY(spin_leaf), ENTRY(spin_calls)};

NOINLINE void descend(int depth, void (*wait)(void)) {
    volatile char frame[64 + 48 * (depth % 3)];  // frames of several sizes
    frame[0] = 1;
    if (depth > 1)
        descend(depth - 1, wait);
    else
        wait();
    frame[1] = frame[0];
}

static void require(int result) {
    if (result >= 0)
        return;
    perror("waits");
    exit(2);
}

void waits_prepare(void) {
    require(pipe(pipe_ends));
    require(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
    require(listener = socket(AF_INET, SOCK_STREAM, 0));
    require(listen(listener, 1));
    require(queue = epoll_create1(0));
    require(locked_file = mkstemp(name));
    require(flock(locked_file, LOCK_EX));
    require(file = open(name, O_RDWR));
    require(unlink(name));
    require(semaphores = semget(IPC_PRIVATE, 1, 0600));
    sem_init(&semaphore, 0, 0);
    pthread_mutex_lock(&mutex);
    pid_t child = fork();
    require(child);
    if (child == 0) {
        sleep(10 * SECONDS);
        _exit(0);
    }
}
