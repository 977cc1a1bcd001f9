#pragma once

// Unix sockets that keep message boundaries (SOCK_SEQPACKET), with descriptors passed along. Every function retries after EINTR,
// and hands out descriptors that are closed on exec and owned by the caller. None allocates or locks; errno is left alone, failures
// come back as -errno.

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#pragma clang assume_nonnull begin

/// Descriptors that one message can carry: SCM_MAX_FD of the kernel.
#define RUN_LOOP_MESSAGE_DESCRIPTORS 253

/// Who sent, by the kernel's word.
struct run_loop_peer {
    int32_t pid;
    uint32_t uid;
    uint32_t gid;
};

/// A new socket. Async-signal-safe.
int run_loop_message_socket(void);

/// Two new sockets, connected to each other. Returns 0 or -errno. Async-signal-safe.
int run_loop_message_pair(int ends[_Nonnull 2]);

/// Has each message that comes in at `fd` from now on say who sent it: for an end whose other one is handed on. It costs both sides
/// some, and elsewhere who connected is who sends. Async-signal-safe.
void run_loop_message_tell_senders(int fd);

/// Binds `fd` to `path` and lets it listen. -ENAMETOOLONG if the path does not fit an address. Async-signal-safe.
int run_loop_message_listen(int fd, const char *path);

/// Connects `fd` to `path`, waiting at most `timeout_ns` (not at all if zero) for room in the listener's queue: -EAGAIN then.
/// Leaves a send timeout on the socket, which sends that do not wait ignore. Async-signal-safe.
int run_loop_message_connect(int fd, const char *path, int64_t timeout_ns);

/// Accepts a connection of `fd`, -EAGAIN if there is none, and says who asked for it. Async-signal-safe.
int run_loop_message_accept(int fd, struct run_loop_peer *peer);

/// Who connected the socket at the other end, or listened on it. Returns 0 or -errno. Async-signal-safe.
int run_loop_message_peer(int fd, struct run_loop_peer *peer);

/// Sends one message, whole or not at all, without waiting: -EAGAIN if the receiver's queue is full. The kernel duplicates the
/// `descriptors` (at most RUN_LOOP_MESSAGE_DESCRIPTORS); the caller keeps its own. No SIGPIPE. Async-signal-safe.
int run_loop_message_send(
    int fd, const struct iovec *parts, int part_count, const int *_Nullable descriptors, int descriptor_count);

/// Takes one message, without waiting: its length, 0 if the peer is gone, -EAGAIN if there is none. `descriptors` has room for
/// RUN_LOOP_MESSAGE_DESCRIPTORS. A torn message leaves nothing open: -EMSGSIZE if it was longer than `parts`, -EMFILE if some of its
/// descriptors did not fit into this process. `peer` keeps its value if the kernel does not tell. Async-signal-safe.
int run_loop_message_receive(
    int fd, const struct iovec *parts, int part_count, int *descriptors, int *descriptor_count, struct run_loop_peer *peer);

/// Waits until `fd` takes another message or its peer is gone: at most `timeout_ns`, for ever if negative. Returns 1, or 0 when the
/// time is over, or -errno; -EINTR after a signal, for the caller to look at its clock. Async-signal-safe.
int run_loop_message_wait_writable(int fd, int64_t timeout_ns);

#pragma clang assume_nonnull end
