// Threads that run Foundation's loop, with the hooks. What the loop publishes at the end of a run must not depend on where on the stack it was found.
// Prints each failure on a line, and DONE at the end. Compiled by a test.

#include "CLoopHooks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

// CoreFoundation's functions, which have no header in Swift's toolchain.
extern void *CFStringCreateWithCString(void *, const char *, unsigned);
extern double CFAbsoluteTimeGetCurrent(void);
extern void *CFRunLoopTimerCreate(void *, double, double, unsigned long, long, void (*)(void *, void *), void *);
extern void *CFRunLoopGetCurrent(void);
extern void CFRunLoopAddTimer(void *, void *, void *);
extern void CFRunLoopStop(void *);
extern int CFRunLoopRunInMode(void *, double, unsigned char);

enum { ATTEMPTS = 1000, RUNS = 4 };
static void *mode;

/// What the thread's loop has published last.
static _Thread_local enum { NOTHING, REST, LEAVE, TURN } last;

static void rest(void *heartbeat) { last = REST; }
static void leave(void *heartbeat) { last = LEAVE; }
static void turn(void *heartbeat) { last = TURN; }
static void end(void *heartbeat) {}
static const loop_hooks_publisher publisher = {rest, leave, turn, end};

static void *bind_all(void *unused) {
    for (;;) {
        uint32_t cursor = 0;
        loop_hooks_found found;
        while (loop_hooks_next(&cursor, &found)) loop_hooks_bind(found.number, &publisher, mode);
        loop_hooks_wait();
    }
}

/// Runs the loop until its timer has fired, after 10 ms.
static void run(void (*fired)(void *, void *)) {
    void *timer = CFRunLoopTimerCreate(NULL, CFAbsoluteTimeGetCurrent() + 0.01, 0, 0, 0, fired, NULL);
    CFRunLoopAddTimer(CFRunLoopGetCurrent(), timer, mode);
    CFRunLoopRunInMode(mode, 600, 0);
}

static void stop(void *timer, void *context) { CFRunLoopStop(CFRunLoopGetCurrent()); }

static __attribute__((noinline)) void run_deeper(void) {
    char room[8192];
    __asm__ volatile("" : : "r"(room) : "memory");  // the compiler keeps it
    run(stop);
    __asm__ volatile("" : : "r"(room) : "memory");
}

/// The loop is found in runs near the base of the stack; later ones are deeper.
static void *deeper(void *unused) {
    for (int i = 0; i < ATTEMPTS && last != REST; i++) run(stop);
    if (last != REST) puts("a loop that has run is not at rest");
    for (int i = 0; i < RUNS; i++) {
        run_deeper();
        if (last != REST) puts("a loop that has run deeper on the stack is not at rest");
    }
    return NULL;
}

static _Thread_local bool was_known, rests_in_callout;

/// A callout that runs the loop again, and goes on.
static void run_again(void *timer, void *context) {
    was_known = last != NOTHING;
    run(stop);
    rests_in_callout = was_known && last == REST;
    stop(timer, context);
}

/// The loop is found in a run within a callout of another one.
static void *nested(void *unused) {
    int runs = 0;
    for (int i = 0; i < ATTEMPTS && runs < RUNS; i++) {
        run(run_again);
        if (rests_in_callout) puts("a loop is at rest in a callout, after a nested run");
        runs += was_known;
    }
    if (runs < RUNS) puts("the loop was not found");
    return NULL;
}

int main(void) {
    pthread_t thread;
    mode = CFStringCreateWithCString(NULL, "kCFRunLoopDefaultMode", 0x08000100);
    pthread_create(&thread, NULL, bind_all, NULL);
    pthread_create(&thread, NULL, deeper, NULL);
    pthread_join(thread, NULL);
    pthread_create(&thread, NULL, nested, NULL);
    pthread_join(thread, NULL);
    puts("DONE");
    return 0;
}
