#include "peers.h"

#include <pthread.h>
#include <stdlib.h>

// Foundation's run loop through its C functions, which libFoundation.so exports and no header declares.

typedef struct loop *CFRunLoopRef;
typedef struct source *CFRunLoopSourceRef;
typedef struct timer *CFRunLoopTimerRef;
typedef struct observer *CFRunLoopObserverRef;
typedef const struct text *CFStringRef;

typedef struct {
    long version;
    void *info;
    const void *(*retain)(const void *);
    void (*release)(const void *);
    CFStringRef (*copyDescription)(const void *);
    unsigned char (*equal)(const void *, const void *);
    unsigned long (*hash)(const void *);
    void (*schedule)(void *, CFRunLoopRef, CFStringRef);
    void (*cancel)(void *, CFRunLoopRef, CFStringRef);
    void (*perform)(void *);
} CFRunLoopSourceContext;

typedef struct {
    long version;
    void *info;
    const void *(*retain)(const void *);
    void (*release)(const void *);
    CFStringRef (*copyDescription)(const void *);
} CFRunLoopTimerContext;

extern const CFStringRef kCFRunLoopDefaultMode;
extern CFRunLoopRef CFRunLoopGetCurrent(void);
extern CFRunLoopRef CFRunLoopGetMain(void);
extern void CFRunLoopStop(CFRunLoopRef);
extern void CFRunLoopWakeUp(CFRunLoopRef);
extern int CFRunLoopRunInMode(CFStringRef, double, unsigned char);
extern CFRunLoopSourceRef CFRunLoopSourceCreate(const void *, long, CFRunLoopSourceContext *);
extern void CFRunLoopAddSource(CFRunLoopRef, CFRunLoopSourceRef, CFStringRef);
extern void CFRunLoopSourceSignal(CFRunLoopSourceRef);
extern void CFRunLoopSourceInvalidate(CFRunLoopSourceRef);
extern CFRunLoopTimerRef CFRunLoopTimerCreate(
    const void *, double, double, unsigned long, long, void (*)(CFRunLoopTimerRef, void *), CFRunLoopTimerContext *);
extern void CFRunLoopAddTimer(CFRunLoopRef, CFRunLoopTimerRef, CFStringRef);
extern void CFRunLoopTimerInvalidate(CFRunLoopTimerRef);
extern CFRunLoopObserverRef CFRunLoopObserverCreate(
    const void *, unsigned long, unsigned char, long, void (*)(CFRunLoopObserverRef, unsigned long, void *), CFRunLoopTimerContext *);
extern void CFRunLoopAddObserver(CFRunLoopRef, CFRunLoopObserverRef, CFStringRef);
extern void CFRunLoopObserverInvalidate(CFRunLoopObserverRef);
extern double CFAbsoluteTimeGetCurrent(void);
extern void CFRelease(const void *);

struct round {
    CFRunLoopRef loop;
    CFRunLoopSourceRef source;
    uint64_t count;
    uint64_t done;
};

static const double for_ever = 1e10;

static struct peer_outcome run(struct round *round) {
    struct peer_time start = peer_now();
    CFRunLoopRunInMode(kCFRunLoopDefaultMode, for_ever, 0);
    return (struct peer_outcome){.time = peer_since(start), .done = round->done};
}

static void count_one(struct round *round) {
    if (++round->done == round->count) { CFRunLoopStop(round->loop); }
}

static CFRunLoopSourceRef add_source(void *info, void (*perform)(void *)) {
    CFRunLoopSourceContext context = {.info = info, .perform = perform};
    CFRunLoopSourceRef source = CFRunLoopSourceCreate(NULL, 0, &context);
    CFRunLoopAddSource(CFRunLoopGetCurrent(), source, kCFRunLoopDefaultMode);
    return source;
}

static void end_source(CFRunLoopSourceRef source) {
    CFRunLoopSourceInvalidate(source);
    CFRelease(source);
}

// MARK: - Turns

static void on_own_signal(void *info) {
    struct round *round = info;
    CFRunLoopSourceSignal(round->source);
    count_one(round);
}

struct peer_outcome cf_turns(uint64_t count) {
    struct round round = {.loop = CFRunLoopGetCurrent(), .count = count};
    round.source = add_source(&round, on_own_signal);
    CFRunLoopSourceSignal(round.source);
    struct peer_outcome outcome = run(&round);
    end_source(round.source);
    return outcome;
}

// MARK: - Round trips

struct side {
    struct round round;
    struct side *other;
    pthread_barrier_t *opened;
    _Bool begins;
};

static void signal_side(struct side *side) {
    CFRunLoopSourceSignal(side->round.source);
    CFRunLoopWakeUp(side->round.loop);
}

static void on_signal(void *info) {
    struct side *side = info;
    count_one(&side->round);
    if (!side->begins || side->round.done < side->round.count) { signal_side(side->other); }
}

static void open_side(struct side *side) {
    side->round.loop = CFRunLoopGetCurrent();
    side->round.source = add_source(side, on_signal);
    pthread_barrier_wait(side->opened);
}

static void *answer(void *argument) {
    struct side *side = argument;
    open_side(side);
    run(&side->round);
    // The last action of the other side may still wake this loop: both must live until then.
    pthread_barrier_wait(side->opened);
    end_source(side->round.source);
    return NULL;
}

struct peer_outcome cf_round_trips(uint64_t count) {
    pthread_barrier_t opened;
    pthread_barrier_init(&opened, NULL, 2);
    struct side here = {.round.count = count, .opened = &opened, .begins = 1};
    struct side there = {.round.count = count, .opened = &opened};
    here.other = &there;
    there.other = &here;
    pthread_t thread;
    peer_require(pthread_create(&thread, NULL, answer, &there) == 0, "pthread_create");
    open_side(&here);
    signal_side(&there);
    struct peer_outcome outcome = run(&here.round);
    pthread_barrier_wait(&opened);
    pthread_join(thread, NULL);
    end_source(here.round.source);
    pthread_barrier_destroy(&opened);
    return outcome;
}

// MARK: - The main queue

void cf_serve_main_queue(void) { CFRunLoopRunInMode(kCFRunLoopDefaultMode, for_ever, 0); }

void cf_stop_serving(void) { CFRunLoopStop(CFRunLoopGetMain()); }

// MARK: - Work from elsewhere

static void on_nothing(void *info) { (void)info; }

void *cf_open(void) {
    struct round *round = calloc(1, sizeof *round);
    peer_require(round != NULL, "calloc");
    round->loop = CFRunLoopGetCurrent();
    round->source = add_source(round, on_nothing);
    return round;
}

void cf_run(void *opened) { run(opened); }

void cf_stop(void *opened) { CFRunLoopStop(((struct round *)opened)->loop); }

void cf_wake_up(void *opened) { CFRunLoopWakeUp(((struct round *)opened)->loop); }

void cf_close(void *opened) {
    end_source(((struct round *)opened)->source);
    free(opened);
}

struct observation {
    CFRunLoopObserverRef observer;
    void (*observe)(void *);
    void *context;
};

static void on_activity(CFRunLoopObserverRef observer, unsigned long activity, void *info) {
    (void)observer;
    (void)activity;
    struct observation *observation = info;
    observation->observe(observation->context);
}

void *cf_observe(void (*observe)(void *), void *context) {
    struct observation *observation = malloc(sizeof *observation);
    peer_require(observation != NULL, "malloc");
    *observation = (struct observation){.observe = observe, .context = context};
    CFRunLoopTimerContext info = {.info = observation};
    observation->observer = CFRunLoopObserverCreate(NULL, 0x0FFFFFFF, 1, 0, on_activity, &info);
    CFRunLoopAddObserver(CFRunLoopGetCurrent(), observation->observer, kCFRunLoopDefaultMode);
    return observation;
}

void cf_end_observing(void *observer) {
    struct observation *observation = observer;
    CFRunLoopObserverInvalidate(observation->observer);
    CFRelease(observation->observer);
    free(observation);
}

// MARK: - Timers

static void on_timer(CFRunLoopTimerRef timer, void *info) {
    (void)timer;
    count_one(info);
}

static CFRunLoopTimerRef add_timer(struct round *round, double date, double interval) {
    CFRunLoopTimerContext context = {.info = round};
    CFRunLoopTimerRef timer = CFRunLoopTimerCreate(NULL, date, interval, 0, 0, on_timer, &context);
    CFRunLoopAddTimer(round->loop, timer, kCFRunLoopDefaultMode);
    return timer;
}

struct peer_outcome cf_one_shots(uint64_t count) {
    struct round round = {.loop = CFRunLoopGetCurrent(), .count = count};
    double date = CFAbsoluteTimeGetCurrent();
    struct peer_time start = peer_now();
    for (uint64_t i = 0; i < count; i++) { CFRelease(add_timer(&round, date, 0)); }
    run(&round);
    return (struct peer_outcome){.time = peer_since(start), .done = round.done};
}

struct peer_outcome cf_random_timers(uint64_t count) {
    uint64_t *delays = malloc(count * sizeof *delays);
    CFRunLoopTimerRef *timers = malloc(count * sizeof *timers);
    peer_require(delays != NULL && timers != NULL, "malloc");
    peer_random_delays(delays, count);
    struct round round = {.loop = CFRunLoopGetCurrent(), .count = count};
    double date = CFAbsoluteTimeGetCurrent();
    struct peer_time start = peer_now();
    for (uint64_t i = 0; i < count; i++) { timers[i] = add_timer(&round, date + (double)delays[i] / 1000, 0); }
    for (uint64_t i = 0; i < count; i += 2) {
        CFRunLoopTimerInvalidate(timers[i]);
        round.done++;
    }
    for (uint64_t i = 0; i < count; i++) { CFRelease(timers[i]); }
    struct peer_time middle = peer_now();
    peer_sleep_until_due();
    struct peer_outcome outcome = run(&round);
    outcome.time = peer_sum(outcome.time, peer_between(start, middle));
    free(timers);
    free(delays);
    return outcome;
}

struct fires {
    uint64_t count;
    uint64_t idle;
    struct peer_outcome outcome;
};

static void fire(void *context) {
    struct fires *fires = context;
    struct round round = {.loop = CFRunLoopGetCurrent(), .count = fires->count};
    double date = CFAbsoluteTimeGetCurrent();
    for (uint64_t i = 0; i < fires->idle; i++) { CFRelease(add_timer(&round, date + 3600 + (double)i, 0)); }
    CFRelease(add_timer(&round, date, 1e-6));
    fires->outcome = run(&round);
}

// Runs on a separate thread, whose end frees the timers: removing them one by one takes minutes.
struct peer_outcome cf_fires(uint64_t count, uint64_t idle) {
    struct fires fires = {.count = count, .idle = idle};
    peer_run_on_thread(fire, &fires);
    return fires.outcome;
}
