#pragma once

// Unix sockets that keep message boundaries (SOCK_SEQPACKET), with descriptor passing. Every function retries after EINTR, and
// returns descriptors that are closed on exec and owned by the caller. None allocates or locks; errno is not changed, failures
// are returned as -errno.

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#pragma clang assume_nonnull begin

/// The number of descriptors that one message can carry: the kernel's SCM_MAX_FD.
#define RUN_LOOP_MESSAGE_DESCRIPTORS 253

/// The sender, as reported by the kernel.
struct run_loop_peer {
    int32_t pid;
    uint32_t uid;
    uint32_t gid;
};

/// A new socket. Async-signal-safe.
int run_loop_message_socket(void);

/// Two new sockets, connected to each other. Returns 0 or -errno. Async-signal-safe.
int run_loop_message_pair(int ends[_Nonnull 2]);

/// Makes each message that arrives at `fd` from now on name its sender: for an end whose peer end is passed on. It costs both
/// sides some time; on other sockets the process that connected is the sender. Async-signal-safe.
void run_loop_message_tell_senders(int fd);

/// Binds `fd` to `path` and listens. -ENAMETOOLONG if the path does not fit into an address. Async-signal-safe.
int run_loop_message_listen(int fd, const char *path);

/// Connects `fd` to `path`, waiting at most `timeout_ns` (not at all if zero) for room in the listener's queue; then -EAGAIN.
/// Leaves a send timeout on the socket, which non-blocking sends ignore. Async-signal-safe.
int run_loop_message_connect(int fd, const char *path, int64_t timeout_ns);

/// Accepts a connection of `fd`, -EAGAIN if there is none, and reports the connecting process as `run_loop_message_peer` does.
/// Async-signal-safe.
int run_loop_message_accept(int fd, struct run_loop_peer *peer);

/// Reports the process that connected the socket at the other end, or listened on it. Returns 0, or -errno if the kernel does not
/// tell, perhaps because of a sandbox: user and group are UINT32_MAX then, which no process has. Async-signal-safe.
int run_loop_message_peer(int fd, struct run_loop_peer *peer);

/// Sends one message, whole or not at all, without waiting: -EAGAIN if the receiver's queue is full. The kernel duplicates the
/// `descriptors` (at most RUN_LOOP_MESSAGE_DESCRIPTORS); the caller keeps its own. No SIGPIPE. Async-signal-safe.
int run_loop_message_send(
    int fd, const struct iovec *parts, int part_count, const int *_Nullable descriptors, int descriptor_count);

/// Receives one message without blocking: its length, 0 if the peer has closed, -EAGAIN if there is none. `descriptors` has
/// room for RUN_LOOP_MESSAGE_DESCRIPTORS. A truncated message leaves nothing open: -EMSGSIZE if it was longer than `parts`,
/// -EMFILE if some of its descriptors did not fit into this process. `peer` keeps its value if the kernel reports none.
/// Async-signal-safe.
int run_loop_message_receive(
    int fd, const struct iovec *parts, int part_count, int *descriptors, int *descriptor_count, struct run_loop_peer *peer);

/// Waits until `fd` accepts another message or its peer has closed: at most `timeout_ns`, without limit if negative. Returns 1,
/// or 0 after the timeout, or -errno; -EINTR after a signal, for the caller to check its clock. The kernel gets `request` where it is,
/// with what the caller has written behind it for readers of the thread's memory. Async-signal-safe.
int run_loop_message_wait_writable(int fd, int64_t timeout_ns, struct pollfd *request);

#pragma clang assume_nonnull end
