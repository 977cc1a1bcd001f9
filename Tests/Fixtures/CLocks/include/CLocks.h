/// All kinds of glibc's locks, and threads that hold them, which a stall report must distinguish. All functions may be called
/// from any thread. Locks and gates are numbers, and are never freed.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#pragma clang assume_nonnull begin

typedef enum lock_make {
    LOCK_NORMAL,
    LOCK_RECURSIVE,
    LOCK_CHECKING,
    LOCK_ADAPTIVE,
    LOCK_ROBUST,
    LOCK_INHERITING,
    LOCK_SHARED,  ///< Normal, and shared between processes.
    LOCK_RW,
    LOCK_STREAM,
    LOCK_SEMAPHORE,
    LOCK_CONDITION,
    LOCK_UNKNOWN,  ///< A futex of an unknown implementation: its word is 7.
    LOCK_DECEIVER, ///< The same, in memory that looks like a mutex of the thread given to lock_deceive.
} lock_make;

int lock_create(lock_make make);

/// Takes the lock, or waits for a signal. A read-write lock is taken for writing.
void lock_take(int lock);
void lock_take_to_read(int lock);
/// Gives up after the time. \returns whether the lock was taken.
bool lock_take_within(int lock, int64_t milliseconds);
/// Releases it, or signals one waiter. A normal mutex may be released by any thread.
void lock_release(int lock);
/// The address of the lock.
uint64_t lock_address(int lock);
void lock_deceive(int lock, pid_t owner);

/// A gate at which threads wait, in read(2) on a pipe.
int gate_create(void);
void gate_wait(int gate);
void gate_open(int gate);

/// Starts a thread that takes the lock and waits at the gate while holding
/// it, in lock_hold_at_gate. \returns its number once it has the lock.
pid_t lock_start_holder(int lock, int gate, const char *name);
pid_t lock_start_reader(int lock, int gate, const char *name);
/// The same for a thread that computes until the gate is opened, in lock_hold_busily.
pid_t lock_start_busy_holder(int lock, int gate, const char *name);
/// Starts a thread that takes the first lock, waits for the gate, then for the second lock, releases the second, and does not
/// release the first. \returns its number once it has the first.
pid_t lock_start_crossing(int first, int gate, int second, const char *name);
/// A thread takes the lock and ends without releasing it. \returns its number.
pid_t lock_abandon(int lock);
/// Starts a thread that takes the lock and releases it. \returns its number before it has the lock.
pid_t lock_start_waiter(int lock, const char *name);
/// Starts a thread that waits at the gate; lock_join_last joins it.
pid_t lock_start_joined(int gate, const char *name);
/// Waits for the end of the last thread started by lock_start_joined.
void lock_join_last(void);

/// Runs a function that waits at the gate, lock_initialize, once for each gate,
/// through dispatch_once: callers that arrive during this time wait for its end.
void lock_run_dispatch_once(int gate);

/// Whether that function has begun.
bool lock_once_has_begun(int gate);

/// Names the calling thread, 15 bytes at most. \returns its number.
pid_t lock_name_thread(const char *name);

/// Two threads take a lock alternately and sometimes hold it for a while; a third one waits for it repeatedly.
void lock_start_contest(int lock);
void lock_end_contest(void);
/// The thread that only waits.
pid_t lock_contestant(void);
/// The current turn: the holder's number and the count of turns, in one word. 0 between turns.
uint64_t lock_turn(void);

#pragma clang assume_nonnull end
