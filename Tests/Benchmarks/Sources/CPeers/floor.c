#include "peers.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

// The minimum that every loop needs: only the kernel, and one call through a pointer.

extern int _dispatch_get_main_queue_handle_4CF(void);
extern void _dispatch_main_queue_callback_4CF(void *message);

static int make_set(void) {
    int set = epoll_create1(EPOLL_CLOEXEC);
    peer_require(set >= 0, "epoll_create1");
    return set;
}

static void watch(int set, int fd, uint32_t events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    peer_require(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
}

// MARK: - Turns

static void count_one(void *context) { ++*(uint64_t *)context; }

struct peer_outcome floor_turns(uint64_t count) {
    int *fd = peer_make_eventfds(1);
    int set = make_set();
    watch(set, fd[0], EPOLLIN | EPOLLET);
    void (*volatile callout)(void *) = count_one;
    struct peer_outcome outcome = {0};
    struct peer_time start = peer_now();
    while (outcome.done < count) {
        struct epoll_event event;
        epoll_wait(set, &event, 1, 0);
        callout(&outcome.done);
    }
    outcome.time = peer_since(start);
    close(set);
    peer_close_eventfds(fd, 1);
    return outcome;
}

// MARK: - Round trips

struct side {
    int set;
    int own;
    int other;
    uint64_t count;
};

static struct side make_side(int own, int other, uint64_t count) {
    struct side side = {.set = make_set(), .own = own, .other = other, .count = count};
    watch(side.set, own, EPOLLIN | EPOLLET);
    return side;
}

static void wait_for_edge(const struct side *side) {
    struct epoll_event event;
    while (epoll_wait(side->set, &event, 1, -1) != 1) {}
}

static void *epoll_answers(void *argument) {
    const struct side *side = argument;
    for (uint64_t i = 0; i < side->count; i++) {
        wait_for_edge(side);
        peer_post(side->other);
    }
    return NULL;
}

struct peer_outcome floor_epoll_round_trips(uint64_t count) {
    int *fds = peer_make_eventfds(2);
    struct side here = make_side(fds[0], fds[1], count), there = make_side(fds[1], fds[0], count);
    pthread_t thread;
    peer_require(pthread_create(&thread, NULL, epoll_answers, &there) == 0, "pthread_create");
    struct peer_outcome outcome = {0};
    struct peer_time start = peer_now();
    for (; outcome.done < count; outcome.done++) {
        peer_post(here.other);
        wait_for_edge(&here);
    }
    outcome.time = peer_since(start);
    pthread_join(thread, NULL);
    close(here.set);
    close(there.set);
    peer_close_eventfds(fds, 2);
    return outcome;
}

static atomic_uint ping, pong;

static void wait_beyond(atomic_uint *word, unsigned value) {
    while (atomic_load(word) == value) { syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0); }
}

static void set_and_wake(atomic_uint *word, unsigned value) {
    atomic_store(word, value);
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *futex_answers(void *argument) {
    unsigned count = (unsigned)*(uint64_t *)argument;
    for (unsigned i = 0; i < count; i++) {
        wait_beyond(&ping, i);
        set_and_wake(&pong, i + 1);
    }
    return NULL;
}

struct peer_outcome floor_futex_round_trips(uint64_t count) {
    atomic_store(&ping, 0);
    atomic_store(&pong, 0);
    pthread_t thread;
    peer_require(pthread_create(&thread, NULL, futex_answers, &count) == 0, "pthread_create");
    struct peer_outcome outcome = {0};
    struct peer_time start = peer_now();
    for (; outcome.done < count; outcome.done++) {
        set_and_wake(&ping, (unsigned)outcome.done + 1);
        wait_beyond(&pong, (unsigned)outcome.done);
    }
    outcome.time = peer_since(start);
    pthread_join(thread, NULL);
    return outcome;
}

// MARK: - The main queue

static _Bool serves;

void floor_stop_serving(void) { serves = 0; }

void floor_serve_main_queue(void) {
    int set = make_set();
    watch(set, _dispatch_get_main_queue_handle_4CF(), EPOLLIN | EPOLLET);
    for (serves = 1; serves;) {
        struct epoll_event event;
        if (epoll_wait(set, &event, 1, -1) == 1) { _dispatch_main_queue_callback_4CF(NULL); }
    }
    close(set);
}

// MARK: - Descriptors

static struct peer_outcome deliver(int set, uint64_t count, _Bool writes_again) {
    struct peer_outcome outcome = {0};
    struct epoll_event events[64];
    struct peer_time start = peer_now();
    while (outcome.done < count) {
        int ready = epoll_wait(set, events, 64, -1);
        for (int i = 0; i < ready; i++) {
            if (!peer_take(events[i].data.fd)) { continue; }
            outcome.done++;
            if (writes_again) { peer_post(events[i].data.fd); }
        }
    }
    outcome.time = peer_since(start);
    return outcome;
}

struct peer_outcome floor_one_busy(uint64_t count, uint64_t idle) {
    int *fds = peer_make_eventfds(idle + 1);
    int set = make_set();
    for (uint64_t i = 0; i <= idle; i++) { watch(set, fds[i], EPOLLIN); }
    peer_post(fds[idle / 2]);
    struct peer_outcome outcome = deliver(set, count, 1);
    close(set);
    peer_close_eventfds(fds, idle + 1);
    return outcome;
}

struct peer_outcome floor_all_busy(uint64_t count) {
    int *fds = peer_make_eventfds(count);
    int set = make_set();
    for (uint64_t i = 0; i < count; i++) {
        watch(set, fds[i], EPOLLIN);
        peer_post(fds[i]);
    }
    struct peer_outcome outcome = deliver(set, count, 0);
    close(set);
    peer_close_eventfds(fds, count);
    return outcome;
}

// MARK: - Messages

// The buffer size that a port requests: the number of messages in flight decides how often the two threads alternate.
enum { SEND_BUFFER = 512 * 1024, ROOM = 128 * 1024 };

struct end {
    int set;
    int fd;
    uint64_t count;
    uint64_t size;
    char *room;
};

static void open_pair(struct end ends[2], uint64_t count, uint64_t size) {
    int fds[2], buffer = SEND_BUFFER;
    peer_require(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0, "socketpair");
    for (int i = 0; i < 2; i++) {
        setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
        ends[i] = (struct end){.set = make_set(), .fd = fds[i], .count = count, .size = size, .room = calloc(1, ROOM)};
        peer_require(ends[i].room != NULL, "calloc");
        watch(ends[i].set, fds[i], EPOLLIN);
    }
}

static void close_pair(struct end ends[2]) {
    for (int i = 0; i < 2; i++) {
        close(ends[i].set);
        close(ends[i].fd);
        free(ends[i].room);
    }
}

static void send_one(const struct end *end) {
    peer_require(send(end->fd, end->room, end->size, MSG_NOSIGNAL) == (ssize_t)end->size, "send");
}

static void receive_one(const struct end *end) {
    struct epoll_event event;
    while (epoll_wait(end->set, &event, 1, -1) != 1) {}
    peer_require(recv(end->fd, end->room, ROOM, MSG_DONTWAIT) == (ssize_t)end->size, "recv");
}

static void *answer_all(void *argument) {
    const struct end *end = argument;
    for (uint64_t i = 0; i < end->count; i++) {
        receive_one(end);
        send_one(end);
    }
    return NULL;
}

static void *send_all(void *argument) {
    const struct end *end = argument;
    for (uint64_t i = 0; i < end->count; i++) { send_one(end); }
    return NULL;
}

struct peer_outcome floor_message_trips(uint64_t count, uint64_t size) {
    struct end ends[2];
    open_pair(ends, count, size);
    pthread_t thread;
    peer_require(pthread_create(&thread, NULL, answer_all, &ends[1]) == 0, "pthread_create");
    struct peer_outcome outcome = {0};
    struct peer_time start = peer_now();
    for (; outcome.done < count; outcome.done++) {
        send_one(&ends[0]);
        receive_one(&ends[0]);
    }
    outcome.time = peer_since(start);
    pthread_join(thread, NULL);
    close_pair(ends);
    return outcome;
}

struct peer_outcome floor_message_flood(uint64_t count, uint64_t size) {
    struct end ends[2];
    open_pair(ends, count, size);
    pthread_t thread;
    struct peer_outcome outcome = {0};
    struct peer_time start = peer_now();
    peer_require(pthread_create(&thread, NULL, send_all, &ends[1]) == 0, "pthread_create");
    for (; outcome.done < count; outcome.done++) { receive_one(&ends[0]); }
    outcome.time = peer_since(start);
    pthread_join(thread, NULL);
    close_pair(ends);
    return outcome;
}
