/// Declarations shared by the parts of the capture. Nothing here is public.
#pragma once

#include "CStackCapture.h"
#include "CStackCaptureProcess.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include <libunwind.h>

#include "registers.h"

#pragma clang assume_nonnull begin

// memory.c

enum { PAGE_SIZE = 4096, PAGE_SLOTS = 256 };

/// A part of a stack at the time of the copy.
struct stackcap_part {
    uint8_t *bytes;
    uint64_t start, length;
};

struct stackcap_copy {
    uint8_t *bytes;  ///< STACKCAP_MAX_COPY bytes, for both parts.
    struct stackcap_part inner;  ///< From the stack pointer on.
    /// The outer end of a stack that is larger than the buffer; or the outer end of the thread's own stack if it is on a
    /// foreign one: a signal handler returns there.
    struct stackcap_part outer;
    uint64_t high;  ///< The outer end of the thread's current stack. Uncopied memory up to here may have changed since.
    bool is_foreign;  ///< The thread was not on its own stack, but on an alternate signal stack or a coroutine's.
    uint64_t home_low;  ///< The low end of its own stack in that case.
    uint64_t held_ns;  ///< How long the thread was held for it.
    uint64_t made_ns;  ///< The latest time at which it was made. For another process only.
};

/// Direct-mapped, valid for one capture: a module that is replaced at the same address must not leave its tables behind. Pages
/// of modules that came with the program are kept: stackcap_is_lasting.
struct stackcap_page_cache {
    uint8_t *bytes;
    struct {
        uint64_t page;
        uint64_t generation;  ///< When it was read; LASTING if that does not matter.
        bool readable;
    } slots[PAGE_SLOTS];
    uint64_t generation;
};
#define LASTING UINT64_MAX

/// How memory of a process, ours or another, is read without ever faulting.
struct stackcap_reader {
    pid_t process;
    int file;  ///< /proc/PID/mem, or −1 while process_vm_readv works.
    uint64_t file_identity[2];  ///< Device and inode: the application may close all descriptors and reuse their numbers.
};

// loader.c

enum { LOADER_ADDS = 6 };

/// The state of this process's dynamic loader. As long as it is the same, no module was loaded or unloaded.
struct stackcap_loader {
    uint64_t adds[LOADER_ADDS];  ///< The number of modules ever loaded. Several words may have this value by chance.
    unsigned modules;            ///< The number of modules now loaded.
    int at_work;                 ///< r_state: see link.h.
};

// rows.c

enum { ROW_SLOTS = 2048 };

/// The effect of the unwind row of one address: the caller's registers, as sums of one register and a constant.
struct stackcap_row {
    uint64_t address;  ///< Where it was looked up; 0 for none.
    uint64_t walk;     ///< The capture for which it is valid. 0 for all: its module cannot be unloaded.
    enum { ROW_SEEN, ROW_USABLE, ROW_UNUSABLE } state;
    int base;                      ///< The register to which all offsets are relative.
    int32_t return_address;        ///< Where it is stored.
    int32_t stack_pointer;         ///< The caller's.
    int32_t saved[KEPT_REGISTERS]; ///< Where these are saved; INT32_MIN for a register that was not changed.
};

/// Direct-mapped.
struct stackcap_rows {
    struct stackcap_row *slots;
    uint64_t walk;
};

/// The position of a walk: in the cursor, in the registers, or in both.
struct stackcap_walk {
    uint64_t address;
    uint64_t stack_pointer;
    uint64_t lookup;  ///< Where the address's row is looked up: one byte before, for a return address.
    unw_cursor_t cursor;
    bool in_cursor;
    struct stackcap_registers registers;
    bool in_registers;
};

// async.c

enum {
    STACKCAP_ASYNC_SITES = 8,
    STACKCAP_GLIMPSES = 3,
    STACKCAP_GLIMPSE_BYTES = 2048,
    STACKCAP_OTHER_CALLS = 64,
};

/// The part of the heap that ends with a context, as it was immediately after the stack was copied.
struct stackcap_glimpse {
    uint64_t start, length;
    uint8_t bytes[STACKCAP_GLIMPSE_BYTES];
};

/// The registers of a frame by which its context may be found; 0 if unknown.
struct stackcap_async_registers {
    uint64_t frame_pointer, context;
};

/// A frame that was started in the way the Swift concurrency runtime starts jobs.
struct stackcap_async_site {
    size_t frame;
    uint64_t low, high;       ///< Its part of the stack.
    uint64_t return_address;  ///< After the job's call.
    struct stackcap_async_registers registers;
    uint64_t job;  ///< In the calling frame; 0 if unknown.
};

/// The asynchronous functions seen during the walk, and the results.
struct stackcap_async {
    struct stackcap_async_site sites[STACKCAP_ASYNC_SITES];  ///< Innermost first.
    size_t site_count;
    uint64_t other_calls[STACKCAP_OTHER_CALLS];  ///< Return addresses seen in this walk that are not a job's call. Direct-mapped.
    uint64_t awaiting[STACKCAP_MAX_AWAITING];
    uint64_t contexts[STACKCAP_MAX_AWAITING];
    uint64_t first;     ///< The context with which the chain begins.
    uint64_t low, high; ///< The stack range of the frame that awaits it.
    uint64_t job_call;     ///< The return address of the last job's call. It is the same for nearly all.
    uint64_t job_call_at;  ///< Its position on the stack. The same for most captures of a thread.
    uint64_t glimpsed_at;  ///< Its position in this copy; 0 if it was not found.
    bool is_exact;      ///< The chain is as it was at the time of the copy.
    int contexts_left;  ///< How many contexts may still be tried.
    struct stackcap_glimpse glimpses[STACKCAP_GLIMPSES];
    stackcap_async_callers callers;
};

// unwinder.c

/// How often one walk may continue by a search of the stack.
enum { MAX_SCANS = 4 };

/// A sleeping thread: /proc/PID/task, its thread id, and its sampled state.
struct stackcap_sleeper {
    int tasks;  ///< AT_FDCWD for our own process.
    pid_t thread;
    stackcap_look seen;
};

/// A stack that is being unwound: its copy, the memory around it, and the position of the walk. The owner makes the
/// copy.
typedef struct stackcap_unwinder {
    struct stackcap_copy copy;
    struct stackcap_reader reader;
    struct stackcap_page_cache pages;
    struct stackcap_loader loader;  ///< Its state when the stack was copied. For this process only.
    bool distrusts_loaded;          ///< Modules have changed since: only those that came with the program are trusted.
    struct stackcap_registers registers;  ///< Where the walk starts,
    struct stackcap_registers start;      ///< … before guesses were added.
    bool registers_are_guessed;           ///< Only program counter and stack pointer are known, because the thread sleeps:
    struct stackcap_sleeper sleeper;      ///< … this thread.
    struct stackcap_rows rows;
    struct stackcap_registers resumed;    ///< Where it continued after code without an unwind table.
    stackcap_found found_behind_gap;      ///< How the frame after the last code without a table was found.
    stackcap_found return_found;  ///< How the second frame was found, if that is known better than from the walk; otherwise 0.
    size_t scanned[MAX_SCANS];    ///< The frames that were found by a search of the stack.
    size_t scanned_count;
    uint64_t gap_record;  ///< The frame record from which to continue if the return address is unknown, or 0.
    int address_bias;  ///< To be added to the cursor's address: see stackcap_step.
    struct stackcap_modules *_Nullable modules;  ///< Another process's modules. NULL: those of this process, from the loader.

    unw_addr_space_t space;
    bool lacked_table;  ///< Since last cleared: an address had no unwind table.
    bool met_unknown;   ///< … a register that is not known was used as an address.
    bool left_copy;     ///< … the stack was read beyond the copy.
    const struct stackcap_registers *current;  ///< The registers as shown to libunwind.
    uint64_t first_unknown;  ///< The first address used that was computed from an unknown register, 0 for none.
    bool reads_middle;  ///< Memory between the two copied ends is read as it is now.
    bool read_middle;   ///< … and was read.
    uint64_t walk_until_ns;  ///< On the capturing thread's own clock.
    stackcap_frame *frames;  ///< The first half holds the innermost, the second half is a ring for the others: stackcap_frame_at.
    uint64_t trail;          ///< A hash of all frames: two walks with the same hash took the same path.
    size_t frame_count;      ///< Includes the frames that were dropped from the ring.
    stackcap_end end;
    bool ended_at_zero;  ///< … at a return address of 0, which a wrong guess can lead to as well.
    int unwinder_error;
    struct stackcap_async async;
} stackcap_unwinder;

/// Allocates the buffers, populates what the handler uses first, and makes libunwind initialise itself. \returns 0 or an errno; on failure, finish it.
int stackcap_unwinder_prepare(stackcap_unwinder *unwinder);
void stackcap_unwinder_finish(stackcap_unwinder *unwinder);

// look.c. `tasks` is an open /proc/PID/task, or AT_FDCWD for this process's.

stackcap_outcome stackcap_look_in(int tasks, pid_t thread, stackcap_look *look);
stackcap_outcome stackcap_count_sleeps(int tasks, pid_t thread, uint64_t *sleeps);

/// Whether a signal has stopped the thread: the kernel shows only two of its registers then.
bool stackcap_is_stopped(int tasks, pid_t thread);

/// Copies the stack of a sleeping thread, with an unwinder whose reader is prepared. See stackcap_copy_blocked.
stackcap_outcome stackcap_copy_asleep(stackcap_unwinder *unwinder, int tasks, pid_t thread, uint64_t low, uint64_t high,
                                      const stackcap_look *seen);

// modules.c

/// The range of a module, and its .eh_frame_hdr; 0 if it has none. The base is to be added to the addresses in its headers.
struct stackcap_module {
    uint64_t start, end, table, base;
};

struct stackcap_index;

/// The mappings of another process, as /proc/PID/maps showed them when it was last read.
struct stackcap_modules {
    int directory;  ///< /proc/PID, or /proc/PID/task/TID.
    char *_Nullable text;
    size_t length, capacity;
    struct stackcap_mapping *_Nullable mappings;  ///< Sorted by address.
    size_t count, mapping_capacity;
    uint64_t read_at_ns, read_cost_ns;
    struct stackcap_index *_Nullable indexes;
};

/// Reads the maps. Allocates. \returns 0 or an errno: ESRCH for a process that has ended.
int stackcap_modules_read(struct stackcap_modules *modules);
void stackcap_modules_finish(struct stackcap_modules *modules);

/// Reads the maps again, but spends at most 5 % of the time on it: the maps of a large process take milliseconds.
int stackcap_modules_keep_up(struct stackcap_modules *modules);

/// Finds the module around the address, from the headers in its memory.
bool stackcap_modules_find(stackcap_unwinder *unwinder, uint64_t address, struct stackcap_module *module);

/// The first mapped address, 0 if there is none.
uint64_t stackcap_modules_start(const struct stackcap_modules *modules);

/// The bounds of the mapping around the address. \returns false if there is none.
bool stackcap_modules_bounds(const struct stackcap_modules *modules, uint64_t address, uint64_t *low, uint64_t *high);

/// The file of a module.
struct stackcap_origin {
    uint64_t at, end;        ///< The mapping with its ELF header.
    uint64_t base;           ///< To be added to the addresses in the headers.
    uint64_t low, high;      ///< The range of the whole module.
    uint64_t device, inode;  ///< From the maps.
    const char *path;        ///< Valid until the maps are read again.
};

/// Determines the file of the module around the address. \returns false if there is none.
/// \param has_table whether it has a search table for its unwind rows.
bool stackcap_modules_origin(stackcap_unwinder *unwinder, uint64_t address, struct stackcap_origin *origin, bool *has_table);

/// Whether the address is executable. Reads the maps again if it is not, and they are older than the last copy.
bool stackcap_modules_is_code(stackcap_unwinder *unwinder, uint64_t address);

// sections.c

enum { STACKCAP_MAX_SECTION = 64 * 1024 * 1024 };

/// Unwind rows from the file: .eh_frame, which is loaded, and .debug_frame, which is for debuggers only.
struct stackcap_sections {
    uint8_t *_Nullable loaded, *_Nullable debug;
    size_t loaded_length, debug_length;
    uint64_t loaded_at;  ///< Before the base is added.
};

/// Reads them from the module's file, if that can be opened and is the mapped one. Allocates; free the result in any case.
void stackcap_sections_read(stackcap_unwinder *unwinder, const struct stackcap_origin *origin, struct stackcap_sections *sections);
void stackcap_sections_free(struct stackcap_sections *sections);

// index.c

struct stackcap_indexed_row {
    uint64_t start, end;   ///< The function.
    uint64_t description;  ///< The address of its row, for libunwind.
};

enum stackcap_indexed {
    INDEXED_NOT,
    INDEXED_BETWEEN,  ///< Between two functions: the row is that of the function before.
    INDEXED_FOUND,
};

/// Finds the row of an address of another process in our own index. Creates the index on first use: allocates, and reads a
/// file.
enum stackcap_indexed stackcap_index_find(stackcap_unwinder *unwinder, uint64_t address, struct stackcap_indexed_row *row);

/// The address of a search table with one entry, which fits every address and refers to the table's base.
uint64_t stackcap_index_table(void);

/// Reads from that table, and from rows that are not in the target's memory. \returns false for another address.
bool stackcap_index_read(const struct stackcap_modules *modules, uint64_t address, void *to, size_t length);

void stackcap_indexes_free(struct stackcap_modules *modules);

// process.c, stop.c

/// How long a thread has waited for processors in its lifetime.
struct stackcap_waits {
    uint64_t waited_ns, turns;
};

/// The one thread that may stop threads of the other process. The kernel ties a stopped thread to the thread that stopped it,
/// and releases it when that thread ends: however a stop fails, ending this thread cleans up.
struct stackcap_tracer {
    pthread_t handle;
    bool exists;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum { TRACER_RESTS, TRACER_WANTED, TRACER_ANSWERED, TRACER_DISMISSED } turn;
    bool leaves;  ///< The thread ends with this answer, and releases what it still holds.
    pid_t thread;
    bool wants_halted;
    uint64_t deadline_ns;
    stackcap_outcome outcome;
    bool has_let_go;  ///< A thread was stopped and released for this answer, at this time; its wait until then:
    uint64_t let_go_ns;
    struct stackcap_waits waits;
};

struct stackcap_process {
    pid_t process;
    int directory;  ///< /proc/PID: stays this process's, even if its number is reused later.
    int tasks;      ///< /proc/PID/task.
    int living;     ///< /proc/PID/task/TID of another thread, once the first one has ended; otherwise −1.
    int memory;     ///< /proc/PID/mem. Bound to the program that ran when it was opened: reads nothing once another one runs.
    bool read_through_file;
    stackcap_unwinder unwinder;
    struct stackcap_modules modules;
    struct stackcap_tracer tracer;
    stackcap_process_counters counters;
};

/// Stops, copies and releases, on the tracer's thread. See stackcap_process_copy_stopped.
/// \param wants_halted a thread that a signal has stopped outside of system calls, instead of a running one.
stackcap_outcome stackcap_tracer_copy(stackcap_process *process, pid_t thread, bool wants_halted, uint64_t deadline_ns);
/// Counts how long the released thread has waited for a processor since then. Call it once, and soon: the thread also waits for
/// its own reasons.
void stackcap_tracer_count_wait(stackcap_process *process);
void stackcap_tracer_prepare(struct stackcap_tracer *tracer);
void stackcap_tracer_finish(struct stackcap_tracer *tracer);

// request.c

/// The capturing thread's request and the handler's answer. `word` says whose turn it is: see request.c.
struct stackcap_request {
    _Atomic uint64_t word;
    _Atomic pid_t thread;
    uint64_t low, high;
    struct stackcap_registers registers;
    int copy_error;
    bool is_foreign;  ///< The thread is on a stack other than its own.
    uint64_t copied_ns;  ///< When it was served.
    pid_t left_open;  ///< The thread whose request nobody waits for, to be found by its next capture; 0 for none. The capturer's.
};

// previous.c

/// The handler that was installed before ours.
struct stackcap_previous {
    _Atomic(const struct sigaction *) action;
    struct sigaction kept[2];
    atomic_bool is_spent;  ///< It was installed to be called once (SA_RESETHAND), and was called.
};

/// Not in a handler.
void stackcap_previous_keep(struct stackcap_previous *previous, const struct sigaction *action);

/// The action to install when ours is removed.
void stackcap_previous_restore(const struct stackcap_previous *previous, struct sigaction *action);

/// The flags of the previous action that apply when the kernel delivers to our handler: what the application's signal does to
/// system calls, and on which stack it runs, stay as the application chose them.
int stackcap_flags_over(const struct sigaction *action);

/// Acts as the kernel would have without our handler. In the handler.
void stackcap_previous_call(struct stackcap_previous *previous, int signal, siginfo_t *info, void *context);

struct stackcap_session {
    int signal;
    uint32_t mark;  ///< Contained in every signal we send, to distinguish them from the application's own.
    bool open;
    pid_t process;  ///< The process that opened it. A forked child inherits a session that no thread there can close.
    bool in_chain;  ///< Our handler is installed, or another handler may forward signals to it.
    uintptr_t cover;         ///< The handler seen over ours,
    uint64_t passed_before;  ///< … and the number of forwarded signals when it was first seen there.
    struct stackcap_previous previous;

    struct stackcap_request request;
    stackcap_unwinder unwinder;

    _Atomic uint64_t sent_ns;  ///< When the last one was sent.
    _Atomic uint64_t sent, arrived, late, chained, calls_cut_short;
};

/// Installs the signal handler. \returns 0 or an errno.
int stackcap_handler_install(struct stackcap_session *session);
/// Removes it, unless another handler has replaced ours; ours then stays below that one.
void stackcap_handler_remove(struct stackcap_session *session);
bool stackcap_handler_is_busy(const struct stackcap_session *session);
/// In a forked child, immediately: the request that replaced an ignored signal belongs to its parent. Otherwise the signal
/// would stay handled in the child, and would not be ignored in a program that it executes.
void stackcap_handler_ignore_in_child(struct stackcap_session *session);
/// In a forked child, where no thread is left that could answer.
void stackcap_request_forget(struct stackcap_session *session);

// look.c

/// Whether the calling thread's system calls pass a filter (seccomp(2)). Checked again every 10 ms.
bool stackcap_is_filtered(void);

// look.c

/// Reads the thread's name, at most 15 bytes; empty if there is no such thread.
void stackcap_thread_name(pid_t thread, char name[_Nonnull 16]);

/// Whether the thread that was last copied without a signal has not run since.
bool stackcap_sleeps_on(const stackcap_unwinder *unwinder);

// memory.c

/// Chooses process_vm_readv, or /proc/self/mem if a sandbox refuses it. A sandbox may also end a process for the call: if
/// there is one, the call is not tried.
int stackcap_reader_prepare(struct stackcap_reader *reader, bool through_file);
/// The same for another process: by process_vm_readv if that may read `probe`, otherwise through the open /proc/PID/mem.
int stackcap_reader_prepare_other(struct stackcap_reader *reader, pid_t process, int memory, bool through_file, uint64_t probe);

/// To be called again before each capture: after a fork, or after a sandbox was installed, or the application has closed the
/// file.
int stackcap_reader_refresh(struct stackcap_reader *reader, bool is_filtered);
void stackcap_reader_finish(struct stackcap_reader *reader);

/// Copies live memory. Async-signal-safe; changes errno; never faults.
/// \returns the number of bytes read from the start, or −errno.
ssize_t stackcap_read_live(const struct stackcap_reader *reader, uint64_t address, void *to, size_t length);

/// Drops all cached pages except the lasting ones.
void stackcap_pages_forget(struct stackcap_page_cache *pages);
void stackcap_pages_forget_all(struct stackcap_page_cache *pages);

/// Reads from the copy, or from memory that is not the stack through the page cache. Not in the handler.
bool stackcap_peek(stackcap_unwinder *unwinder, uint64_t address, void *to, size_t length);

/// Reads `length` bytes of instructions from `address`, over two pages at most. Bytes on a page that cannot be read are zero:
/// code may begin or end at a page boundary.
void stackcap_peek_code(stackcap_unwinder *unwinder, uint64_t address, void *code, size_t length);

// copy.c

/// Copies [stack_pointer − red zone, high) into the copy's buffer: both ends if it is more than STACKCAP_MAX_COPY.
/// Async-signal-safe; changes errno.
/// \returns 0 or an errno.
int stackcap_copy_stack(stackcap_unwinder *unwinder, uint64_t stack_pointer, uint64_t low, uint64_t high);

/// Copies the memory at the stack pointer, up to the first page that cannot be read, and the outer part of the thread's own
/// stack [low, high), which it is not using at the moment; at most STACKCAP_MAX_COPY / 2 of each. Async-signal-safe; changes
/// errno.
/// \returns 0 or an errno.
int stackcap_copy_foreign_stack(stackcap_unwinder *unwinder, uint64_t stack_pointer, uint64_t low, uint64_t high);

/// Sets the end of the stack, if it was not known when it was copied. Not in the handler.
void stackcap_bound_copy(stackcap_unwinder *unwinder, uint64_t high);

/// Whether the stack still has the copied contents. Not in the handler.
bool stackcap_copy_holds(const stackcap_unwinder *unwinder);

/// Whether memory on both sides of the uncopied part between the two ends still has the copied contents, as far out as the
/// outermost frame. To be called after a walk, and not in the handler.
bool stackcap_middle_holds(const stackcap_unwinder *unwinder);

bool stackcap_in_copy(const stackcap_unwinder *unwinder, uint64_t address, size_t length);
bool stackcap_in_outer_copy(const stackcap_unwinder *unwinder, uint64_t address, size_t length);

/// Whether the step from one frame to the next leads from a foreign stack to the thread's own.
bool stackcap_leads_home(const stackcap_unwinder *unwinder, uint64_t from, uint64_t to);

/// Whether a frame is neither on the copied stack nor on the thread's own, but on another one, about which nothing is known.
bool stackcap_is_off_stack(const stackcap_unwinder *unwinder, uint64_t stack_pointer);

enum stackcap_place {
    PLACE_COPIED,
    PLACE_NOT_COPIED,  ///< On the stack, but not copied.
    PLACE_MIDDLE,      ///< On the stack, between the two ends of a large one.
    PLACE_ELSEWHERE,   ///< Not on the stack.
};

/// Reads from the copy if the memory is in it. \returns where the memory is.
enum stackcap_place stackcap_copy_read(const stackcap_unwinder *unwinder, uint64_t address, void *to, size_t length);

// loader.c

/// A few loads: takes no lock, async-signal-safe.
void stackcap_loader_read(struct stackcap_loader *loader);

/// Whether modules were loaded or unloaded since then. Also false if that cannot be determined: in a static program.
bool stackcap_loader_has_moved(const struct stackcap_loader *since);

// tables.c

/// Whether the code at the address may have changed since the stack was copied.
bool stackcap_is_distrusted(const stackcap_unwinder *unwinder, uint64_t address);

/// Finds the unwind row for an address, from the tables in memory, and without the loader's lock.
/// \returns 0, or libunwind's error code; lacked_table is set then.
int stackcap_find_procedure(stackcap_unwinder *unwinder, unw_word_t address, unw_proc_info_t *procedure, int needs_info);

/// Where the function around `address` starts, 0 if no unwind table gives it.
uint64_t stackcap_function_start(stackcap_unwinder *unwinder, uint64_t address);

/// Whether an unwind table has a function that starts here, or has none around here and one may start here.
bool stackcap_may_start_function(stackcap_unwinder *unwinder, uint64_t address);

/// The part of a module around the address that belongs to no function of its table: [low, high). \returns false if there is
/// none.
bool stackcap_gap_around(stackcap_unwinder *unwinder, uint64_t address, uint64_t *low, uint64_t *high);

/// Whether the address is in a module.
bool stackcap_in_module(stackcap_unwinder *unwinder, uint64_t address);

// walk.c

/// Creates libunwind's address space and makes it initialise itself. Allocates. \returns 0 or an errno.
int stackcap_space_prepare(stackcap_unwinder *unwinder);

/// Unwinds the last copy. See stackcap_unwind.
stackcap_outcome stackcap_unwind_copy(stackcap_unwinder *unwinder, stackcap_unwound *unwound);

/// Unwinds from the registers into the frames. \returns whether the first frame was found.
bool stackcap_unwind_from_registers(stackcap_unwinder *unwinder);

/// Reads a word for the unwinder; a value that looks like a frame pointer loses Swift's mark. met_unknown and first_unknown
/// report an address that cannot be known.
bool stackcap_read_word(stackcap_unwinder *unwinder, uint64_t address, uint64_t *value);

/// \returns a register's value in the walk's current frame; 0 if it is not known.
uint64_t stackcap_walk_register(struct stackcap_walk *walk, int number);

/// Reads the known registers of the walk's current frame.
void stackcap_walk_read_registers(struct stackcap_walk *walk, struct stackcap_registers *registers);

/// \returns the frame with this index, innermost 0; it is another frame if this one was dropped from the ring.
stackcap_frame *stackcap_frame_at(const stackcap_unwinder *unwinder, size_t index);

// rows.c

/// Whether the address is in the read-only part of a module that came with this program, and so is never unloaded.
bool stackcap_is_lasting(const stackcap_unwinder *unwinder, uint64_t address);

/// Unwinds to the caller by a row that is known already, in a twentieth of the time of libunwind, which looks the row up and
/// decodes it again.
/// \returns false, with nothing changed, if there is no such row, or it leads nowhere: libunwind then does the step.
bool stackcap_row_step(stackcap_unwinder *unwinder, struct stackcap_walk *walk);

/// What has to be recorded before a step of libunwind, so that its row can be learnt from it.
struct stackcap_lesson {
    struct stackcap_row *_Nullable row;  ///< None if there is nothing to learn.
    uint64_t before[KEPT_REGISTERS];     ///< Where the registers were saved.
    uint64_t bases[KEPT_REGISTERS + 1];  ///< Their values; the stack pointer last.
};
void stackcap_row_watch(stackcap_unwinder *unwinder, struct stackcap_walk *walk, struct stackcap_lesson *lesson);
void stackcap_row_learn(stackcap_unwinder *unwinder, struct stackcap_walk *walk, const struct stackcap_lesson *lesson);

// async.c

/// Reads the probable innermost contexts of a thread immediately after its stack: when the stack has been unwound, they may be
/// gone. At most 25 system calls, usually three; the results are checked later. Async-signal-safe; changes errno.
/// \param context_register 0 if unknown.
void stackcap_async_glimpse(stackcap_unwinder *unwinder, uint64_t context_register);
/// Drops the glimpses that differ from current memory: the thread has run in the meantime.
void stackcap_async_recheck_glimpses(stackcap_unwinder *unwinder);
/// Drops what an earlier walk saw.
void stackcap_async_begin(stackcap_unwinder *unwinder);
/// Checks whether the walk's latest frame started the one before it as a job. Reads a few bytes of code.
void stackcap_async_notice(stackcap_unwinder *unwinder, const struct stackcap_async_registers *callee,
                           struct stackcap_walk *caller);
/// Follows the contexts of the innermost asynchronous frame into async.callers. Reads the live heap; never faults.
void stackcap_async_read(stackcap_unwinder *unwinder);
/// Whether the chain is that of the moment of the copy: its beginning was read then, and the rest of it and the frame are
/// unchanged.
bool stackcap_async_holds(const stackcap_unwinder *unwinder);
/// Drops the chain, but not the frame.
void stackcap_async_doubt(stackcap_unwinder *unwinder);

// job_call.c

#if defined(__x86_64__)
#define stackcap_job_register stackcap_job_register_x86_64
#else
#define stackcap_job_register stackcap_job_register_aarch64
#endif

// guess.c

/// Unwinds a copy of which only program counter and stack pointer are known. \returns as above.
bool stackcap_unwind_guessing(stackcap_unwinder *unwinder);

// registers_*.c

/// How well the instruction before a return address fits a call of `function`. 0: it is not a call.
enum { CALL_NONE = 0, CALL_ELSEWHERE, CALL_INDIRECT, CALL_MATCHES };
int stackcap_call_before(stackcap_unwinder *unwinder, uint64_t return_address, uint64_t function);

/// Whether a signal handler returns to this address: the next outer frame was interrupted and did not make a call.
bool stackcap_is_signal_return(stackcap_unwinder *unwinder, uint64_t address);
/// Steps the cursor to the caller: by unw_step, or for code without an unwind table by what the code does, or by the frame
/// pointer.
/// \returns as unw_step does; found_behind_gap is set if there was no table.
int stackcap_step(stackcap_unwinder *unwinder, unw_cursor_t *cursor);

// way_out_x86_64.c

/// An address: the current value of a register plus a constant. Register 0 means none: no address is based on that one.
struct stackcap_sum {
    int base;
    int64_t offset;
};

/// How a function without an unwind table returns to its caller.
struct stackcap_way_out {
    struct stackcap_sum return_address;
    struct stackcap_sum saved[KEPT_REGISTERS];  ///< Where the caller's registers are saved; none for those that are unchanged.
    bool is_sure;  ///< The path is the function's own up to a return, as far as can be determined.
};

/// Decodes the function's instructions from the address on. If it is a return address, a call must precede it.
/// \returns false if no path leads to a return.
bool stackcap_find_way_out(stackcap_unwinder *unwinder, uint64_t address, bool is_return, struct stackcap_way_out *way);

enum { STACKCAP_STARTS = 4 };

/// The addresses where functions without an unwind table may start, in the same gap between tables' functions, up to the
/// address: the last STACKCAP_STARTS of them, each at its number % STACKCAP_STARTS. \returns the number of all.
size_t stackcap_find_starts(stackcap_unwinder *unwinder, uint64_t address, uint64_t starts[_Nonnull STACKCAP_STARTS]);

/// Like stackcap_find_way_out, but by the instructions from the function's start to the address: for a function that never
/// returns.
bool stackcap_find_way_in(stackcap_unwinder *unwinder, uint64_t start, uint64_t address, struct stackcap_way_out *way);

/// Finds the return address of the innermost function if it is in an unknown register: a frame record leads to the caller's
/// caller, the call there to the caller, and the calls in the caller to the place. Unwinds from the registers it found. Leaves
/// the registers unchanged if nothing fits.
void stackcap_guess_return_address(stackcap_unwinder *unwinder);

/// The distance of the frame pointer above the stack pointer in a function's body, from the instructions at its start.
/// \returns false for a function that sets up its frame in another way than compilers usually do.
bool stackcap_frame_pointer_distance(stackcap_unwinder *unwinder, uint64_t function, uint64_t *distance);

/// Makes a call that our signal has cut short start again when the handler returns, if it is one that never waits: poll and
/// select with a zero timeout, as event loops make them. Even these return EINTR when a signal is pending. A call that waits is
/// not changed: a signal of the application may have been meant to end it. Async-signal-safe; changes errno.
void stackcap_restart_looking_call(const struct stackcap_reader *reader, ucontext_t *context);

#pragma clang assume_nonnull end
