#include "peers.h"

#include <pthread.h>
#include <stdlib.h>
#include <uv.h>

// libuv. A separate loop for each round; `loop->data` is the round's state.

struct round {
    uint64_t count;
    uint64_t done;
};

static uv_loop_t *make_loop(struct round *round) {
    uv_loop_t *loop = malloc(sizeof *loop);
    peer_require(loop != NULL && uv_loop_init(loop) == 0, "uv_loop_init");
    loop->data = round;
    return loop;
}

static void close_handle(uv_handle_t *handle, void *context) {
    (void)context;
    if (!uv_is_closing(handle)) { uv_close(handle, NULL); }
}

static void end_loop(uv_loop_t *loop) {
    uv_walk(loop, close_handle, NULL);
    uv_run(loop, UV_RUN_DEFAULT);
    peer_require(uv_loop_close(loop) == 0, "uv_loop_close");
    free(loop);
}

static struct peer_outcome run(uv_loop_t *loop, struct round *round) {
    struct peer_time start = peer_now();
    uv_run(loop, UV_RUN_DEFAULT);
    return (struct peer_outcome){.time = peer_since(start), .done = round->done};
}

static void count_one(uv_loop_t *loop) {
    struct round *round = loop->data;
    if (++round->done == round->count) { uv_stop(loop); }
}

// MARK: - Turns

static void on_idle(uv_idle_t *idle) { count_one(idle->loop); }

struct peer_outcome uv_idle_turns(uint64_t count) {
    struct round round = {.count = count};
    uv_loop_t *loop = make_loop(&round);
    uv_idle_t idle;
    uv_idle_init(loop, &idle);
    uv_idle_start(&idle, on_idle);
    struct peer_outcome outcome = run(loop, &round);
    end_loop(loop);
    return outcome;
}

static void on_own_async(uv_async_t *async) {
    uv_async_send(async);
    count_one(async->loop);
}

struct peer_outcome uv_async_turns(uint64_t count) {
    struct round round = {.count = count};
    uv_loop_t *loop = make_loop(&round);
    uv_async_t async;
    uv_async_init(loop, &async, on_own_async);
    uv_async_send(&async);
    struct peer_outcome outcome = run(loop, &round);
    end_loop(loop);
    return outcome;
}

// MARK: - Round trips

struct side {
    struct round round;
    uv_loop_t *loop;
    uv_async_t async;
    uv_async_t *other;
    _Bool begins;
};

static void on_async(uv_async_t *async) {
    struct side *side = async->data;
    side->round.done++;
    if (!side->begins || side->round.done < side->round.count) { uv_async_send(side->other); }
    if (side->round.done == side->round.count) { uv_stop(async->loop); }
}

static void open_side(struct side *side, uint64_t count, _Bool begins) {
    side->round = (struct round){.count = count};
    side->begins = begins;
    side->loop = make_loop(&side->round);
    uv_async_init(side->loop, &side->async, on_async);
    side->async.data = side;
}

static void *answer(void *argument) {
    struct side *side = argument;
    uv_run(side->loop, UV_RUN_DEFAULT);
    return NULL;
}

struct peer_outcome uv_round_trips(uint64_t count) {
    struct side here, there;
    open_side(&here, count, 1);
    open_side(&there, count, 0);
    here.other = &there.async;
    there.other = &here.async;
    pthread_t thread;
    peer_require(pthread_create(&thread, NULL, answer, &there) == 0, "pthread_create");
    struct peer_time start = peer_now();
    uv_async_send(&there.async);
    uv_run(here.loop, UV_RUN_DEFAULT);
    struct peer_time end = peer_now();
    pthread_join(thread, NULL);
    end_loop(here.loop);
    end_loop(there.loop);
    return (struct peer_outcome){.time = peer_between(start, end), .done = here.round.done};
}

// MARK: - Timers

static void free_timer(uv_handle_t *timer) { free(timer); }

static void on_one_shot(uv_timer_t *timer) {
    ((struct round *)timer->loop->data)->done++;
    uv_close((uv_handle_t *)timer, free_timer);
}

static uv_timer_t *add_timer(uv_loop_t *loop, uv_timer_cb callback, uint64_t delay_ms) {
    uv_timer_t *timer = malloc(sizeof *timer);
    peer_require(timer != NULL, "malloc");
    uv_timer_init(loop, timer);
    uv_timer_start(timer, callback, delay_ms, 0);
    return timer;
}

struct peer_outcome uv_one_shots(uint64_t count) {
    struct round round = {.count = count};
    uv_loop_t *loop = make_loop(&round);
    struct peer_time start = peer_now();
    for (uint64_t i = 0; i < count; i++) { add_timer(loop, on_one_shot, 0); }
    uv_run(loop, UV_RUN_DEFAULT);
    struct peer_outcome outcome = {.time = peer_since(start), .done = round.done};
    end_loop(loop);
    return outcome;
}

struct peer_outcome uv_random_timers(uint64_t count) {
    uint64_t *delays = malloc(count * sizeof *delays);
    uv_timer_t **timers = malloc(count * sizeof *timers);
    peer_require(delays != NULL && timers != NULL, "malloc");
    peer_random_delays(delays, count);
    struct round round = {.count = count};
    uv_loop_t *loop = make_loop(&round);
    struct peer_time start = peer_now();
    for (uint64_t i = 0; i < count; i++) { timers[i] = add_timer(loop, on_one_shot, delays[i]); }
    for (uint64_t i = 0; i < count; i += 2) {
        uv_close((uv_handle_t *)timers[i], free_timer);
        round.done++;
    }
    struct peer_time middle = peer_now();
    peer_sleep_until_due();
    struct peer_time again = peer_now();
    uv_run(loop, UV_RUN_DEFAULT);
    struct peer_outcome outcome = {.time = peer_sum(peer_since(again), peer_between(start, middle)), .done = round.done};
    end_loop(loop);
    free(timers);
    free(delays);
    return outcome;
}

static void on_idle_timer(uv_timer_t *timer) { (void)timer; }

// Due again immediately: in this version of libuv that is still in the same turn, so the turn itself costs nothing.
static void on_fire(uv_timer_t *timer) {
    struct round *round = timer->loop->data;
    if (++round->done < round->count) {
        uv_timer_start(timer, on_fire, 0, 0);
    } else {
        uv_stop(timer->loop);
    }
}

struct peer_outcome uv_fires(uint64_t count, uint64_t idle) {
    struct round round = {.count = count};
    uv_loop_t *loop = make_loop(&round);
    uv_timer_t *timers = malloc((idle + 1) * sizeof *timers);
    peer_require(timers != NULL, "malloc");
    for (uint64_t i = 0; i < idle; i++) {
        uv_timer_init(loop, &timers[i]);
        uv_timer_start(&timers[i], on_idle_timer, 3600000 + i, 0);
    }
    uv_timer_init(loop, &timers[idle]);
    uv_timer_start(&timers[idle], on_fire, 0, 0);
    struct peer_outcome outcome = run(loop, &round);
    end_loop(loop);
    free(timers);
    return outcome;
}

// MARK: - Descriptors

static void on_readable(uv_poll_t *poll, int status, int events) {
    (void)status;
    (void)events;
    int fd;
    uv_fileno((uv_handle_t *)poll, &fd);
    if (!peer_take(fd)) { return; }
    if (poll->data != NULL) { peer_post(fd); }
    count_one(poll->loop);
}

static struct peer_outcome deliver(uint64_t count, uint64_t descriptors, uint64_t ready_from, uint64_t ready_to, _Bool writes_again) {
    struct round round = {.count = count};
    uv_loop_t *loop = make_loop(&round);
    int *fds = peer_make_eventfds(descriptors);
    uv_poll_t *polls = malloc(descriptors * sizeof *polls);
    peer_require(polls != NULL, "malloc");
    for (uint64_t i = 0; i < descriptors; i++) {
        uv_poll_init(loop, &polls[i], fds[i]);
        polls[i].data = writes_again ? &round : NULL;
        uv_poll_start(&polls[i], UV_READABLE, on_readable);
    }
    // The first turn registers the descriptors with the kernel: it is not part of the compared time.
    uv_run(loop, UV_RUN_NOWAIT);
    for (uint64_t i = ready_from; i < ready_to; i++) { peer_post(fds[i]); }
    struct peer_outcome outcome = run(loop, &round);
    end_loop(loop);
    free(polls);
    peer_close_eventfds(fds, descriptors);
    return outcome;
}

struct peer_outcome uv_one_busy(uint64_t count, uint64_t idle) {
    return deliver(count, idle + 1, idle / 2, idle / 2 + 1, 1);
}

struct peer_outcome uv_all_busy(uint64_t count) { return deliver(count, count, 0, count, 0); }

// MARK: - Work from other threads

struct work {
    struct work *next;
    void (*body)(struct round *);
};

struct queue {
    struct round round;
    pthread_mutex_t lock;
    struct work *first;
    struct work **last;
    uv_async_t async;
};

static void count_work(struct round *round) { round->done++; }

static void enqueue(void *context) {
    struct queue *queue = context;
    struct work *work = malloc(sizeof *work);
    *work = (struct work){.body = count_work};
    pthread_mutex_lock(&queue->lock);
    *queue->last = work;
    queue->last = &work->next;
    pthread_mutex_unlock(&queue->lock);
    uv_async_send(&queue->async);
}

static void on_work(uv_async_t *async) {
    struct queue *queue = async->data;
    pthread_mutex_lock(&queue->lock);
    struct work *work = queue->first;
    queue->first = NULL;
    queue->last = &queue->first;
    pthread_mutex_unlock(&queue->lock);
    while (work != NULL) {
        struct work *next = work->next;
        work->body(&queue->round);
        free(work);
        work = next;
    }
    if (queue->round.done == queue->round.count) { uv_stop(async->loop); }
}

struct peer_outcome uv_blocks(uint64_t count) {
    struct queue queue = {.round.count = count, .lock = PTHREAD_MUTEX_INITIALIZER};
    queue.last = &queue.first;
    uv_loop_t *loop = make_loop(&queue.round);
    uv_async_init(loop, &queue.async, on_work);
    queue.async.data = &queue;
    struct peer_producers *producers = peer_start_producers(count, enqueue, &queue);
    struct peer_time start = peer_now();
    peer_release_producers(producers);
    uv_run(loop, UV_RUN_DEFAULT);
    struct peer_outcome outcome = {.time = peer_since(start), .done = queue.round.done};
    peer_join_producers(producers);
    end_loop(loop);
    return outcome;
}
