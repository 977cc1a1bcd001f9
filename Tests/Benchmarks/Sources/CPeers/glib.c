#include "peers.h"

#include <glib-unix.h>
#include <glib.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

// GLib's main loop. A separate context for each round.

struct round {
    GMainContext *context;
    uint64_t count;
    uint64_t done;
    _Bool is_over;
};

static struct round make_round(uint64_t count) {
    return (struct round){.context = g_main_context_new(), .count = count};
}

static struct peer_outcome run(struct round *round) {
    struct peer_time start = peer_now();
    while (!round->is_over) { g_main_context_iteration(round->context, TRUE); }
    return (struct peer_outcome){.time = peer_since(start), .done = round->done};
}

static void count_one(struct round *round) {
    if (++round->done == round->count) { round->is_over = 1; }
}

static void add(GSource *source, struct round *round, GSourceFunc callback, void *data) {
    g_source_set_callback(source, callback, data, NULL);
    g_source_attach(source, round->context);
}

static void end_source(GSource *source) {
    g_source_destroy(source);
    g_source_unref(source);
}

// MARK: - Turns

static gboolean on_idle(void *data) {
    count_one(data);
    return G_SOURCE_CONTINUE;
}

struct peer_outcome glib_turns(uint64_t count) {
    struct round round = make_round(count);
    GSource *source = g_idle_source_new();
    add(source, &round, on_idle, &round);
    struct peer_outcome outcome = run(&round);
    end_source(source);
    g_main_context_unref(round.context);
    return outcome;
}

// MARK: - Round trips

// A custom source that is signalled manually: the cheapest kind in GLib.
struct signalled {
    GSource source;
    atomic_bool is_signalled;
};

static gboolean signalled_prepare(GSource *source, int *timeout) {
    *timeout = -1;
    return atomic_load(&((struct signalled *)source)->is_signalled);
}

static gboolean signalled_check(GSource *source) { return atomic_load(&((struct signalled *)source)->is_signalled); }

static gboolean signalled_dispatch(GSource *source, GSourceFunc callback, void *data) {
    atomic_store(&((struct signalled *)source)->is_signalled, 0);
    return callback(data);
}

static GSourceFuncs signalled_kind = {signalled_prepare, signalled_check, signalled_dispatch, NULL, NULL, NULL};

struct side {
    struct round round;
    GSource *source;
    struct side *other;
    _Bool begins;
};

static void signal_side(struct side *side) {
    atomic_store(&((struct signalled *)side->source)->is_signalled, 1);
    g_main_context_wakeup(side->round.context);
}

static gboolean on_signal(void *data) {
    struct side *side = data;
    count_one(&side->round);
    if (!side->begins || !side->round.is_over) { signal_side(side->other); }
    return G_SOURCE_CONTINUE;
}

static void open_side(struct side *side, struct side *other, uint64_t count, _Bool begins) {
    side->round = make_round(count);
    side->other = other;
    side->begins = begins;
    side->source = g_source_new(&signalled_kind, sizeof(struct signalled));
    add(side->source, &side->round, on_signal, side);
}

static void *answer(void *argument) {
    run(&((struct side *)argument)->round);
    return NULL;
}

struct peer_outcome glib_round_trips(uint64_t count) {
    struct side here, there;
    open_side(&here, &there, count, 1);
    open_side(&there, &here, count, 0);
    pthread_t thread;
    peer_require(pthread_create(&thread, NULL, answer, &there) == 0, "pthread_create");
    signal_side(&there);
    struct peer_outcome outcome = run(&here.round);
    pthread_join(thread, NULL);
    end_source(here.source);
    end_source(there.source);
    g_main_context_unref(here.round.context);
    g_main_context_unref(there.round.context);
    return outcome;
}

// MARK: - Timers

static gboolean on_one_shot(void *data) {
    count_one(data);
    return G_SOURCE_REMOVE;
}

static GSource *add_timer(struct round *round, GSourceFunc callback, uint64_t delay_ms) {
    GSource *source = g_timeout_source_new((guint)delay_ms);
    add(source, round, callback, round);
    return source;
}

struct peer_outcome glib_one_shots(uint64_t count) {
    struct round round = make_round(count);
    struct peer_time start = peer_now();
    for (uint64_t i = 0; i < count; i++) { g_source_unref(add_timer(&round, on_one_shot, 0)); }
    run(&round);
    struct peer_outcome outcome = {.time = peer_since(start), .done = round.done};
    g_main_context_unref(round.context);
    return outcome;
}

struct peer_outcome glib_random_timers(uint64_t count) {
    uint64_t *delays = malloc(count * sizeof *delays);
    GSource **timers = malloc(count * sizeof *timers);
    peer_require(delays != NULL && timers != NULL, "malloc");
    peer_random_delays(delays, count);
    struct round round = make_round(count);
    struct peer_time start = peer_now();
    for (uint64_t i = 0; i < count; i++) { timers[i] = add_timer(&round, on_one_shot, delays[i]); }
    for (uint64_t i = 0; i < count; i += 2) {
        g_source_destroy(timers[i]);
        count_one(&round);
    }
    for (uint64_t i = 0; i < count; i++) { g_source_unref(timers[i]); }
    struct peer_time middle = peer_now();
    peer_sleep_until_due();
    struct peer_outcome outcome = run(&round);
    outcome.time = peer_sum(outcome.time, peer_between(start, middle));
    g_main_context_unref(round.context);
    free(timers);
    free(delays);
    return outcome;
}

struct peer_outcome glib_fires(uint64_t count, uint64_t idle) {
    struct round round = make_round(count);
    GSource **timers = malloc((idle + 1) * sizeof *timers);
    peer_require(timers != NULL, "malloc");
    for (uint64_t i = 0; i < idle; i++) { timers[i] = add_timer(&round, on_one_shot, 3600000 + i); }
    timers[idle] = add_timer(&round, on_idle, 0);
    struct peer_outcome outcome = run(&round);
    for (uint64_t i = 0; i <= idle; i++) { end_source(timers[i]); }
    g_main_context_unref(round.context);
    free(timers);
    return outcome;
}

// MARK: - Descriptors

static gboolean on_readable(int fd, GIOCondition condition, void *data) {
    (void)condition;
    if (peer_take(fd)) { count_one(data); }
    return G_SOURCE_CONTINUE;
}

static gboolean on_readable_again(int fd, GIOCondition condition, void *data) {
    (void)condition;
    if (peer_take(fd)) {
        count_one(data);
        peer_post(fd);
    }
    return G_SOURCE_CONTINUE;
}

static struct peer_outcome deliver(uint64_t count, uint64_t descriptors, uint64_t from, uint64_t to, GUnixFDSourceFunc handler) {
    struct round round = make_round(count);
    int *fds = peer_make_eventfds(descriptors);
    GSource **sources = malloc(descriptors * sizeof *sources);
    peer_require(sources != NULL, "malloc");
    for (uint64_t i = 0; i < descriptors; i++) {
        sources[i] = g_unix_fd_source_new(fds[i], G_IO_IN);
        add(sources[i], &round, (GSourceFunc)(void (*)(void))handler, &round);
    }
    for (uint64_t i = from; i < to; i++) { peer_post(fds[i]); }
    struct peer_outcome outcome = run(&round);
    for (uint64_t i = 0; i < descriptors; i++) { end_source(sources[i]); }
    g_main_context_unref(round.context);
    free(sources);
    peer_close_eventfds(fds, descriptors);
    return outcome;
}

struct peer_outcome glib_one_busy(uint64_t count, uint64_t idle) {
    return deliver(count, idle + 1, idle / 2, idle / 2 + 1, on_readable_again);
}

struct peer_outcome glib_all_busy(uint64_t count) { return deliver(count, count, 0, count, on_readable); }

// MARK: - Work from other threads

static gboolean on_work(void *data) {
    count_one(data);
    return G_SOURCE_REMOVE;
}

static void enqueue(void *data) {
    struct round *round = data;
    g_main_context_invoke_full(round->context, G_PRIORITY_DEFAULT, on_work, round, NULL);
}

struct peer_outcome glib_blocks(uint64_t count) {
    struct round round = make_round(count);
    // Owned by this thread; otherwise `invoke` would call the work on the producers' threads.
    g_main_context_acquire(round.context);
    struct peer_producers *producers = peer_start_producers(count, enqueue, &round);
    struct peer_time start = peer_now();
    peer_release_producers(producers);
    run(&round);
    struct peer_outcome outcome = {.time = peer_since(start), .done = round.done};
    peer_join_producers(producers);
    g_main_context_release(round.context);
    g_main_context_unref(round.context);
    return outcome;
}
