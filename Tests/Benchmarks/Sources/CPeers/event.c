#include "peers.h"

#include <event2/event.h>
#include <event2/thread.h>
#include <pthread.h>
#include <stdlib.h>

// libevent. A separate base for each round, with locks, as for use from several threads.

struct round {
    struct event_base *base;
    uint64_t count;
    uint64_t done;
};

__attribute__((constructor)) static void use_threads(void) { evthread_use_pthreads(); }

// The base polls after each callback, so that a turn includes a poll: otherwise an event that activates itself prevents polling.
static struct round make_polling_round(uint64_t count) {
    struct event_config *config = event_config_new();
    event_config_set_max_dispatch_interval(config, NULL, 1, 0);
    struct round round = {.base = event_base_new_with_config(config), .count = count};
    event_config_free(config);
    peer_require(round.base != NULL, "event_base_new_with_config");
    return round;
}

static struct round make_round(uint64_t count) {
    struct round round = {.base = event_base_new(), .count = count};
    peer_require(round.base != NULL, "event_base_new");
    return round;
}

static struct peer_outcome run(struct round *round) {
    struct peer_time start = peer_now();
    event_base_loop(round->base, EVLOOP_NO_EXIT_ON_EMPTY);
    return (struct peer_outcome){.time = peer_since(start), .done = round->done};
}

static _Bool count_one(struct round *round) {
    if (++round->done < round->count) { return 1; }
    event_base_loopbreak(round->base);
    return 0;
}

// MARK: - Turns

struct own {
    struct round round;
    struct event *event;
};

static void on_active(evutil_socket_t fd, short what, void *data) {
    (void)fd;
    (void)what;
    struct own *own = data;
    if (count_one(&own->round)) { event_active(own->event, EV_READ, 0); }
}

struct peer_outcome event_turns(uint64_t count) {
    struct own own = {.round = make_polling_round(count)};
    own.event = event_new(own.round.base, -1, EV_PERSIST, on_active, &own);
    event_active(own.event, EV_READ, 0);
    struct peer_outcome outcome = run(&own.round);
    event_free(own.event);
    event_base_free(own.round.base);
    return outcome;
}

// MARK: - Round trips

struct side {
    struct round round;
    struct event *event;
    struct side *other;
    _Bool begins;
};

static void on_side(evutil_socket_t fd, short what, void *data) {
    (void)fd;
    (void)what;
    struct side *side = data;
    if (count_one(&side->round) || !side->begins) { event_active(side->other->event, EV_READ, 0); }
}

static void open_side(struct side *side, struct side *other, uint64_t count, _Bool begins) {
    side->round = make_round(count);
    side->other = other;
    side->begins = begins;
    side->event = event_new(side->round.base, -1, EV_PERSIST, on_side, side);
}

static void *answer(void *argument) {
    run(&((struct side *)argument)->round);
    return NULL;
}

struct peer_outcome event_round_trips(uint64_t count) {
    struct side here, there;
    open_side(&here, &there, count, 1);
    open_side(&there, &here, count, 0);
    pthread_t thread;
    peer_require(pthread_create(&thread, NULL, answer, &there) == 0, "pthread_create");
    event_active(there.event, EV_READ, 0);
    struct peer_outcome outcome = run(&here.round);
    pthread_join(thread, NULL);
    event_free(here.event);
    event_free(there.event);
    event_base_free(here.round.base);
    event_base_free(there.round.base);
    return outcome;
}

// MARK: - Timers

struct timer {
    struct round *round;
    struct event *event;
};

static void on_one_shot(evutil_socket_t fd, short what, void *data) {
    (void)fd;
    (void)what;
    struct timer *timer = data;
    struct round *round = timer->round;
    event_free(timer->event);
    free(timer);
    count_one(round);
}

static struct timer *add_timer(struct round *round, uint64_t delay_ms) {
    struct timer *timer = malloc(sizeof *timer);
    peer_require(timer != NULL, "malloc");
    *timer = (struct timer){.round = round, .event = event_new(round->base, -1, 0, on_one_shot, timer)};
    struct timeval delay = {.tv_sec = (time_t)(delay_ms / 1000), .tv_usec = (suseconds_t)(delay_ms % 1000 * 1000)};
    event_add(timer->event, &delay);
    return timer;
}

static void cancel(struct timer *timer) {
    event_free(timer->event);
    free(timer);
}

struct peer_outcome event_one_shots(uint64_t count) {
    struct round round = make_round(count);
    struct peer_time start = peer_now();
    for (uint64_t i = 0; i < count; i++) { add_timer(&round, 0); }
    run(&round);
    struct peer_outcome outcome = {.time = peer_since(start), .done = round.done};
    event_base_free(round.base);
    return outcome;
}

struct peer_outcome event_random_timers(uint64_t count) {
    uint64_t *delays = malloc(count * sizeof *delays);
    struct timer **timers = malloc(count * sizeof *timers);
    peer_require(delays != NULL && timers != NULL, "malloc");
    peer_random_delays(delays, count);
    struct round round = make_round(count);
    struct peer_time start = peer_now();
    for (uint64_t i = 0; i < count; i++) { timers[i] = add_timer(&round, delays[i]); }
    for (uint64_t i = 0; i < count; i += 2) {
        cancel(timers[i]);
        round.done++;
    }
    struct peer_time middle = peer_now();
    peer_sleep_until_due();
    struct peer_outcome outcome = run(&round);
    outcome.time = peer_sum(outcome.time, peer_between(start, middle));
    event_base_free(round.base);
    free(timers);
    free(delays);
    return outcome;
}

static const struct timeval at_once;

static void on_fire(evutil_socket_t fd, short what, void *data) {
    (void)fd;
    (void)what;
    struct own *own = data;
    if (count_one(&own->round)) { event_add(own->event, &at_once); }
}

struct peer_outcome event_fires(uint64_t count, uint64_t idle) {
    struct own own = {.round = make_round(count)};
    struct timer **timers = malloc(idle * sizeof *timers + 1);
    peer_require(timers != NULL, "malloc");
    for (uint64_t i = 0; i < idle; i++) { timers[i] = add_timer(&own.round, 3600000 + i); }
    own.event = event_new(own.round.base, -1, 0, on_fire, &own);
    event_add(own.event, &at_once);
    struct peer_outcome outcome = run(&own.round);
    event_free(own.event);
    for (uint64_t i = 0; i < idle; i++) { cancel(timers[i]); }
    event_base_free(own.round.base);
    free(timers);
    return outcome;
}

// MARK: - Descriptors

static void on_readable(evutil_socket_t fd, short what, void *data) {
    (void)what;
    if (peer_take(fd)) { count_one(data); }
}

static void on_readable_again(evutil_socket_t fd, short what, void *data) {
    (void)what;
    if (!peer_take(fd)) { return; }
    count_one(data);
    peer_post(fd);
}

static struct peer_outcome deliver(uint64_t count, uint64_t descriptors, uint64_t from, uint64_t to, event_callback_fn handler) {
    struct round round = make_round(count);
    int *fds = peer_make_eventfds(descriptors);
    struct event **events = malloc(descriptors * sizeof *events);
    peer_require(events != NULL, "malloc");
    for (uint64_t i = 0; i < descriptors; i++) {
        events[i] = event_new(round.base, fds[i], EV_READ | EV_PERSIST, handler, &round);
        event_add(events[i], NULL);
    }
    for (uint64_t i = from; i < to; i++) { peer_post(fds[i]); }
    struct peer_outcome outcome = run(&round);
    for (uint64_t i = 0; i < descriptors; i++) { event_free(events[i]); }
    event_base_free(round.base);
    free(events);
    peer_close_eventfds(fds, descriptors);
    return outcome;
}

struct peer_outcome event_one_busy(uint64_t count, uint64_t idle) {
    return deliver(count, idle + 1, idle / 2, idle / 2 + 1, on_readable_again);
}

struct peer_outcome event_all_busy(uint64_t count) { return deliver(count, count, 0, count, on_readable); }
