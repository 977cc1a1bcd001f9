/// Threads that are stalled, or not, in a way that is known exactly: tests compare captures with it.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#pragma clang assume_nonnull begin

typedef enum stall_kind {
    // Timed: they return automatically after `time_ns`.
    STALL_NANOSLEEP,
    STALL_POLL,
    STALL_EPOLL,
    STALL_SEMAPHORE,
    STALL_RECEIVE,
    // They last until they are released.
    STALL_READ,
    STALL_LOCK,
    STALL_FSYNC,
    STALL_SPIN,
    STALL_SPIN_MASKED,  ///< With every signal blocked until the thread is about to end.
    STALL_ALLOCATE,
    STALL_RELOAD,       ///< dlopen and dlclose of plugin0…3.so in `path`, in turn, with a call of plugin_run in between.
    STALL_ITERATE,      ///< dl_iterate_phdr, repeatedly.
    STALL_HOLD_LOADER,  ///< Inside a dl_iterate_phdr callback, with the loader's lock.
    STALL_DOZE,         ///< Sleeps and wakes at changing depths; see stall_dozer_state.
    STALL_SWING,        ///< Sleeps below 800 KiB of frames, returns, descends again; stall_swing_left and …_right alternate.
    STALL_QUICK_SWING,  ///< The same below 400 KiB, which one copy holds, and with shorter sleeps.
    // Below code that has a frame pointer and no unwind table, until they are released.
    STALL_BARE_SPIN,
    STALL_BARE_READ,
    STALL_HANDLER,      ///< Reads in a signal handler.
    STALL_BARE_HANDLER, ///< The same, if the return from the handler has no unwind table. On x86-64.
    STALL_TRAP,         ///< Reads in the handler of a trap, the first instruction of stall_traps, which follows stall_before_trap.
    STALL_ENDLESS_ROW,  ///< Spins below a function with a damaged unwind row, which is an endless loop. On x86-64.
    STALL_DIVIDING_ROW, ///< The same with a row that is a division which traps.
    STALL_REGISTER_ROW, ///< The same with a row that names a register which does not exist.
    STALL_CUT_ROW,      ///< The same with a row that ends in the middle of an instruction, and then a division which traps.
    STALL_UNKNOWN_ROW,  ///< The same with a row that has an instruction which libunwind 1.6 does not know.
    STALL_EDGE,         ///< Reads with the stack pointer 64 bytes above a page that cannot be read, and all signals blocked. On x86-64.
    STALL_LEFT,         ///< Reads; all its frames are those of STALL_RIGHT except for the outermost ones.
    STALL_RIGHT,
} stall_kind;

typedef struct stall stall;

typedef struct stall_end {
    int64_t result;  ///< What the timed call returned.
    int error;       ///< The thread's errno at the end of the stall, which it has begun with 0.
    uint64_t lasted_ns;
    uint64_t rounds;  ///< For kinds that loop.
    uint64_t cut_short; ///< Sleeps of STALL_DOZE that returned EINTR.
} stall_end;

/// Starts the thread and waits until it is about to stall, `depth` + 1 calls of
/// stall_descend below its start. A negative depth requests frames of 8 KiB.
stall *stall_start(stall_kind kind, int depth, uint64_t time_ns, const char *_Nullable path);

pid_t stall_thread(const stall *stall);
uint64_t stall_stack_low(const stall *stall);
uint64_t stall_stack_high(const stall *stall);

/// The number of completed rounds.
uint64_t stall_rounds(const stall *stall);

/// STALL_DOZE: round and depth, in one word. If the word is the same before and after a capture, the thread was in that round.
uint64_t stall_dozer_state(const stall *stall);
static inline int stall_dozer_depth(uint64_t state) { return (int)(state & 63); }
static inline bool stall_dozer_polls(uint64_t state) { return (state >> 6 & 1) == 0; }

/// Releases a stall that waits to be released, and joins the thread in any case. Frees it.
stall_end stall_finish(stall *stall);

/// A thread that lives about as long as one capture takes. Its bounds are valid until it ends.
stall *stall_start_brief(void);

/// The application's own use of a signal.
void stall_count_signals(int signal);
uint64_t stall_counted_signals(void);
void stall_send_own(pid_t thread, int signal);
/// Whether stall_count_signals's handler, the default or an unknown handler is installed.
typedef enum stall_handler { STALL_HANDLER_DEFAULT, STALL_HANDLER_COUNTS, STALL_HANDLER_OTHER } stall_handler;
stall_handler stall_installed(int signal);
void stall_reset_signal(int signal);

/// Makes a running thread of this process spin in a handler of SIGUSR1,
/// wherever it is currently executing, and waits until it does.
void stall_freeze(pid_t thread);

/// Starts threads that allocate, and stops one of them inside of malloc, with malloc's lock, while the others wait for it.
/// Releases and ends all of them when the calling thread waits for the lock, too: when it allocates. The process must have one arena and no
/// thread caches: MALLOC_ARENA_MAX=1 and glibc.malloc.tcache_count=0. \returns the holder.
pid_t stall_hold_malloc(int waiting_threads);

/// A thread that computes, on a stack whose outermost page nobody can read: whoever copies the whole stack waits until the page is released.
typedef struct stall_held stall_held;

/// \returns null if that is not permitted: userfaultfd(2).
stall_held *_Nullable stall_hold_page(void);
pid_t stall_held_thread(const stall_held *held);
uint64_t stall_held_low(const stall_held *held);
/// Behind that page.
uint64_t stall_held_high(const stall_held *held);
/// Once, from any thread. Allocates nothing.
void stall_release_page(stall_held *held);
/// Ends the thread and frees it. Release the page before.
void stall_held_finish(stall_held *held);

/// Blocks or unblocks a signal on the calling thread.
void stall_mask(int signal, bool blocked);

/// The file in which the dynamic linker found this function.
const char *_Nullable stall_file_of(const char *symbol);

#pragma clang assume_nonnull end
