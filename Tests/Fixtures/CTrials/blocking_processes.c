/// Calls that wait for another thread, a process or a signal, until released.
#include "blocking.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define CALL __attribute__((noinline)) static int64_t

static int make_pipe(trial_block *b) { return pipe2(b->file, O_CLOEXEC) ? errno : 0; }
static void write_byte(trial_block *b) { require(write(b->file[1], "", 1) == 1); }

// Threads.

CALL call_futex(trial_block *b) {
    return ended(b, syscall(SYS_futex, &b->word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, NULL, NULL, 0));
}
static void wake(trial_block *b) { syscall(SYS_futex, &b->word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0); }
static int make_mutex(trial_block *b) {
    pthread_mutex_init(&b->mutex, NULL);
    return pthread_mutex_lock(&b->mutex);
}
static int make_inheriting_mutex(trial_block *b) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    int error = pthread_mutex_init(&b->mutex, &attributes);
    return error ? error : pthread_mutex_lock(&b->mutex);
}
CALL call_mutex(trial_block *b) { return ended(b, pthread_mutex_lock(&b->mutex)); }
static void unlock_mutex(trial_block *b) { pthread_mutex_unlock(&b->mutex); }
static int make_rwlock(trial_block *b) {
    pthread_rwlock_init(&b->rwlock, NULL);
    return pthread_rwlock_wrlock(&b->rwlock);
}
CALL call_rwlock(trial_block *b) { return ended(b, pthread_rwlock_rdlock(&b->rwlock)); }
static void unlock_rwlock(trial_block *b) { pthread_rwlock_unlock(&b->rwlock); }
static int make_semaphore(trial_block *b) { return sem_init(&b->semaphore, 0, 0) ? errno : 0; }
CALL call_sem_wait(trial_block *b) { return ended(b, sem_wait(&b->semaphore)); }
static void post(trial_block *b) { sem_post(&b->semaphore); }
static int make_condition(trial_block *b) {
    pthread_mutex_init(&b->mutex, NULL);
    return pthread_cond_init(&b->condition, NULL);
}
CALL call_cond_wait(trial_block *b) {
    pthread_mutex_lock(&b->mutex);
    return ended(b, pthread_cond_wait(&b->condition, &b->mutex));
}
static void notify(trial_block *b) {
    pthread_mutex_lock(&b->mutex);
    pthread_cond_signal(&b->condition);
    pthread_mutex_unlock(&b->mutex);
}
static void *read_one(void *context) {
    char byte;
    require(read(((trial_block *)context)->file[0], &byte, 1) == 1);
    return NULL;
}
static int make_other(trial_block *b) {
    int error = make_pipe(b);
    return error ? error : pthread_create(&b->other, NULL, read_one, b);
}
CALL call_join(trial_block *b) { return ended(b, pthread_join(b->other, NULL)); }

// Queues and semaphores of System V.

static int make_messages(trial_block *b) {
    b->queue = msgget(IPC_PRIVATE, 0600);
    return b->queue < 0 ? errno : 0;
}
struct message {
    long type;
    char bytes[1024];
};
static int make_full_messages(trial_block *b) {
    struct message message = {.type = 1};
    int error = make_messages(b);
    while (!error && msgsnd(b->queue, &message, sizeof message.bytes, IPC_NOWAIT) == 0) {}
    return error;
}
CALL call_msgrcv(trial_block *b) {
    struct message message;
    return ended(b, msgrcv(b->queue, &message, sizeof message.bytes, 0, 0));
}
CALL call_msgsnd(trial_block *b) {
    struct message message = {.type = 1};
    return ended(b, msgsnd(b->queue, &message, sizeof message.bytes, 0));
}
static void send_message(trial_block *b) {
    struct message message = {.type = 1};
    require(msgsnd(b->queue, &message, 1, 0) == 0);
}
static void receive_message(trial_block *b) {
    struct message message;
    require(msgrcv(b->queue, &message, sizeof message.bytes, 0, 0) > 0);
}
static void remove_messages(trial_block *b) { msgctl(b->queue, IPC_RMID, NULL); }
static int make_semaphores(trial_block *b) {
    b->queue = semget(IPC_PRIVATE, 1, 0600);
    return b->queue < 0 ? errno : 0;
}
CALL call_semop(trial_block *b) {
    struct sembuf take = {0, -1, 0};
    return ended(b, semop(b->queue, &take, 1));
}
static void add_semaphore(trial_block *b) {
    struct sembuf give = {0, 1, 0};
    require(semop(b->queue, &give, 1) == 0);
}
static void remove_semaphores(trial_block *b) { semctl(b->queue, 0, IPC_RMID); }

// Signals. These calls return when a signal arrives: none may arrive.

static int make_handler(trial_block *b) {
    (void)b;
    trial_handle_usr2();
    return 0;
}
static void send_usr2(trial_block *b) { syscall(SYS_tgkill, getpid(), b->thread.number, SIGUSR2); }
CALL call_pause(trial_block *b) { return ended(b, pause()); }
CALL call_sigsuspend(trial_block *b) {
    sigset_t none;
    sigemptyset(&none);
    return ended(b, sigsuspend(&none));
}
CALL call_sigwait(trial_block *b) {
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &wanted, NULL);
    int64_t result = sigwaitinfo(&wanted, NULL);
    return ended(b, result == SIGUSR2 ? 0 : result);
}

// Children.

static int make_child(trial_block *b) {
    char byte;
    int error = make_pipe(b);
    if (error)
        return error;
    b->child = fork();
    if (b->child == 0)
        _exit(read(b->file[0], &byte, 1) == 1 ? 0 : 1);
    return b->child < 0 ? errno : 0;
}
CALL call_waitpid(trial_block *b) {
    int status;
    int64_t result = waitpid(b->child, &status, 0);
    return ended(b, result == b->child ? status : result);
}
CALL call_waitid(trial_block *b) {
    siginfo_t info;
    return ended(b, waitid(P_PID, (id_t)b->child, &info, WEXITED));
}
#ifdef SYS_pidfd_open
static int make_pidfd(trial_block *b) {
    int error = make_child(b);
    b->file[2] = error ? -1 : (int)syscall(SYS_pidfd_open, b->child, 0);
    return error ? error : b->file[2] < 0 ? errno : 0;
}
CALL call_poll_pidfd(trial_block *b) {
    struct pollfd wanted = {b->file[2], POLLIN, 0};
    return ended(b, poll(&wanted, 1, -1));
}
static void reap(trial_block *b) { waitpid(b->child, NULL, 0); }
#endif
/// Until it exits, the child runs on the parent's stack, below the parent's frame: it must not change the parent's frame.
CALL call_vfork(trial_block *b) {
    int file = b->file[0];
    pid_t child = vfork();
    if (child == 0) {
        char byte;
        _exit(read(file, &byte, 1) == 1 ? 0 : 1);
    }
    int status = -1;
    if (child > 0)
        waitpid(child, &status, 0);
    return ended(b, status);
}
static int make_spawn_fifo(trial_block *b) {
    snprintf(b->path, sizeof b->path, "/tmp/trial-spawn-%d", getpid());
    unlink(b->path);
    return mkfifo(b->path, 0600) ? errno : 0;
}
/// Waits for its child to reach exec, which first opens the FIFO.
CALL call_spawn(trial_block *b) {
    char *arguments[] = {"true", NULL}, *environment[] = {NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, b->path, O_RDONLY, 0);
    int64_t result = posix_spawn(&b->child, "/bin/true", &actions, NULL, arguments, environment);
    ended(b, result);
    posix_spawn_file_actions_destroy(&actions);
    if (result == 0)
        waitpid(b->child, NULL, 0);
    return result;
}
static void open_writer(trial_block *b) {
    b->file[0] = open(b->path, O_WRONLY | O_CLOEXEC);
    require(b->file[0] >= 0);
}
static void unlink_path(trial_block *b) { unlink(b->path); }

// A page fault that is not resolved.

static int make_missing_page(trial_block *b) {
    struct uffdio_api api = {.api = UFFD_API};
    b->file[0] = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    if (b->file[0] < 0 || ioctl(b->file[0], UFFDIO_API, &api))
        return errno;
    b->memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register range = {.range = {(uintptr_t)b->memory, 4096}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    return ioctl(b->file[0], UFFDIO_REGISTER, &range) ? errno : 0;
}
CALL call_page_fault(trial_block *b) { return ended(b, *(volatile char *)b->memory); }
static void give_page(trial_block *b) {
    struct uffdio_zeropage page = {.range = {(uintptr_t)b->memory, 4096}};
    require(ioctl(b->file[0], UFFDIO_ZEROPAGE, &page) == 0);
}
static void unmap_page(trial_block *b) { munmap(b->memory, 4096); }

const struct blocking_call trial_process_calls[] = {
    {.name = "futex", .number = SYS_futex, .run = call_futex, .release = wake},
    {.name = "pthread_mutex_lock", .number = SYS_futex, .prepare = make_mutex, .run = call_mutex, .release = unlock_mutex},
    {.name = "pthread_mutex_lock, PI", .number = SYS_futex, .prepare = make_inheriting_mutex, .run = call_mutex, .release = unlock_mutex},
    {.name = "pthread_rwlock_rdlock", .number = SYS_futex, .prepare = make_rwlock, .run = call_rwlock, .release = unlock_rwlock},
    {.name = "sem_wait", .number = SYS_futex, .prepare = make_semaphore, .run = call_sem_wait, .release = post},
    {.name = "pthread_cond_wait", .number = SYS_futex, .prepare = make_condition, .run = call_cond_wait, .release = notify},
    {.name = "pthread_join", .number = SYS_futex, .prepare = make_other, .run = call_join, .release = write_byte},
    {.name = "msgrcv", .number = SYS_msgrcv, .prepare = make_messages, .run = call_msgrcv, .release = send_message, .clean = remove_messages, .result = 1},
    {.name = "msgsnd", .number = SYS_msgsnd, .prepare = make_full_messages, .run = call_msgsnd, .release = receive_message, .clean = remove_messages},
    {.name = "semop", .number = SYS_semop, .or_number = SYS_semtimedop, .prepare = make_semaphores, .run = call_semop, .release = add_semaphore, .clean = remove_semaphores},
    {.name = "pause", .number = SYS_pause, .prepare = make_handler, .run = call_pause, .release = send_usr2, .result = -1, .error = EINTR},
    {.name = "sigsuspend", .number = SYS_rt_sigsuspend, .prepare = make_handler, .run = call_sigsuspend, .release = send_usr2, .result = -1, .error = EINTR},
    {.name = "sigwaitinfo", .number = SYS_rt_sigtimedwait, .run = call_sigwait, .release = send_usr2},
    {.name = "waitpid", .number = SYS_wait4, .prepare = make_child, .run = call_waitpid, .release = write_byte},
    {.name = "waitid", .number = SYS_waitid, .prepare = make_child, .run = call_waitid, .release = write_byte},
#ifdef SYS_pidfd_open
    {.name = "poll of a pidfd", .number = SYS_poll, .prepare = make_pidfd, .run = call_poll_pidfd, .release = write_byte, .clean = reap, .result = 1},
#endif
    {.name = "vfork", .number = SYS_vfork, .prepare = make_pipe, .run = call_vfork, .release = write_byte},
    {.name = "posix_spawn", .number = SYS_clone3, .or_number = SYS_clone, .prepare = make_spawn_fifo, .run = call_spawn, .release = open_writer, .clean = unlink_path},
    {.name = "page fault", .number = -1, .prepare = make_missing_page, .run = call_page_fault, .release = give_page, .clean = unmap_page},
};
const size_t trial_process_call_count = sizeof trial_process_calls / sizeof *trial_process_calls;
