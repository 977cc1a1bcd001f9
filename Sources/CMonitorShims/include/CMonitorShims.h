#pragma once
// What the monitor's threads need of glibc's GNU extensions, which Swift's Glibc module does not show.
// Times are CLOCK_MONOTONIC nanoseconds. No function here is async-signal-safe unless it says so.

#include <stdbool.h>
#include <stdint.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/types.h>

#pragma clang assume_nonnull begin

/// Makes a process-private semaphore at zero. Allocates; the caller owns it. Null when memory is short.
sem_t *_Nullable monitor_semaphore_create(void);
/// Frees it. No thread may be waiting on it or about to post it.
void monitor_semaphore_destroy(sem_t *semaphore);
/// Waits without a deadline: for the parked watchdog alone, which nothing but a post may wake. Repeats after EINTR.
void monitor_semaphore_wait(sem_t *semaphore);
/// Waits until `deadline_ns`. True: posted. False: the deadline passed. Repeats after EINTR.
bool monitor_semaphore_wait_until(sem_t *semaphore, uint64_t deadline_ns);

/// Starts a joinable thread that blocks every signal but those it raises itself, so that no handler of the host runs on it. `name` is cut to 15
/// bytes, the kernel's limit. Returns 0 or an errno.
int monitor_thread_start(pthread_t *thread, const char *name, void (*body)(void *context), void *context);
/// Joins it, waiting until `deadline_ns` at most. Returns 0, or ETIMEDOUT: the thread then still runs and stays joinable.
int monitor_thread_join(pthread_t thread, uint64_t deadline_ns);

/// How often this process was forked off: a fork's child reads another number than its parent. One relaxed load;
/// async-signal-safe. It is counted by pthread_atfork, so not for a raw clone(2).
uint32_t monitor_fork_generation(void);

/// Has exit(3) call `body` with its status, in this process and not in its children. Once a process is enough. It takes the place of an
/// earlier body. `body` runs on whichever thread calls exit, perhaps in a signal handler of the host's. Returns false when memory is short.
bool monitor_on_exit(void (*body)(int status));

/// Has a child of fork(2) close `descriptor` before fork returns there, if it is the same file still. No errno. False: no place is left, or
/// the descriptor is not open. Children of vfork(2), posix_spawn(3) and clone(2) are not reached.
bool monitor_close_in_child(int descriptor);
/// Takes that back, before the descriptor is closed.
void monitor_forget_in_child(int descriptor);

/// Takes a connection off a listening socket without a wait; it is closed on exec and never blocks. −1 and errno where there is none.
int monitor_accept(int listener);

/// How many processors the thread may use (sched_getaffinity(2)); −1 if there is no such thread, or more than 8,192 processors.
int monitor_allowed_processors(pid_t thread);

/// What a socket's two ends are (getsockname(2), getpeername(2), tcp(7), unix(7)).
typedef struct monitor_socket {
    int family;    ///< AF_INET, AF_UNIX, …
    int type;      ///< SOCK_STREAM, SOCK_DGRAM, …
    int protocol;  ///< IPPROTO_TCP, …
    unsigned char local[110];
    unsigned char peer[110];
    int local_length;  ///< 0 without one.
    int peer_length;
    bool has_tcp;      ///< Whether the fields below mean anything.
    int tcp_state;     ///< The kernel's number: 1 is ESTABLISHED.
    uint32_t silent_ms;  ///< Since the peer last sent data.
    uint32_t retransmits;
    uint32_t unacknowledged;
    pid_t peer_process;  ///< Of a local socket, as of when it was connected; 0 if it is not known.
} monitor_socket;

/// Describes a socket of this process. Changes nothing about it. Waits for the socket's lock, which another thread holds for as long as a
/// page fault within its call takes: not for the watchdog's thread. Returns 0 or an errno.
int monitor_describe_socket(int descriptor, monitor_socket *socket);

/// What waits at a stream socket (tcp(7), unix(7)).
typedef struct monitor_queue {
    bool is_listener;
    bool has_name;  ///< A local socket that is bound to a name.
    uint16_t port;  ///< Our end's, of TCP; 0 without one.
    int waiting;    ///< Bytes that came and were not read; of a listener, connections that wait to be accepted.
} monitor_queue;

/// Looks at what waits there, and takes nothing of it. Waits for the socket's lock as the above. Returns false for what is neither a connection
/// nor listens for any.
bool monitor_look_at_queue(int descriptor, monitor_queue *queue);

/// A duplicate of another process's descriptor, closed at exec and the caller's to close; −1 where that is not permitted, or there is none.
/// The other process does not notice (pidfd_getfd(2)).
int monitor_duplicate_descriptor(pid_t process, int descriptor);

#pragma clang assume_nonnull end
