/// An event loop that stalls on command, one line each on standard input, and
/// prints when: a substitute for a server that is not prepared in any way.
///
///     NAME MS         stalls in this way for MS, and prints DID NAME BEGIN END (CLOCK_MONOTONIC, ns)
///     lock MS         stalls for MS in a mutex that another thread holds meanwhile, and prints the same
///     call NAME MS    one of the blocking calls of calls.c; prints DID NAME BEGIN END WHOLE or CUT
///     leave MS        ends the loop, closes its set, does something else for MS, and runs a loop again; prints the same
///     mix MS          rests for 10 ms and stalls for MS, in each way one after the other, until `mix 0`
///     long MS         for MS, turns of 150 ms, one after the other; prints the same
///     listen          accepts from now on; prints PORT NUMBER
///     counts          prints COUNTS TURNS CUT; CUT is the number of calls that returned early, including failed waits
///     spawn           starts a child that does the same without input, prints CHILD PID
///     urged MS        for MS, turns of 1 ms that wait at the place of the rest for a descriptor that is ready; starts a second thread in the first turn
///     hide            from the next SIGUSR1 on, no other process of its user may read it
///     headless        ends the first thread, if the loop runs on another one (`sample-target beside`); prints HEADLESS
///     exec MS         executes this program again, which computes for MS before its loop; prints READY then
///     move            from now on in another loop within this turn, on another set; prints READY
///     exit STATUS
#include "target.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static int set, listener = -1;
/// Waits in poll, on the set and on the listener itself, which is not in the set then.
static bool polls;
/// Not negative: waits in poll as GLib's loop does with a timer, for its input, this eventfd and a tenth of a second.
static int waker = -1;
static unsigned long turns, cut;
static volatile uint64_t sum;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void watch_input(int file) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = file};
    epoll_ctl(set, EPOLL_CTL_ADD, file, &event);
}

// Ways to stall. Each is a separate function, whose name appears on the stack.

__attribute__((noinline)) static void compute_until(uint64_t end) {
    while (now_ns() < end)
        for (int i = 0; i < 1000; i++)
            sum = sum * 31 + (uint64_t)i;
}

__attribute__((noinline)) static void sleep_until(uint64_t end) {
    struct timespec time = {(time_t)(end / 1000000000), (long)(end % 1000000000)};
    cut += clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) != 0;
}

__attribute__((noinline)) static void sleep_shortly_until(uint64_t end) {
    while (now_ns() < end)
        sleep_until(now_ns() + 5000000);
}

/// Calls that do not block.
__attribute__((noinline)) static void call_until(uint64_t end) {
    char byte;
    int file = open("/proc/self/cmdline", O_RDONLY);
    while (now_ns() < end)
        sum += (uint64_t)pread(file, &byte, 1, 0);
    close(file);
}

__attribute__((noinline)) static void turn_inner_loop_until(uint64_t end) {
    int inner = epoll_create1(0);
    struct epoll_event event;
    while (now_ns() < end)
        cut += epoll_wait(inner, &event, 1, 5) < 0;
    close(inner);
}

__attribute__((noinline)) static void poll_without_waiting_until(uint64_t end) {
    struct epoll_event event;
    int inner = epoll_create1(0);
    while (now_ns() < end)
        epoll_wait(inner, &event, 1, 0);
    close(inner);
}

/// One of many callbacks of a turn.
__attribute__((noinline)) static void run_callback(void) { compute_until(now_ns() + 1000000); }
static unsigned long callbacks;

// A lock.

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t held_until;

__attribute__((noinline)) static void *hold_lock(void *held) {
    prctl(PR_SET_NAME, "holder");
    pthread_mutex_lock(&lock);
    sem_post(held);
    sleep_until(held_until);
    pthread_mutex_unlock(&lock);
    return held;
}

__attribute__((noinline)) static void wait_for_lock_until(uint64_t end) {
    sem_t held;
    pthread_t holder;
    sem_init(&held, 0, 0);
    held_until = end;
    pthread_create(&holder, NULL, hold_lock, &held);
    while (sem_wait(&held) != 0)
        continue;
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    pthread_join(holder, NULL);
}

// Code generated at run time, with names for perf.

static uint64_t made_until;
static void compute_for_made(void) { compute_until(made_until); }

/// Calls its argument, with a frame of its own.
#if defined(__x86_64__)
static const unsigned char call_argument[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
#elif defined(__aarch64__)
static const uint32_t call_argument[] = {0xa9bf7bfd, 0x910003fd, 0xd63f0000, 0xa8c17bfd, 0xd65f03c0};
#endif

__attribute__((noinline)) static void run_made_code_until(uint64_t end) {
    static void (*made)(void (*)(void));
    if (!made) {
        char path[64];
        void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memcpy(code, call_argument, sizeof call_argument);
        mprotect(code, 4096, PROT_READ | PROT_EXEC);
        __builtin___clear_cache((char *)code, (char *)code + 4096);
        snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
        FILE *map = fopen(path, "w");
        fprintf(map, "%lx 1000 of old code\nno line at all\n%lx %zx JS:*made at run time\n", (unsigned long)code,
                (unsigned long)code, sizeof call_argument);
        fclose(map);
        memcpy(&made, &code, sizeof code);
    }
    made_until = end;
    made(compute_for_made);
    sum++;  // no tail call
}

/// No stall: meanwhile there is no loop.
__attribute__((noinline)) static void leave_loop_until(uint64_t end) {
    close(set);
    sleep_until(end);
    set = epoll_create1(EPOLL_CLOEXEC);
    watch_input(STDIN_FILENO);
}

static const struct { const char *name; void (*stall)(uint64_t end); } stalls[] = {
    {"compute", compute_until},           {"sleep", sleep_until},
    {"short", sleep_shortly_until},       {"calls", call_until},
    {"made", run_made_code_until},        {"nested", turn_inner_loop_until},    {"poll0", poll_without_waiting_until},
    {"lock", wait_for_lock_until},        {"leave", leave_loop_until},
};

// Busy turns that are not stalls.

/// The work done in each turn, and its end time.
static struct { uint64_t end, each, begin; const char *name; } busy;

/// A descriptor that is ready in each turn; -1 for none.
static int urge = -1;

static void go_on_being_busy(void) {
    if (busy.each)
        compute_until(now_ns() + busy.each);
    if (now_ns() < busy.end)
        return;
    printf("DID %s %llu %llu\n", busy.name, (unsigned long long)busy.begin, (unsigned long long)now_ns());
    busy.end = 0;
    if (urge >= 0)
        close(urge);
    urge = -1;
}

static void be_busy(const char *name, uint64_t length, uint64_t each) {
    uint64_t begin = now_ns();
    busy.begin = begin, busy.end = begin + length, busy.each = each, busy.name = name;
}

/// Waits in poll without a timeout, as a client does.
static void *poll_on(void *context) {
    int ends[2];
    prctl(PR_SET_NAME, "poller");
    if (pipe(ends) != 0)
        abort();
    struct pollfd wanted = {ends[0], POLLIN, 0};
    poll(&wanted, 1, -1);
    return context;
}

static void be_urged(uint64_t length) {
    static pthread_t second;
    if (!second)
        pthread_create(&second, NULL, poll_on, NULL);
    urge = eventfd(1, EFD_CLOEXEC);
    watch_input(urge);
    be_busy("urged", length, 1000000);
}

/// The duration of each stall when all ways are used in turn, in nanoseconds. 0: off.
static uint64_t mixed;

static void stall_in_next_way(void) {
    static size_t next;
    size_t way = next++ % (sizeof stalls / sizeof *stalls);
    // The names of generated code would outlive it, a second thread changes how the first one waits, and to leave is no stall.
    if (stalls[way].stall != run_made_code_until && stalls[way].stall != wait_for_lock_until && stalls[way].stall != leave_loop_until)
        stalls[way].stall(now_ns() + mixed);
}

// Commands.

static void spawn(void) {
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(0);
        // The child stalls now and then, without commands.
        struct epoll_event event;
        set = epoll_create1(EPOLL_CLOEXEC);
        for (;;) {
            for (int i = 0; i < 6; i++)
                epoll_wait(set, &event, 1, 100);
            sleep_until(now_ns() + 400000000);
        }
    }
    printf("CHILD %d\n", child);
}

static void start_listening(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    bind(listener, (struct sockaddr *)&address, length);
    listen(listener, 128);
    getsockname(listener, (struct sockaddr *)&address, &length);
    if (!polls)
        watch_input(listener);
    printf("PORT %d\n", ntohs(address.sin_port));
}

/// Echoes the input.
static void serve(int file) {
    char bytes[4096];
    ssize_t count = read(file, bytes, sizeof bytes);
    if (count <= 0 || write(file, bytes, (size_t)count) != count)
        close(file);
}

static void stall(const char *name, unsigned long length) {
    uint64_t begin = now_ns(), ms = 1000000;
    if (strcmp(name, "mix") == 0)
        mixed = length * ms;
    if (strcmp(name, "turn") == 0)
        callbacks = length;
    if (strcmp(name, "turns") == 0)
        return be_busy("turns", length * ms, ms);
    if (strcmp(name, "long") == 0)
        return be_busy("long", length * ms, 150 * ms);
    if (strcmp(name, "spin") == 0)
        return be_busy("spin", length * ms, 0);
    if (strcmp(name, "urged") == 0)
        return be_urged(length * ms);
    for (size_t i = 0; i < sizeof stalls / sizeof *stalls; i++) {
        if (strcmp(stalls[i].name, name) != 0)
            continue;
        stalls[i].stall(begin + length * ms);
        printf("DID %s %llu %llu\n", name, (unsigned long long)begin, (unsigned long long)now_ns());
    }
}

static void block(const char *name, unsigned long length) {
    uint64_t begin = now_ns();
    bool is_whole = make_one_call(name, (double)length / 1000);
    cut += !is_whole;
    printf("DID %s %llu %llu %s\n", name, (unsigned long long)begin, (unsigned long long)now_ns(), is_whole ? "WHOLE" : "CUT");
}

static int turn_loop(void);
static sem_t first_ends;

static void *turn_beside(void *context) {
    turn_loop();
    return context;
}

int turn_loop_beside(void) {
    pthread_t thread;
    sem_init(&first_ends, 0, 0);
    pthread_create(&thread, NULL, turn_beside, NULL);
    while (sem_wait(&first_ends) != 0)
        continue;
    pthread_exit(NULL);
}

static void end_first_thread(void) {
    sem_post(&first_ends);
    puts("HEADLESS");
}

int turn_loop_that_polls(void) {
    polls = true;
    return turn_loop();
}

int turn_loop_with_timer(void) {
    waker = eventfd(0, EFD_CLOEXEC);
    return turn_loop_that_polls();
}

int turn_loop_after(unsigned long ms) {
    compute_until(now_ns() + ms * 1000000);
    return turn_loop();
}

/// Another loop, nested in the first one: from now on it serves everything that the first one served.
__attribute__((noinline)) static void turn_deeper_loop(void) {
    volatile char room[256];
    room[0] = 0;
    turn_loop();
    sum += (uint64_t)room[0];  // no tail call
}

static void run_anew(unsigned long ms) {
    char text[24];
    snprintf(text, sizeof text, "%lu", ms);
    execl("/proc/self/exe", "sample-target", "loop", text, (char *)NULL);
}

static void *hide(void *signals) {
    int number;
    sigwait(signals, &number);
    prctl(PR_SET_DUMPABLE, 0);
    return NULL;
}

static void prepare_to_hide(void) {
    static sigset_t signals;
    pthread_t thread;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    pthread_create(&thread, NULL, hide, &signals);
    pthread_detach(thread);
}

static void obey(char *line) {
    char name[32] = "";
    unsigned long number = 0;
    if (strncmp(line, "call ", 5) == 0 && sscanf(line, "call %31s %lu", name, &number) == 2)
        block(name, number);
    else if (strcmp(line, "listen") == 0)
        start_listening();
    else if (strcmp(line, "counts") == 0)
        printf("COUNTS %lu %lu\n", turns, cut);
    else if (strcmp(line, "headless") == 0)
        end_first_thread();
    else if (strcmp(line, "hide") == 0)
        prepare_to_hide();
    else if (strcmp(line, "spawn") == 0)
        spawn();
    else if (sscanf(line, "exec %lu", &number) == 1)
        run_anew(number);
    else if (strcmp(line, "move") == 0)
        turn_deeper_loop();
    else if (sscanf(line, "exit %lu", &number) == 1)
        exit((int)number);
    else if (sscanf(line, "%31s %lu", name, &number) == 2)
        stall(name, number);
}

/// Reads whole lines: commands are short and written at once, so the pipe never splits one.
static void read_commands(void) {
    char bytes[4096], *rest = bytes;
    ssize_t count = read(STDIN_FILENO, bytes, sizeof bytes - 1);
    if (count <= 0)
        exit(0);
    bytes[count] = 0;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;)
        obey(line);
}

/// Like a loop that calls the callbacks of ready events one after the other, in its own frame.
__attribute__((always_inline)) static inline void run_callbacks(uint64_t begin) {
    for (; callbacks > 0; callbacks--)
        run_callback();
    printf("DID turn %llu %llu\n", (unsigned long long)begin, (unsigned long long)now_ns());
}

static void dispatch(int file) {
    if (file == STDIN_FILENO)
        read_commands();
    else if (file == urge)
        return;
    else if (file == listener)
        watch_input(accept4(listener, NULL, NULL, SOCK_NONBLOCK));
    else
        serve(file);
}

/// As in a loop that polls a few descriptors, the set among them.
static void wait_in_poll(void) {
    bool has_timer = waker >= 0;
    struct pollfd polled[2] = {{has_timer ? STDIN_FILENO : set, POLLIN, 0}, {has_timer ? waker : listener, POLLIN, 0}};
    poll(polled, 2, has_timer ? 100 : -1);
    if (polled[1].revents)
        dispatch(listener);
}

__attribute__((noinline)) static void turn_once(void) {
    struct epoll_event events[16];
    int count;
    if (polls)
        wait_in_poll();
    // Polls at one place and waits at another, like SwiftNIO. The statement in between keeps the compiler from merging the two calls.
    if (polls || (busy.end && urge < 0)) {
        count = epoll_wait(set, events, 16, 0);
        __asm__ volatile("");
    } else {
        count = epoll_wait(set, events, 16, mixed ? 10 : -1);
    }
    cut += count < 0;
    turns++;
    for (int i = 0; i < count; i++)
        dispatch(events[i].data.fd);
    if (callbacks)
        run_callbacks(now_ns());
    if (mixed)
        stall_in_next_way();
    if (busy.end)
        go_on_being_busy();
    fflush(stdout);
}

static int turn_loop(void) {
    set = epoll_create1(EPOLL_CLOEXEC);
    watch_input(STDIN_FILENO);
    puts("READY");
    fflush(stdout);
    for (;;)
        turn_once();
}
