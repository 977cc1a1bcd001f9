/// Calls that wait for a descriptor's other end, until released. A signal would cut short even those calls that it would not end
/// with EINTR: a write returns the number of bytes written so far.
#include "blocking.h"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define CALL __attribute__((noinline)) static int64_t

enum { LARGE = 128 * 1024 };
static char large[LARGE];

void trial_fill(int file) {
    int flags = fcntl(file, F_GETFL);
    fcntl(file, F_SETFL, flags | O_NONBLOCK);
    while (write(file, large, 4096) > 0) {}
    while (write(file, large, 1) > 0) {}
    fcntl(file, F_SETFL, flags);
}

/// Reads all input until the thread has returned.
static void drain(trial_block *b, int file) {
    char bytes[4096];
    fcntl(file, F_SETFL, O_NONBLOCK);
    while (!trial_block_has_returned(b))
        if (read(file, bytes, sizeof bytes) < 0)
            sched_yield();
}

static int make_pipe(trial_block *b) { return pipe2(b->file, O_CLOEXEC) ? errno : 0; }
static void write_byte(trial_block *b) { require(write(b->file[1], "", 1) == 1); }
static void drain_first(trial_block *b) { drain(b, b->file[0]); }
static void drain_second(trial_block *b) { drain(b, b->file[1]); }

CALL call_read(trial_block *b) {
    char byte;
    return ended(b, read(b->file[0], &byte, 1));
}
/// It blocks in the middle: a pipe holds 64 KiB.
CALL call_write(trial_block *b) { return ended(b, write(b->file[1], large, LARGE)); }
static int make_full_pipe(trial_block *b) {
    int error = make_pipe(b);
    if (!error)
        trial_fill(b->file[1]);
    return error;
}
CALL call_write_byte(trial_block *b) { return ended(b, write(b->file[1], large, 1)); }
static int make_two_pipes(trial_block *b) {
    int error = make_pipe(b);
    return error ? error : pipe2(b->file + 2, O_CLOEXEC) ? errno : 0;
}
CALL call_splice(trial_block *b) { return ended(b, splice(b->file[0], NULL, b->file[3], NULL, 1, 0)); }
CALL call_tee(trial_block *b) { return ended(b, tee(b->file[0], b->file[3], 1, 0)); }

static int make_event(trial_block *b) {
    b->file[1] = eventfd(0, EFD_CLOEXEC);
    return b->file[1] < 0 ? errno : 0;
}
CALL call_eventfd(trial_block *b) {
    uint64_t value;
    return ended(b, read(b->file[1], &value, sizeof value));
}
static void add_event(trial_block *b) { require(eventfd_write(b->file[1], 1) == 0); }
static int make_signal_file(trial_block *b) {
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR2);
    b->file[0] = signalfd(-1, &wanted, SFD_CLOEXEC);
    return b->file[0] < 0 ? errno : 0;
}
CALL call_signalfd(trial_block *b) {
    struct signalfd_siginfo info;
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &wanted, NULL);
    int64_t result = read(b->file[0], &info, sizeof info);
    return ended(b, result == sizeof info ? 0 : result);
}
static void send_usr2(trial_block *b) { syscall(SYS_tgkill, getpid(), b->thread.number, SIGUSR2); }
static int make_inotify(trial_block *b) {
    snprintf(b->path, sizeof b->path, "/tmp/trial-watched-%d", getpid());
    int file = open(b->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    close(file);
    b->file[0] = inotify_init1(IN_CLOEXEC);
    return b->file[0] < 0 || inotify_add_watch(b->file[0], b->path, IN_ATTRIB) < 0 ? errno : 0;
}
CALL call_inotify(trial_block *b) {
    struct inotify_event event;
    int64_t result = read(b->file[0], &event, sizeof event);
    return ended(b, result == sizeof event ? 0 : result);
}
static void touch(trial_block *b) { require(chmod(b->path, 0400) == 0); }
static void unlink_path(trial_block *b) { unlink(b->path); }
static int make_fifo(trial_block *b) {
    snprintf(b->path, sizeof b->path, "/tmp/trial-fifo-%d", getpid());
    unlink(b->path);
    return mkfifo(b->path, 0600) ? errno : 0;
}
CALL call_open_fifo(trial_block *b) {
    int64_t file = open(b->path, O_RDONLY | O_CLOEXEC);
    if (file >= 0)
        close((int)file);
    return ended(b, file >= 0 ? 0 : file);
}
static void open_writer(trial_block *b) {
    b->file[0] = open(b->path, O_WRONLY | O_CLOEXEC);
    require(b->file[0] >= 0);
}

// Sockets.

int trial_full_listener(trial_block *b) {
    sa_family_t family = AF_UNIX;
    char address[110];
    socklen_t length = sizeof address;
    for (int i = 0; i < 3; i++)
        b->file[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(b->file[0], (const struct sockaddr *)&family, sizeof family) || listen(b->file[0], 0))
        return errno;
    getsockname(b->file[0], (struct sockaddr *)address, &length);
    return connect(b->file[1], (const struct sockaddr *)address, length) ? errno : 0;
}
CALL call_accept(trial_block *b) {
    int64_t file = accept(b->file[0], NULL, NULL);
    if (file >= 0)
        close((int)file);
    return ended(b, file >= 0 ? 0 : file);
}
CALL call_connect(trial_block *b) {
    char address[110];
    socklen_t length = sizeof address;
    getsockname(b->file[0], (struct sockaddr *)address, &length);
    return ended(b, connect(b->file[2], (const struct sockaddr *)address, length));
}
static void accept_one(trial_block *b) {
    b->file[3] = accept(b->file[0], NULL, NULL);
    require(b->file[3] >= 0);
}
static int make_listener(trial_block *b) {
    int error = trial_full_listener(b);
    if (!error)
        accept_one(b);
    return error;
}
static void connect_one(trial_block *b) {
    char address[110];
    socklen_t length = sizeof address;
    getsockname(b->file[0], (struct sockaddr *)address, &length);
    require(connect(b->file[2], (const struct sockaddr *)address, length) == 0);
}
static int make_tcp_pair(trial_block *b) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    b->file[2] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    b->file[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(b->file[2], (struct sockaddr *)&address, length) || listen(b->file[2], 1) ||
        getsockname(b->file[2], (struct sockaddr *)&address, &length) ||
        connect(b->file[0], (struct sockaddr *)&address, length))
        return errno;
    b->file[1] = accept4(b->file[2], NULL, NULL, SOCK_CLOEXEC);
    return b->file[1] < 0 ? errno : 0;
}
/// More than the buffers of the two sockets hold.
enum { TCP_SENT = 16 * 1024 * 1024 };
CALL call_tcp_send(trial_block *b) {
    void *bytes = mmap(NULL, TCP_SENT, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int64_t result = send(b->file[0], bytes, TCP_SENT, MSG_NOSIGNAL);
    ended(b, result);
    munmap(bytes, TCP_SENT);
    return result;
}
CALL call_recvmsg(trial_block *b) {
    char byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    return ended(b, recvmsg(b->file[0], &message, 0));
}

// Locks on files.

static int make_locked(trial_block *b) {
    snprintf(b->path, sizeof b->path, "/tmp/trial-locked-%d", getpid());
    for (int i = 0; i < 2; i++)
        b->file[i] = open(b->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    return b->file[0] < 0 || flock(b->file[0], LOCK_EX) ? errno : 0;
}
CALL call_flock(trial_block *b) { return ended(b, flock(b->file[1], LOCK_EX)); }
static void unlock(trial_block *b) { flock(b->file[0], LOCK_UN); }
static int make_record_locked(trial_block *b) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int error = make_locked(b);
    return error ? error : fcntl(b->file[0], F_OFD_SETLK, &lock) ? errno : 0;
}
/// Another description of the file has the lock, which also excludes the process-associated kind: fcntl(2).
CALL call_setlkw(trial_block *b) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return ended(b, fcntl(b->file[1], F_SETLKW, &lock));
}
CALL call_ofd_setlkw(trial_block *b) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return ended(b, fcntl(b->file[1], F_OFD_SETLKW, &lock));
}
static void unlock_record(trial_block *b) {
    struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    fcntl(b->file[0], F_OFD_SETLK, &lock);
}

// io_uring.

int trial_ring_open(trial_block *b) {
    struct io_uring_params parameters;
    memset(&parameters, 0, sizeof parameters);
    b->file[0] = (int)syscall(SYS_io_uring_setup, 4, &parameters);
    if (b->file[0] < 0)
        return errno;
    b->size = parameters.sq_off.array + parameters.sq_entries * sizeof(uint32_t);
    size_t completions = parameters.cq_off.cqes + parameters.cq_entries * sizeof(struct io_uring_cqe);
    b->size = completions > b->size ? completions : b->size;
    b->memory = mmap(NULL, b->size, PROT_READ | PROT_WRITE, MAP_SHARED, b->file[0], IORING_OFF_SQ_RING);
    if (b->memory == MAP_FAILED)
        return errno;
    b->word = parameters.sq_off.tail;
    return 0;
}

/// Submits the first entry, which is zero: a no-op.
void trial_ring_complete(trial_block *b) {
    _Atomic uint32_t *tail = (void *)((char *)b->memory + b->word);
    atomic_fetch_add(tail, 1);
    require(syscall(SYS_io_uring_enter, b->file[0], 1, 0, 0, NULL, 0) == 1);
}
void trial_ring_close(trial_block *b) { munmap(b->memory, b->size); }
CALL call_io_uring(trial_block *b) {
    return ended(b, syscall(SYS_io_uring_enter, b->file[0], 0, 1, IORING_ENTER_GETEVENTS, NULL, 0));
}

const struct blocking_call trial_descriptor_calls[] = {
    {.name = "read of a pipe", .number = SYS_read, .prepare = make_pipe, .run = call_read, .release = write_byte, .result = 1},
    {.name = "write, half done", .number = SYS_write, .prepare = make_pipe, .run = call_write, .release = drain_first, .result = LARGE},
    {.name = "write to a full pipe", .number = SYS_write, .prepare = make_full_pipe, .run = call_write_byte, .release = drain_first, .result = 1},
    {.name = "splice", .number = SYS_splice, .prepare = make_two_pipes, .run = call_splice, .release = write_byte, .result = 1},
    {.name = "tee", .number = SYS_tee, .prepare = make_two_pipes, .run = call_tee, .release = write_byte, .result = 1},
    {.name = "read of an eventfd", .number = SYS_read, .prepare = make_event, .run = call_eventfd, .release = add_event, .result = 8},
    {.name = "read of a signalfd", .number = SYS_read, .prepare = make_signal_file, .run = call_signalfd, .release = send_usr2},
    {.name = "read of an inotify", .number = SYS_read, .prepare = make_inotify, .run = call_inotify, .release = touch, .clean = unlink_path},
    {.name = "open of a FIFO", .number = SYS_openat, .prepare = make_fifo, .run = call_open_fifo, .release = open_writer, .clean = unlink_path},
    {.name = "accept", .number = SYS_accept, .prepare = make_listener, .run = call_accept, .release = connect_one},
    {.name = "connect", .number = SYS_connect, .prepare = trial_full_listener, .run = call_connect, .release = accept_one},
    {.name = "send to a full TCP socket", .number = SYS_sendto, .prepare = make_tcp_pair, .run = call_tcp_send, .release = drain_second, .result = TCP_SENT},
    {.name = "recvmsg", .number = SYS_recvmsg, .prepare = make_tcp_pair, .run = call_recvmsg, .release = write_byte, .result = 1},
    {.name = "flock", .number = SYS_flock, .prepare = make_locked, .run = call_flock, .release = unlock, .clean = unlink_path},
    {.name = "fcntl F_SETLKW", .number = SYS_fcntl, .prepare = make_record_locked, .run = call_setlkw, .release = unlock_record, .clean = unlink_path},
    {.name = "fcntl F_OFD_SETLKW", .number = SYS_fcntl, .prepare = make_record_locked, .run = call_ofd_setlkw, .release = unlock_record, .clean = unlink_path},
    {.name = "io_uring_enter", .number = SYS_io_uring_enter, .prepare = trial_ring_open, .run = call_io_uring, .release = trial_ring_complete, .clean = trial_ring_close},
};
const size_t trial_descriptor_call_count = sizeof trial_descriptor_calls / sizeof *trial_descriptor_calls;
