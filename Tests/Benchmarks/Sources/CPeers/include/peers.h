#pragma once

// The peers that are written in C, and the floor: each does the work of one workload with one library, and says how long the part
// took that is compared. Setting up and tearing down are outside that part. Each runs on the calling thread, and starts others if
// the work needs them.

#include <stdint.h>

#pragma clang assume_nonnull begin

struct peer_time {
    /// CLOCK_MONOTONIC.
    uint64_t wall_ns;
    /// Of all threads of the process. It leaves out what other programs take away, and the idle time of sleepers.
    uint64_t cpu_ns;
};

struct peer_outcome {
    /// Of the compared part.
    struct peer_time time;
    /// What the callbacks counted: must be what was asked for.
    uint64_t done;
};

struct peer_time peer_now(void);
struct peer_time peer_since(struct peer_time start);
struct peer_time peer_between(struct peer_time start, struct peer_time end);
struct peer_time peer_sum(struct peer_time one, struct peer_time other);

/// `count` eventfds, non-blocking, or the process ends with a message.
int *peer_make_eventfds(uint64_t count);
void peer_close_eventfds(int *fds, uint64_t count);
/// Adds one to the eventfd; reads it. True if there was something to read.
void peer_post(int fd);
_Bool peer_take(int fd);

/// The same numbers for every peer: milliseconds from 1 to 200, in an order that is random and always the same.
void peer_random_delays(uint64_t *delays_ms, uint64_t count);
/// Sleeps until all of these are due.
void peer_sleep_until_due(void);
/// Ends the process with a message unless `condition`.
void peer_require(_Bool condition, const char *what);

// A turn whose work asks for the next turn.
struct peer_outcome floor_turns(uint64_t count);
struct peer_outcome cf_turns(uint64_t count);
struct peer_outcome uv_idle_turns(uint64_t count);
struct peer_outcome uv_async_turns(uint64_t count);
struct peer_outcome glib_turns(uint64_t count);
struct peer_outcome event_turns(uint64_t count);

// Two threads, each asleep in its loop until the other wakes it. Counts round trips.
struct peer_outcome floor_epoll_round_trips(uint64_t count);
struct peer_outcome floor_futex_round_trips(uint64_t count);
struct peer_outcome cf_round_trips(uint64_t count);
struct peer_outcome uv_round_trips(uint64_t count);
struct peer_outcome glib_round_trips(uint64_t count);
struct peer_outcome event_round_trips(uint64_t count);

// What serves the main dispatch queue on the main thread until it is stopped by work from that queue.
void floor_serve_main_queue(void);
void floor_stop_serving(void);
void cf_serve_main_queue(void);
void cf_stop_serving(void);

// One-shots, due at once: created, added, fired, freed.
struct peer_outcome cf_one_shots(uint64_t count);
struct peer_outcome uv_one_shots(uint64_t count);
struct peer_outcome glib_one_shots(uint64_t count);
struct peer_outcome event_one_shots(uint64_t count);

// Timers with random dates: added, every other one cancelled in another random order, the rest fired. The time until all are due is
// slept through, and does not count. `done` counts cancelled and fired ones.
struct peer_outcome cf_random_timers(uint64_t count);
struct peer_outcome uv_random_timers(uint64_t count);
struct peer_outcome glib_random_timers(uint64_t count);
struct peer_outcome event_random_timers(uint64_t count);

// Fires of one timer that is always due, beside `idle` timers that are due in an hour.
struct peer_outcome cf_fires(uint64_t count, uint64_t idle);
struct peer_outcome uv_fires(uint64_t count, uint64_t idle);
struct peer_outcome glib_fires(uint64_t count, uint64_t idle);
struct peer_outcome event_fires(uint64_t count, uint64_t idle);

// Deliveries of one eventfd that its handler reads and writes again, beside `idle` ones.
struct peer_outcome floor_one_busy(uint64_t count, uint64_t idle);
struct peer_outcome uv_one_busy(uint64_t count, uint64_t idle);
struct peer_outcome glib_one_busy(uint64_t count, uint64_t idle);
struct peer_outcome event_one_busy(uint64_t count, uint64_t idle);

// `count` eventfds are ready, each is delivered once and read.
struct peer_outcome floor_all_busy(uint64_t count);
struct peer_outcome uv_all_busy(uint64_t count);
struct peer_outcome glib_all_busy(uint64_t count);
struct peer_outcome event_all_busy(uint64_t count);

// Messages of `size` bytes through a socket pair: there and back between two threads, and one way as fast as the pair takes them.
struct peer_outcome floor_message_trips(uint64_t count, uint64_t size);
struct peer_outcome floor_message_flood(uint64_t count, uint64_t size);

// Four threads hand `count` pieces of work to one loop.
struct peer_outcome uv_blocks(uint64_t count);
struct peer_outcome glib_blocks(uint64_t count);

// Foundation's loop of the calling thread, with a source in it, for work that comes from elsewhere. Runs until it is stopped.
void *cf_open(void);
void cf_run(void *opened);
void cf_stop(void *opened);
/// Any thread.
void cf_wake_up(void *opened);
void cf_close(void *opened);

/// Adds a function to the calling thread's loop that is called at each of its activities. Ended by the other.
void *cf_observe(void (*observe)(void *_Nullable), void *_Nullable context);
void cf_end_observing(void *observer);

/// Starts four threads that will call `enqueue` `count` times between them, from `peer_release_producers` on. That call belongs to the
/// time that is compared: on one core they may be through before it returns.
struct peer_producers;
struct peer_producers *peer_start_producers(uint64_t count, void (*enqueue)(void *_Nullable), void *_Nullable context);
void peer_release_producers(struct peer_producers *producers);
void peer_join_producers(struct peer_producers *producers);

/// Calls `body` on a thread of its own, and returns when that is over, with all that ends with it.
void peer_run_on_thread(void (*body)(void *_Nullable), void *_Nullable context);

/// Sets the affinity of every thread of the process: to one core, or to all that there were at the start.
void peer_pin(void);
void peer_unpin(void);

#pragma clang assume_nonnull end
