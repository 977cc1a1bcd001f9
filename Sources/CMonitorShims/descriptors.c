#define _GNU_SOURCE
#include "CMonitorShims.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>

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
