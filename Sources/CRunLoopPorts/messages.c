#define _GNU_SOURCE
#include "CRunLoopPorts.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

// Repeats a system call until no signal interrupts it, and stores its result, or -errno, in `result`; errno is not changed.
#define RETRYING(result, call)                                                            \
    do {                                                                                  \
        int saved_errno = errno;                                                          \
        do { (result) = (int)(call); } while ((result) < 0 && errno == EINTR);            \
        if ((result) < 0) { (result) = -errno; }                                          \
        errno = saved_errno;                                                              \
    } while (0)

// The requested size of the send buffer; the kernel grants what its limits allow.
enum { SEND_BUFFER = 512 * 1024 };

static void prepare(int fd) {
    int saved = errno;
    int size = SEND_BUFFER;
    // Cannot fail on a Unix socket.
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    errno = saved;
}

int run_loop_message_socket(void) {
    int fd;
    RETRYING(fd, socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (fd >= 0) { prepare(fd); }
    return fd;
}

int run_loop_message_pair(int ends[2]) {
    int result;
    RETRYING(result, socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
    if (result < 0) { return result; }
    prepare(ends[0]);
    prepare(ends[1]);
    return 0;
}

void run_loop_message_tell_senders(int fd) {
    int saved = errno;
    int on = 1;
    // Cannot fail on a Unix socket.
    setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
    errno = saved;
}

static int fill(struct sockaddr_un *address, const char *path) {
    size_t length = strlen(path);
    if (length >= sizeof address->sun_path) { return -ENAMETOOLONG; }
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path, path, length + 1);
    return 0;
}

int run_loop_message_listen(int fd, const char *path) {
    struct sockaddr_un address;
    int result = fill(&address, path);
    if (result < 0) { return result; }
    // Only the listener: a connection may be gone again when it is accepted. Sends and receives pass MSG_DONTWAIT themselves.
    int on = 1;
    RETRYING(result, ioctl(fd, FIONBIO, &on));
    if (result < 0) { return result; }
    RETRYING(result, bind(fd, (const struct sockaddr *)&address, sizeof address));
    if (result < 0) { return result; }
    RETRYING(result, listen(fd, SOMAXCONN));
    return result;
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int limit_sending(int fd, int64_t timeout_ns) {
    // A send timeout of zero means no timeout, so the smallest one replaces it.
    int64_t microseconds = timeout_ns / 1000 > 0 ? timeout_ns / 1000 : 1;
    struct timeval timeout = {.tv_sec = microseconds / 1000000, .tv_usec = microseconds % 1000000};
    int result;
    RETRYING(result, setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout));
    return result;
}

int run_loop_message_connect(int fd, const char *path, int64_t timeout_ns) {
    struct sockaddr_un address;
    int result = fill(&address, path);
    if (result < 0) { return result; }
    int saved = errno;
    int64_t began = now_ns(), left = timeout_ns;
    // After a signal the kernel's timeout begins anew, so the rest of it is set each time: a profiler's timer may send one every
    // few milliseconds.
    do {
        result = limit_sending(fd, left);
        if (result == 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) { result = -errno; }
        left = timeout_ns - (now_ns() - began);
    } while (result == -EINTR && left > 0);
    errno = saved;
    return result == -EINTR ? -EAGAIN : result;
}

int run_loop_message_peer(int fd, struct run_loop_peer *peer) {
    struct ucred credentials;
    socklen_t length = sizeof credentials;
    int result;
    // Zeros would be root's.
    *peer = (struct run_loop_peer){.uid = UINT32_MAX, .gid = UINT32_MAX};
    RETRYING(result, getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length));
    if (result < 0) { return result; }
    *peer = (struct run_loop_peer){.pid = credentials.pid, .uid = credentials.uid, .gid = credentials.gid};
    return 0;
}

int run_loop_message_accept(int fd, struct run_loop_peer *peer) {
    int accepted;
    RETRYING(accepted, accept4(fd, NULL, NULL, SOCK_CLOEXEC));
    if (accepted < 0) { return accepted; }
    prepare(accepted);
    run_loop_message_peer(accepted, peer);
    return accepted;
}

int run_loop_message_send(int fd, const struct iovec *parts, int part_count, const int *descriptors, int descriptor_count) {
    int result;
    if (part_count == 1 && descriptor_count == 0) {
        // The same effect, and the kernel has less to copy.
        RETRYING(result, send(fd, parts->iov_base, parts->iov_len, MSG_DONTWAIT | MSG_NOSIGNAL));
        return result < 0 ? result : 0;
    }
    struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = (size_t)part_count};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * RUN_LOOP_MESSAGE_DESCRIPTORS)];
    if (descriptor_count > 0) {
        size_t size = sizeof(int) * (size_t)descriptor_count;
        if (descriptor_count > RUN_LOOP_MESSAGE_DESCRIPTORS) { return -EINVAL; }
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(size);
        memset(control, 0, CMSG_SPACE(size));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(size);
        memcpy(CMSG_DATA(header), descriptors, size);
    }
    RETRYING(result, sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL));
    return result < 0 ? result : 0;
}

static void take_control(struct msghdr *message, int *descriptors, int *descriptor_count, struct run_loop_peer *peer) {
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header; header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET) { continue; }
        size_t size = header->cmsg_len - CMSG_LEN(0);
        if (header->cmsg_type == SCM_RIGHTS) {
            memcpy(descriptors + *descriptor_count, CMSG_DATA(header), size);
            *descriptor_count += (int)(size / sizeof(int));
        } else if (header->cmsg_type == SCM_CREDENTIALS && size >= sizeof(struct ucred)) {
            struct ucred credentials;
            memcpy(&credentials, CMSG_DATA(header), sizeof credentials);
            *peer = (struct run_loop_peer){.pid = credentials.pid, .uid = credentials.uid, .gid = credentials.gid};
        }
    }
}

int run_loop_message_receive(
    int fd, const struct iovec *parts, int part_count, int *descriptors, int *descriptor_count, struct run_loop_peer *peer) {
    // The control buffer's size bounds the number of descriptors that the kernel installs, so `descriptors` cannot overflow.
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * RUN_LOOP_MESSAGE_DESCRIPTORS) + CMSG_SPACE(sizeof(struct ucred))];
    struct msghdr message = {
        .msg_iov = (struct iovec *)parts,
        .msg_iovlen = (size_t)part_count,
        .msg_control = control,
        .msg_controllen = sizeof control,
    };
    *descriptor_count = 0;
    int length;
    RETRYING(length, recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC));
    if (length < 0) { return length; }
    take_control(&message, descriptors, descriptor_count, peer);
    if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0) { return length; }
    int saved = errno;
    for (int index = 0; index < *descriptor_count; index++) { close(descriptors[index]); }
    errno = saved;
    *descriptor_count = 0;
    return message.msg_flags & MSG_TRUNC ? -EMSGSIZE : -EMFILE;
}

int run_loop_message_wait_writable(int fd, int64_t timeout_ns, struct pollfd *request) {
    int saved = errno;
    *request = (struct pollfd){.fd = fd, .events = POLLOUT};
    struct timespec timeout = {.tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000};
    int result = ppoll(request, 1, timeout_ns < 0 ? NULL : &timeout, NULL);
    if (result < 0) { result = -errno; }
    errno = saved;
    return result;
}
