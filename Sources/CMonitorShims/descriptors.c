#define _GNU_SOURCE
#include "CMonitorShims.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

int monitor_allowed_processors(pid_t thread) {
    unsigned long set[8192 / (8 * sizeof(unsigned long))];
    memset(set, 0, sizeof set);
    if (sched_getaffinity(thread, sizeof set, (cpu_set_t *)set) != 0) return -1;
    return CPU_COUNT_S(sizeof set, (cpu_set_t *)set);
}

static int get_option(int descriptor, int level, int name) {
    int value = 0;
    socklen_t size = sizeof value;
    return getsockopt(descriptor, level, name, &value, &size) == 0 ? value : -1;
}

static int take_name(int descriptor, bool of_peer, unsigned char bytes[110]) {
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    struct sockaddr *place = (struct sockaddr *)&address;
    if ((of_peer ? getpeername(descriptor, place, &length) : getsockname(descriptor, place, &length)) != 0) return 0;
    if (length > 110) length = 110;
    memcpy(bytes, &address, length);
    return (int)length;
}

static void take_tcp(int descriptor, monitor_socket *socket) {
    struct tcp_info info;
    socklen_t size = sizeof info;
    memset(&info, 0, sizeof info);
    if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return;
    socket->has_tcp = true;
    socket->tcp_state = info.tcpi_state;
    socket->silent_ms = info.tcpi_last_data_recv;
    socket->retransmits = info.tcpi_retransmits;
    socket->unacknowledged = info.tcpi_unacked;
}

int monitor_describe_socket(int descriptor, monitor_socket *socket) {
    memset(socket, 0, sizeof *socket);
    socket->family = get_option(descriptor, SOL_SOCKET, SO_DOMAIN);
    if (socket->family < 0) return errno ? errno : ENOTSOCK;
    socket->type = get_option(descriptor, SOL_SOCKET, SO_TYPE);
    socket->protocol = get_option(descriptor, SOL_SOCKET, SO_PROTOCOL);
    socket->local_length = take_name(descriptor, false, socket->local);
    socket->peer_length = take_name(descriptor, true, socket->peer);
    bool is_internet = socket->family == AF_INET || socket->family == AF_INET6;
    if (is_internet && socket->type == SOCK_STREAM && socket->protocol == IPPROTO_TCP) take_tcp(descriptor, socket);
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    if (socket->family == AF_UNIX && getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0)
        socket->peer_process = peer.pid;
    return 0;
}

static void take_place(int descriptor, monitor_queue *queue) {
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    if (getsockname(descriptor, (struct sockaddr *)&address, &length) != 0) return;
    if (address.ss_family == AF_INET) queue->port = ntohs(((struct sockaddr_in *)&address)->sin_port);
    if (address.ss_family == AF_INET6) queue->port = ntohs(((struct sockaddr_in6 *)&address)->sin6_port);
    queue->has_name = address.ss_family == AF_UNIX && length > offsetof(struct sockaddr_un, sun_path);
}

/// For a TCP listener the kernel reports the number of waiting connections, in a field that has another meaning for a connection
/// (tcp_get_info). For other listeners it only reports whether there is any.
static int count_unaccepted(int descriptor) {
    struct tcp_info info;
    socklen_t size = sizeof info;
    memset(&info, 0, sizeof info);
    if (get_option(descriptor, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP &&
        getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) == 0)
        return info.tcpi_unacked > INT32_MAX ? INT32_MAX : (int)info.tcpi_unacked;
    struct pollfd waiting = {descriptor, POLLIN, 0};
    return poll(&waiting, 1, 0) == 1 && (waiting.revents & POLLIN) ? 1 : 0;
}

bool monitor_look_at_queue(int descriptor, monitor_queue *queue) {
    memset(queue, 0, sizeof *queue);
    int type = get_option(descriptor, SOL_SOCKET, SO_TYPE);
    if (type != SOCK_STREAM && type != SOCK_SEQPACKET) return false;
    take_place(descriptor, queue);
    queue->is_listener = get_option(descriptor, SOL_SOCKET, SO_ACCEPTCONN) == 1;
    if (queue->is_listener)
        queue->waiting = count_unaccepted(descriptor);
    else if (ioctl(descriptor, FIONREAD, &queue->waiting) != 0)
        queue->waiting = 0;
    return true;
}

int monitor_duplicate_descriptor(pid_t thread, int descriptor) {
    enum { THREAD = O_EXCL };  // PIDFD_THREAD: any thread, not only a process's first one. Since Linux 6.9.
    int handle = (int)syscall(SYS_pidfd_open, thread, 0);
    if (handle < 0) handle = (int)syscall(SYS_pidfd_open, thread, THREAD);
    if (handle < 0) return -1;
    int duplicate = (int)syscall(SYS_pidfd_getfd, handle, descriptor, 0);
    close(handle);
    return duplicate;
}

int monitor_accept(int listener) { return accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK); }

int monitor_poll(struct pollfd *descriptors, nfds_t count, int timeout_ms) {
    struct timespec timeout = {timeout_ms / 1000, (long)(timeout_ms % 1000) * 1000000};
    return (int)syscall(SYS_ppoll, descriptors, count, timeout_ms < 0 ? NULL : &timeout, NULL, 0);
}
