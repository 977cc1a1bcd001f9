#pragma once
// The GNU extensions of glibc that the monitor's threads need and that Swift's Glibc module does not export.
// Times are CLOCK_MONOTONIC nanoseconds. Any thread may call these functions. None is async-signal-safe unless it says so.

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <semaphore.h>
#include <sys/types.h>

#pragma clang assume_nonnull begin

/// Creates a process-private semaphore with the value zero. Allocates; the caller owns it. Null if memory is short.
sem_t *_Nullable monitor_semaphore_create(void);
/// Frees it. No thread may be waiting on it or about to post it.
void monitor_semaphore_destroy(sem_t *semaphore);
/// Waits without a deadline: only for the parked watchdog, which a post wakes. Retries after EINTR.
void monitor_semaphore_wait(sem_t *semaphore);
/// Waits until `deadline_ns`. Returns true if it was posted, false if the deadline passed. Retries after EINTR.
bool monitor_semaphore_wait_until(sem_t *semaphore, uint64_t deadline_ns);

/// Starts a detached thread that blocks every signal except those that its own faults raise, so that no handler of the host runs
/// on it. `name` is truncated to 15 bytes, the kernel's limit. Returns 0 or an errno.
int monitor_thread_start(const char *name, void (*body)(void *context), void *context);

/// The lower half of the calling task's number in Swift's concurrency runtime, which is the part in a captured stack. 0 outside a
/// task, and if the runtime does not provide it.
uint32_t monitor_current_task(void);

/// Makes exit(3) call `body` with its status, in this process and not in its children. One call per process is enough. It replaces
/// an earlier body. `body` runs on the thread that calls exit, possibly in a signal handler of the host. Returns false if memory is
/// short.
bool monitor_on_exit(void (*body)(int status));

/// Makes a child of fork(2) close `descriptor` before fork returns there, if it still refers to the same file. Reports no
/// errno. Returns false if all places are taken or the descriptor is not open. Children of vfork(2), posix_spawn(3) and clone(2)
/// are not covered.
bool monitor_close_in_child(int descriptor);
/// Undoes `monitor_close_in_child`. Call it before the descriptor is closed.
void monitor_forget_in_child(int descriptor);

/// Accepts a connection from a listening socket without waiting, if the listener is nonblocking. The connection is closed on exec and
/// nonblocking. −1 and errno if there is none.
int monitor_accept(int listener);

/// poll(2), as a system call: if the program defines poll to find its loops, the calling thread is not taken for one of them.
/// The same result and errno.
int monitor_poll(struct pollfd *descriptors, nfds_t count, int timeout_ms);

/// The number of processors that the thread may use (sched_getaffinity(2)); −1 if there is no such thread, or more than 8,192
/// processors.
int monitor_allowed_processors(pid_t thread);

/// The two ends of a socket (getsockname(2), getpeername(2), tcp(7), unix(7)).
typedef struct monitor_socket {
    int family;    ///< AF_INET, AF_UNIX, …
    int type;      ///< SOCK_STREAM, SOCK_DGRAM, …
    int protocol;  ///< IPPROTO_TCP, …
    unsigned char local[110];
    unsigned char peer[110];
    int local_length;  ///< 0 if the end has no name.
    int peer_length;
    bool has_tcp;      ///< Whether the fields below are valid.
    int tcp_state;     ///< The kernel's number: 1 is ESTABLISHED.
    uint32_t silent_ms;  ///< Time since the peer last sent data.
    uint32_t retransmits;
    uint32_t unacknowledged;
    pid_t peer_process;  ///< For a local socket, as of when it was connected; 0 if unknown.
} monitor_socket;

/// Describes a socket of this process. Does not change it. Waits for the socket's lock, which another thread holds during a call,
/// including any page fault in it: do not call it on the watchdog's thread. Returns 0 or an errno.
int monitor_describe_socket(int descriptor, monitor_socket *socket);

/// The input that is waiting at a stream socket (tcp(7), unix(7)).
typedef struct monitor_queue {
    bool is_listener;
    bool has_name;  ///< A local socket that is bound to a name.
    uint16_t port;  ///< The local TCP port; 0 if there is none.
    int waiting;    ///< Bytes received and not read; for a listener, connections waiting to be accepted.
} monitor_queue;

/// Samples the waiting input without consuming any of it. Waits for the socket's lock, like the function above. Returns false if
/// the descriptor is neither a connection nor a listener.
bool monitor_look_at_queue(int descriptor, monitor_queue *queue);

/// A duplicate of another process's descriptor, closed on exec; the caller closes it. −1 if that is not permitted or there is no
/// such descriptor. The other process is not affected (pidfd_getfd(2)). `thread` is one of its threads that has not ended.
int monitor_duplicate_descriptor(pid_t thread, int descriptor);

#pragma clang assume_nonnull end
