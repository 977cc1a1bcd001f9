#pragma once
// What watching another process needs of Linux and has no name in Swift: hardware breakpoints of perf's on its threads, and signals that
// say who sent them. Times are CLOCK_MONOTONIC nanoseconds. No function here is async-signal-safe; errno is not part of the interface.

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#pragma clang assume_nonnull begin

/// A hardware breakpoint on one thread that its first hit switches off: the thread pays for one, however often it comes by. Nothing is
/// written to the process, and the breakpoint goes with the descriptor, whatever becomes of us (perf_event_open(2)).
typedef struct process_watch_breakpoint {
    int descriptor;
    void *_Nullable ring;
} process_watch_breakpoint;

/// Sets one where the thread is about to execute `address`. Takes one of its debug registers, of which there are four on most machines.
/// \returns 0 or an error number: EACCES and EPERM for what is not permitted, ENOSPC without a free register, ESRCH without such a thread.
int process_watch_breakpoint_open(pid_t thread, uint64_t address, process_watch_breakpoint *opened);

/// When the thread came by, with which stack pointer, and with what in the register of a first argument; all 0 where the kernel has not told.
typedef struct process_watch_hit {
    uint64_t time_ns, stack_pointer, first_argument;
    bool has_registers;
} process_watch_hit;

/// Whether a system call leaves its first argument where it was. Else its result is there.
#if defined(__aarch64__)
enum { PROCESS_WATCH_KEEPS_ARGUMENT = 0 };
#else
enum { PROCESS_WATCH_KEEPS_ARGUMENT = 1 };
#endif

/// Takes the hit, if there was one. \returns whether there was.
bool process_watch_breakpoint_take(process_watch_breakpoint *breakpoint, process_watch_hit *hit);

/// Takes it away. The owner's to call, once.
void process_watch_breakpoint_close(process_watch_breakpoint *breakpoint);

/// An event that counts nothing. While one is held, opening the others does not make the kernel wait for a grace period.
/// \returns a descriptor, the caller's to close, or the negative of an error number.
int process_watch_hold_events(void);

/// Whether the kernel takes breakpoints on our own thread. \returns 0 or an error number.
int process_watch_try_breakpoint(void);

/// A descriptor for a process that its end makes readable: pidfd_open(2). \returns the caller's to close, or the negative of an error number.
int process_watch_open_process(pid_t process);

/// Takes SIGINT, SIGTERM and SIGHUP, but for those that are ignored, and SIGCHLD, whichever thread they come to, so that they can be read.
/// Once in a process.
/// \returns a descriptor, or the negative of an error number.
int process_watch_open_signals(void);

typedef struct process_watch_signal {
    int number;
    bool is_from_terminal;  ///< Sent by the kernel to the whole foreground group, our children included.
} process_watch_signal;

/// Takes one signal, without waiting. \returns whether there was one.
bool process_watch_take_signal(int descriptor, process_watch_signal *signal);

/// Starts a program with the signals as they were before process_watch_open_signals, in our process group, with our standard descriptors.
/// \param arguments ends with null; the first one is looked for along PATH.
/// \returns 0 or an error number.
int process_watch_start(char *_Nullable const *_Nonnull arguments, pid_t *process);

/// Whether a child of ours has ended. Takes its status then, once. \returns 1 with an exit status as a shell has it, 0, or -1 if it is no
/// child of ours.
int process_watch_take_status(pid_t process, int *status);

/// Waits until one of the descriptors can be read, or the deadline. \returns how many can, 0 at the deadline.
int process_watch_wait(const int *_Nullable descriptors, int count, uint64_t deadline_ns);

#pragma clang assume_nonnull end
