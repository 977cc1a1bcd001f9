#pragma once

// The peers that are written in C, and the floor. Each function does the work of one workload
// with one library, and returns the time of the compared part. Setup and teardown are outside of
// that part. Each function runs on the calling thread, and starts others if the work needs them.

#include <stdint.h>

#pragma clang assume_nonnull begin

struct peer_time {
    /// CLOCK_MONOTONIC.
    uint64_t wall_ns;
    /// CPU time of all threads of the process. It excludes the time of other programs, and the idle time of sleeping threads.
    uint64_t cpu_ns;
};

struct peer_outcome {
    /// Time of the compared part.
    struct peer_time time;
    /// The number counted by the callbacks: it must equal the requested number.
    uint64_t done;
};

struct peer_time peer_now(void);
struct peer_time peer_since(struct peer_time start);
struct peer_time peer_between(struct peer_time start, struct peer_time end);
struct peer_time peer_sum(struct peer_time one, struct peer_time other);

/// Creates `count` nonblocking eventfds, or ends the process with a message.
int *peer_make_eventfds(uint64_t count);
void peer_close_eventfds(int *fds, uint64_t count);
/// Adds one to the eventfd; reads it. The latter returns true if there was something to read.
void peer_post(int fd);
_Bool peer_take(int fd);

/// The same numbers for every peer: milliseconds from 1 to 200, in a random order that is always the same.
void peer_random_delays(uint64_t *delays_ms, uint64_t count);
/// Sleeps until all of these delays have passed.
void peer_sleep_until_due(void);
/// Ends the process with a message if `condition` is false.
void peer_require(_Bool condition, const char *what);

// Turns whose work requests the next turn.
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

// Loops that serve the main dispatch queue on the main thread until work from that queue stops them.
void floor_serve_main_queue(void);
void floor_stop_serving(void);
void cf_serve_main_queue(void);
void cf_stop_serving(void);

// One-shot timers, due immediately: created, added, fired, freed.
struct peer_outcome cf_one_shots(uint64_t count);
struct peer_outcome uv_one_shots(uint64_t count);
struct peer_outcome glib_one_shots(uint64_t count);
struct peer_outcome event_one_shots(uint64_t count);

// Timers with random dates: added, every other one cancelled in another random order, the rest fired. The thread sleeps until all
// are due; this time does not count. `done` counts cancelled and fired timers.
struct peer_outcome cf_random_timers(uint64_t count);
struct peer_outcome uv_random_timers(uint64_t count);
struct peer_outcome glib_random_timers(uint64_t count);
struct peer_outcome event_random_timers(uint64_t count);

// Fires of one timer that is always due, in addition to `idle` timers that are due in an hour.
struct peer_outcome cf_fires(uint64_t count, uint64_t idle);
struct peer_outcome uv_fires(uint64_t count, uint64_t idle);
struct peer_outcome glib_fires(uint64_t count, uint64_t idle);
struct peer_outcome event_fires(uint64_t count, uint64_t idle);

// Deliveries of one eventfd that its handler reads and writes again, in addition to `idle` other ones.
struct peer_outcome floor_one_busy(uint64_t count, uint64_t idle);
struct peer_outcome uv_one_busy(uint64_t count, uint64_t idle);
struct peer_outcome glib_one_busy(uint64_t count, uint64_t idle);
struct peer_outcome event_one_busy(uint64_t count, uint64_t idle);

// `count` eventfds are ready, each is delivered once and read.
struct peer_outcome floor_all_busy(uint64_t count);
struct peer_outcome uv_all_busy(uint64_t count);
struct peer_outcome glib_all_busy(uint64_t count);
struct peer_outcome event_all_busy(uint64_t count);

// Messages of `size` bytes through a socket pair: round trips between two threads, and one way at the maximum rate of the pair.
struct peer_outcome floor_message_trips(uint64_t count, uint64_t size);
struct peer_outcome floor_message_flood(uint64_t count, uint64_t size);

// Four threads pass `count` pieces of work to one loop.
struct peer_outcome uv_blocks(uint64_t count);
struct peer_outcome glib_blocks(uint64_t count);

// Foundation's loop of the calling thread, with a source in it, for work from other threads. Runs until it is stopped.
void *cf_open(void);
void cf_run(void *opened);
void cf_stop(void *opened);
/// Any thread.
void cf_wake_up(void *opened);
void cf_close(void *opened);

/// Adds a function to the calling thread's loop that is called at each of its activities. `cf_end_observing` removes it.
void *cf_observe(void (*observe)(void *_Nullable), void *_Nullable context);
void cf_end_observing(void *observer);

/// Starts four threads that call `enqueue` `count` times in total, starting at `peer_release_producers`. That call is part of the
/// compared time: on one core the threads may have finished before it returns.
struct peer_producers;
struct peer_producers *peer_start_producers(uint64_t count, void (*enqueue)(void *_Nullable), void *_Nullable context);
void peer_release_producers(struct peer_producers *producers);
void peer_join_producers(struct peer_producers *producers);

/// Calls `body` on a separate thread, and returns after the thread has ended and freed its resources.
void peer_run_on_thread(void (*body)(void *_Nullable), void *_Nullable context);

/// Sets the affinity of every thread of the process: to one core, or to all cores that were allowed at the start.
void peer_pin(void);
void peer_unpin(void);

#pragma clang assume_nonnull end
