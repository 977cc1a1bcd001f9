#include "CEventLoops.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct event_loop {
    event_wait wait;
    char name[16];
    pthread_t thread;
    int32_t id;
    int set, waker, listener, channel[2], waits;
    sem_t turned;
    pthread_mutex_t lock;
    event_job job;
    void *context;
    /// Clients wait to be accepted. The loop, which accepts none, leaves the socket out of its wait then: one that stays readable would let it
    /// turn without a rest, on a whole processor.
    bool has_clients;
    atomic_bool ends;
};

static void check(int result) {
    if (result < 0) abort();
}

// MARK: A loop

static void wake(event_loop *loop) {
    uint64_t one = 1;
    check((int)write(loop->waker, &one, sizeof one));
    check((int)write(loop->channel[1], "x", 1));
}

static void settle(event_loop *loop) {
    uint64_t count;
    char bytes[64];
    (void)!read(loop->waker, &count, sizeof count);
    (void)!read(loop->channel[0], bytes, sizeof bytes);
}

static void wait_in_select(event_loop *loop) {
    fd_set readable;
    FD_ZERO(&readable);
    if (!loop->has_clients) FD_SET(loop->listener, &readable);
    FD_SET(loop->channel[0], &readable);
    int highest = loop->listener > loop->channel[0] ? loop->listener : loop->channel[0];
    if (select(highest + 1, &readable, NULL, NULL, NULL) > 0 && FD_ISSET(loop->listener, &readable)) loop->has_clients = true;
}

static void wait_in_poll(event_loop *loop) {
    struct pollfd polled[2] = {{.fd = loop->waker, .events = POLLIN}, {.fd = loop->has_clients ? -1 : loop->listener, .events = POLLIN}};
    poll(polled, 2, -1);
    if (polled[1].revents) loop->has_clients = true;
}

/// On an eventfd and seven other descriptors, with a timeout.
static void wait_for_many(event_loop *loop) {
    struct pollfd polled[8] = {{.fd = loop->waker, .events = POLLIN}};
    for (int i = 1; i < 8; i++) polled[i] = (struct pollfd){.fd = loop->channel[0], .events = POLLIN};
    poll(polled, 8, 3600000);
}

static void wait_with_timer(event_loop *loop) {
    struct pollfd polled[2] = {{.fd = loop->waker, .events = POLLIN}, {.fd = loop->channel[0], .events = POLLIN}};
    poll(polled, 2, ++loop->waits == 4 ? -1 : 3600000);
}

static __attribute__((noinline)) int wait_below(event_loop *loop, int calls) {
    if (calls > 0) return wait_below(loop, calls - 1) + 1;
    struct pollfd polled = {.fd = loop->set, .events = POLLIN};
    return poll(&polled, 1, -1);
}

/// A client's blocking call, in each turn.
static __attribute__((noinline)) void ask_in_turn(event_loop *loop) {
    struct pollfd polled = {.fd = loop->channel[1], .events = POLLOUT};
    poll(&polled, 1, -1);
}

/// One turn's wait. Not inlined: it has a frame below the loop, as in the libraries.
static __attribute__((noinline)) void wait_once(event_loop *loop) {
    struct epoll_event events[8];
    struct timespec hour = {.tv_sec = 3600};
    switch (loop->wait) {
        case EVENT_EPOLL:
        case EVENT_ASKING: epoll_wait(loop->set, events, 8, -1); break;
        case EVENT_MANY: wait_for_many(loop); break;
        case EVENT_PWAIT2: epoll_pwait2(loop->set, events, 8, &hour, NULL); break;
        case EVENT_POLL: wait_in_poll(loop); break;
        case EVENT_SELECT: wait_in_select(loop); break;
        case EVENT_TIMED: wait_with_timer(loop); break;
        case EVENT_HEIGHTS: wait_below(loop, loop->waits++ % 3); break;
        case EVENT_REFUSED:
            epoll_wait(-1, events, 8, -1);
            usleep(1000);
            break;
        case EVENT_POLLING: epoll_wait(loop->set, events, 8, 0); break;
    }
}

static void *run(void *context) {
    event_loop *loop = context;
    loop->id = (int32_t)syscall(SYS_gettid);
    pthread_setname_np(pthread_self(), loop->name);
    while (!loop->ends) {
        sem_post(&loop->turned);
        wait_once(loop);
        settle(loop);
        if (loop->wait == EVENT_ASKING) ask_in_turn(loop);
        pthread_mutex_lock(&loop->lock);
        event_job job = loop->job;
        loop->job = NULL;
        pthread_mutex_unlock(&loop->lock);
        if (job) job(loop->context);
    }
    return NULL;
}

int event_loop_listener(event_loop *loop) { return loop->listener; }

void event_connect(int listener, int count) {
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    check(getsockname(listener, (struct sockaddr *)&address, &length));
    for (int i = 0; i < count; i++) check(connect(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), (struct sockaddr *)&address, length));
}

static int listening_socket(void) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    check(bind(listener, (struct sockaddr *)&address, sizeof address));
    check(listen(listener, 16));
    return listener;
}

/// Gives the set the number of another loop's set, which is closed.
static void take_number(event_loop *loop, event_loop *other) {
    int number = other->set;
    check(dup3(loop->set, number, O_CLOEXEC));
    close(loop->set);
    loop->set = number;
    other->set = -1;
}

static event_loop *start(const char *name, event_wait wait, event_loop *other) {
    event_loop *loop = calloc(1, sizeof *loop);
    if (!loop) abort();
    loop->wait = wait;
    strncpy(loop->name, name, sizeof loop->name - 1);
    loop->set = epoll_create1(EPOLL_CLOEXEC);
    if (other) take_number(loop, other);
    loop->waker = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    loop->listener = listening_socket();
    check(pipe2(loop->channel, O_CLOEXEC | O_NONBLOCK));
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 1};
    check(epoll_ctl(loop->set, EPOLL_CTL_ADD, loop->waker, &event));
    sem_init(&loop->turned, 0, 0);
    pthread_mutex_init(&loop->lock, NULL);
    if (pthread_create(&loop->thread, NULL, run, loop) != 0) abort();
    sem_wait(&loop->turned);
    wake(loop);
    sem_wait(&loop->turned);
    // Its wait follows, and only there it is found. Loops that are started one after the other are found in that order.
    while (wait != EVENT_POLLING && !event_sleeps(loop->id)) usleep(100);
    return loop;
}

event_loop *event_loop_start(const char *name, event_wait wait) { return start(name, wait, NULL); }

event_loop *event_loop_start_in_place(const char *name, event_loop *other) { return start(name, EVENT_EPOLL, other); }

void event_loop_run(event_loop *loop, event_job job, void *context) {
    pthread_mutex_lock(&loop->lock);
    loop->context = context;
    loop->job = job;
    pthread_mutex_unlock(&loop->lock);
    wake(loop);
}

bool event_loop_has_job(event_loop *loop) {
    pthread_mutex_lock(&loop->lock);
    bool has_job = loop->job != NULL;
    pthread_mutex_unlock(&loop->lock);
    return has_job;
}

void event_loop_end(event_loop *loop) {
    loop->ends = true;
    wake(loop);
    pthread_join(loop->thread, NULL);
    if (loop->set >= 0) close(loop->set);
    close(loop->waker);
    close(loop->listener);
    close(loop->channel[0]);
    close(loop->channel[1]);
    free(loop);
}

int32_t event_loop_thread(event_loop *loop) { return loop->id; }

// MARK: A loop that starts before the program

static void report_turn(void *context) { sem_post(context); }

static event_loop *early;
event_loop *event_early_loop(void) { return early; }

/// If the program's second argument is `early`: runs before the program's own constructors, as a library's constructor does.
__attribute__((constructor(100))) static void start_early(int count, char **arguments) {
    if (count < 3 || strcmp(arguments[2], "early") != 0) return;
    static sem_t turned;
    sem_init(&turned, 0, 0);
    early = event_loop_start("early", EVENT_EPOLL);
    for (int i = 0; i < 3; i++) {
        event_loop_run(early, report_turn, &turned);
        sem_wait(&turned);
    }
}

// MARK: Waits outside of a loop

void event_nested_loop(int count, int milliseconds) {
    int set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event;
    for (int i = 0; i < count; i++) epoll_wait(set, &event, 1, milliseconds);
    close(set);
}

struct answer {
    int socket, milliseconds;
};

static void *answer(void *context) {
    struct answer *answer = context;
    char byte;
    (void)!read(answer->socket, &byte, 1);
    usleep((useconds_t)answer->milliseconds * 1000);
    check((int)write(answer->socket, "x", 1));
    return NULL;
}

void event_ask(int milliseconds) {
    int ends[2];
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
    struct answer asked = {.socket = ends[1], .milliseconds = milliseconds};
    pthread_t peer;
    if (pthread_create(&peer, NULL, answer, &asked) != 0) abort();
    check((int)write(ends[0], "?", 1));
    struct pollfd polled = {.fd = ends[0], .events = POLLIN};
    while (poll(&polled, 1, -1) < 0 && errno == EINTR) {}
    pthread_join(peer, NULL);
    close(ends[0]);
    close(ends[1]);
}

void event_probe(int port) {
    static const char request[] = "GET /health HTTP/1.1\r\nHost: a\r\n\r\n";
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    char answer[512];
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check(connect(client, (struct sockaddr *)&address, sizeof address));
    check((int)write(client, request, sizeof request - 1));
    check((int)read(client, answer, sizeof answer));
    close(client);
}
