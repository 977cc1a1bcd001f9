/// What the parts of the capture share. Nothing here is public.
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

/// A piece of a stack as it was.
struct stackcap_part {
    uint8_t *bytes;
    uint64_t start, length;
};

struct stackcap_copy {
    uint8_t *bytes;  ///< STACKCAP_MAX_COPY of them, for both parts.
    struct stackcap_part inner;  ///< From the stack pointer on.
    /// The outer end of a stack that is larger than the buffer; or the outer end of the thread's own stack, when it is on a foreign one:
    /// the way out of a signal's handler leads there.
    struct stackcap_part outer;
    uint64_t high;  ///< The outer end of the stack that the thread was on. What was not copied up to here may have changed since.
    bool is_foreign;  ///< The thread was on a stack not its own: an alternate signal stack, a coroutine's.
    uint64_t home_low;  ///< Where its own begins then.
    uint64_t held_ns;  ///< What the thread was held for it.
    uint64_t made_ns;  ///< When at the latest. Of another process.
};

/// Direct-mapped, one capture old at most: a module that is replaced at the same address must not leave its tables behind. What came
/// with the program stays: stackcap_is_lasting.
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
    uint64_t file_identity[2];  ///< Device and inode: the application may close all descriptors and use their numbers again.
};

// loader.c

enum { LOADER_ADDS = 6 };

/// Where this process's dynamic loader stands. As long as it is the same, no module has come or gone.
struct stackcap_loader {
    uint64_t adds[LOADER_ADDS];  ///< Modules that were ever loaded. By chance more than once.
    unsigned modules;            ///< Those that are there.
    int at_work;                 ///< r_state: see link.h.
};

// rows.c

enum { ROW_SLOTS = 2048 };

/// What the unwind row of one address comes to: the caller's registers, as sums of one register and a constant.
struct stackcap_row {
    uint64_t address;  ///< Where it was looked up; 0 for none.
    uint64_t walk;     ///< The capture it is good for. 0 for all: its module cannot be unloaded.
    enum { ROW_SEEN, ROW_USABLE, ROW_UNUSABLE } state;
    int base;                      ///< The register that all offsets are from.
    int32_t return_address;        ///< Where this lies.
    int32_t stack_pointer;         ///< The caller's.
    int32_t saved[KEPT_REGISTERS]; ///< Where these lie; INT32_MIN for one that has not been touched.
};

/// Direct-mapped.
struct stackcap_rows {
    struct stackcap_row *slots;
    uint64_t walk;
};

/// Where a walk stands: in the cursor, in the registers, or in both.
struct stackcap_walk {
    uint64_t address;
    uint64_t stack_pointer;
    uint64_t lookup;  ///< Where the address's row is looked up: one before, for a return address.
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

/// The part of the heap that ends with a context, as it was right after the stack was copied.
struct stackcap_glimpse {
    uint64_t start, length;
    uint8_t bytes[STACKCAP_GLIMPSE_BYTES];
};

/// The registers of a frame by which its context may be found; 0 if unknown.
struct stackcap_async_registers {
    uint64_t frame_pointer, context;
};

/// A frame that was started as the Swift concurrency runtime starts jobs.
struct stackcap_async_site {
    size_t frame;
    uint64_t low, high;       ///< Its part of the stack.
    uint64_t return_address;  ///< Behind the job's call.
    struct stackcap_async_registers registers;
    uint64_t job;  ///< In the calling frame; 0 if unknown.
};

/// What the walk sees of asynchronous functions, and what was made of it.
struct stackcap_async {
    struct stackcap_async_site sites[STACKCAP_ASYNC_SITES];  ///< Innermost first.
    size_t site_count;
    uint64_t other_calls[STACKCAP_OTHER_CALLS];  ///< Return addresses of this walk's that are no job's call. Direct-mapped.
    uint64_t awaiting[STACKCAP_MAX_AWAITING];
    uint64_t contexts[STACKCAP_MAX_AWAITING];
    uint64_t first;     ///< The context that the chain begins with.
    uint64_t low, high; ///< The part of the stack of the frame that it is awaited from.
    uint64_t job_call;     ///< The return address of the last job's call. It is the same for nearly all.
    uint64_t job_call_at;  ///< Where it stood on the stack. The same for most captures of a thread.
    uint64_t glimpsed_at;  ///< Where it stood in this copy; 0 if it was not found.
    bool is_exact;      ///< The chain is as it was then.
    int contexts_left;  ///< How many may still be looked at.
    struct stackcap_glimpse glimpses[STACKCAP_GLIMPSES];
    stackcap_async_callers callers;
};

// unwinder.c

/// How often one walk is helped on by a search of the stack.
enum { MAX_SCANS = 4 };

/// A thread asleep: /proc/PID/task, its number, and where it was seen.
struct stackcap_sleeper {
    int tasks;  ///< AT_FDCWD for our own process.
    pid_t thread;
    stackcap_look seen;
};

/// A stack that is being unwound: its copy, the memory around it, and where the walk stands. How the copy came about is its
/// owner's business.
typedef struct stackcap_unwinder {
    struct stackcap_copy copy;
    struct stackcap_reader reader;
    struct stackcap_page_cache pages;
    struct stackcap_loader loader;  ///< As it was when the stack was copied. Of this process alone.
    bool distrusts_loaded;          ///< Modules have come or gone since: only those that came with the program are what they were then.
    struct stackcap_registers registers;  ///< Where the walk starts,
    struct stackcap_registers start;      ///< … before guesses were put into them.
    bool registers_are_guessed;           ///< Only program counter and stack pointer are known: of a thread asleep,
    struct stackcap_sleeper sleeper;      ///< … this one.
    struct stackcap_rows rows;
    struct stackcap_registers resumed;    ///< Where it went on behind code without an unwind table.
    stackcap_found found_behind_gap;      ///< How the frame behind the last code without a table was found.
    stackcap_found return_found;  ///< How the second frame was found, if that is known better than by the walk; else 0.
    size_t scanned[MAX_SCANS];    ///< The frames that were found by a search of the stack.
    size_t scanned_count;
    uint64_t gap_record;  ///< The frame record to go on from where the return address is unknown, or 0.
    int address_bias;  ///< To be added to the cursor's address: see stackcap_step.
    struct stackcap_modules *_Nullable modules;  ///< Another process's. NULL: those of this one, as the loader knows them.

    unw_addr_space_t space;
    bool lacked_table;  ///< Since last cleared: an address had no unwind table.
    bool met_unknown;   ///< … a register that is not known was used as an address.
    bool left_copy;     ///< … the stack was read beyond the copy.
    const struct stackcap_registers *current;  ///< What libunwind is shown of the registers.
    uint64_t first_unknown;  ///< The address computed from an unknown register that was used first, 0 for none.
    bool reads_middle;  ///< Between the two copied ends, memory is read as it is now.
    bool read_middle;   ///< … and was.
    uint64_t walk_until_ns;  ///< On the capturing thread's own clock.
    stackcap_frame *frames;  ///< The first half for the innermost, the second one a ring for the others: stackcap_frame_at.
    uint64_t trail;          ///< Of all frames: two walks that have the same went the same way.
    size_t frame_count;      ///< Also of those that fell out of the ring.
    stackcap_end end;
    bool ended_at_zero;  ///< … by a return address of 0, which a wrong guess can lead to as well.
    int unwinder_error;
    struct stackcap_async async;
} stackcap_unwinder;

/// Allocates the buffers, populated, and makes libunwind initialise itself. \returns 0 or an error number; then finish it.
int stackcap_unwinder_prepare(stackcap_unwinder *unwinder);
void stackcap_unwinder_finish(stackcap_unwinder *unwinder);

// look.c. `tasks` is an open /proc/PID/task, or AT_FDCWD for this process's.

stackcap_outcome stackcap_look_in(int tasks, pid_t thread, stackcap_look *look);
stackcap_outcome stackcap_count_sleeps(int tasks, pid_t thread, uint64_t *sleeps);

/// Whether a signal has stopped it: it stands still, where the kernel shows no more of it than two registers.
bool stackcap_is_stopped(int tasks, pid_t thread);

/// Copies the stack of a thread that sleeps, by an unwinder whose reader is prepared. See stackcap_copy_blocked.
stackcap_outcome stackcap_copy_asleep(stackcap_unwinder *unwinder, int tasks, pid_t thread, uint64_t low, uint64_t high,
                                      const stackcap_look *seen);

// modules.c

/// Where a module lies, and its .eh_frame_hdr; 0 if it has none. The base is to be added to what its headers say.
struct stackcap_module {
    uint64_t start, end, table, base;
};

struct stackcap_index;

/// What is mapped in another process, as /proc/PID/maps said when it was last read.
struct stackcap_modules {
    int directory;  ///< /proc/PID, or /proc/PID/task/TID.
    char *_Nullable text;
    size_t length, capacity;
    struct stackcap_mapping *_Nullable mappings;  ///< By address.
    size_t count, mapping_capacity;
    uint64_t read_at_ns, read_cost_ns;
    struct stackcap_index *_Nullable indexes;
};

/// Reads the maps. Allocates. \returns 0 or an error number: ESRCH for a process that has ended.
int stackcap_modules_read(struct stackcap_modules *modules);
void stackcap_modules_finish(struct stackcap_modules *modules);

/// Reads the maps again, but never more than 5 % of the time: those of a large process take milliseconds.
int stackcap_modules_keep_up(struct stackcap_modules *modules);

/// Finds the module around the address, by the headers that stand in its memory.
bool stackcap_modules_find(stackcap_unwinder *unwinder, uint64_t address, struct stackcap_module *module);

/// The first address that is mapped, 0 if none is.
uint64_t stackcap_modules_start(const struct stackcap_modules *modules);

/// The bounds of the mapping around the address. \returns false for none.
bool stackcap_modules_bounds(const struct stackcap_modules *modules, uint64_t address, uint64_t *low, uint64_t *high);

/// The file behind a module.
struct stackcap_origin {
    uint64_t at, end;        ///< The mapping with its ELF header.
    uint64_t base;           ///< To be added to what the headers say.
    uint64_t low, high;      ///< All of the module.
    uint64_t device, inode;  ///< As the maps have them.
    const char *path;        ///< Good until the maps are read again.
};

/// Says where the module around the address comes from. \returns false for none.
/// \param has_table whether it has a search table for its unwind rows.
bool stackcap_modules_origin(stackcap_unwinder *unwinder, uint64_t address, struct stackcap_origin *origin, bool *has_table);

/// Whether the address is one that may be executed. Reads the maps again if it is not, and they are older than the last copy.
bool stackcap_modules_is_code(stackcap_unwinder *unwinder, uint64_t address);

// sections.c

enum { STACKCAP_MAX_SECTION = 64 * 1024 * 1024 };

/// Unwind rows as the file has them: .eh_frame, which is loaded, and .debug_frame, which is for debuggers only.
struct stackcap_sections {
    uint8_t *_Nullable loaded, *_Nullable debug;
    size_t loaded_length, debug_length;
    uint64_t loaded_at;  ///< Before the base is added.
};

/// Reads them from the module's file, if that can be opened and is the one that is mapped. Allocates; free it in any case.
void stackcap_sections_read(stackcap_unwinder *unwinder, const struct stackcap_origin *origin, struct stackcap_sections *sections);
void stackcap_sections_free(struct stackcap_sections *sections);

// index.c

struct stackcap_indexed_row {
    uint64_t start, end;   ///< The function.
    uint64_t description;  ///< Its row's address, for libunwind.
};

enum stackcap_indexed {
    INDEXED_NOT,
    INDEXED_BETWEEN,  ///< Between two functions: the row is that of the one before.
    INDEXED_FOUND,
};

/// Finds the row of an address of another process by an index of our own. Makes it on first need: allocates, and reads a file.
enum stackcap_indexed stackcap_index_find(stackcap_unwinder *unwinder, uint64_t address, struct stackcap_indexed_row *row);

/// The address of a search table of one entry, which fits every address and leads to where the table's base is.
uint64_t stackcap_index_table(void);

/// Reads from that table, and from rows that are not in the target's memory. \returns false for another address.
bool stackcap_index_read(const struct stackcap_modules *modules, uint64_t address, void *to, size_t length);

void stackcap_indexes_free(struct stackcap_modules *modules);

// process.c, stop.c

/// What a thread has waited for processors in its life.
struct stackcap_waits {
    uint64_t waited_ns, turns;
};

/// The one thread that may stop threads of the other process. The kernel ties a stopped thread to the thread that stopped it, and
/// lets it go when that one ends: however a stop goes wrong, ending the thread sets it right.
struct stackcap_tracer {
    pthread_t handle;
    bool exists;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum { TRACER_RESTS, TRACER_WANTED, TRACER_ANSWERED, TRACER_DISMISSED } turn;
    bool leaves;  ///< With this answer, and lets go of what it still holds.
    pid_t thread;
    bool wants_halted;
    uint64_t deadline_ns;
    stackcap_outcome outcome;
    bool has_let_go;  ///< A thread was stopped and let go for this answer, at this moment; it had waited so long until then.
    uint64_t let_go_ns;
    struct stackcap_waits waits;
};

struct stackcap_process {
    pid_t process;
    int directory;  ///< /proc/PID: stays this process's, whoever gets its number later.
    int tasks;      ///< /proc/PID/task.
    int living;     ///< /proc/PID/task/TID of another thread, once the first one has ended; else −1.
    int memory;     ///< /proc/PID/mem. Stays the program's that ran when it was opened: reads nothing once another one does.
    bool read_through_file;
    stackcap_unwinder unwinder;
    struct stackcap_modules modules;
    struct stackcap_tracer tracer;
    stackcap_process_counters counters;
};

/// Stops, copies and lets go, on the tracer's thread. See stackcap_process_copy_stopped.
/// \param wants_halted a thread that a signal has stopped outside of system calls, instead of a running one.
stackcap_outcome stackcap_tracer_copy(stackcap_process *process, pid_t thread, bool wants_halted, uint64_t deadline_ns);
/// Counts what the thread that was let go has waited for a processor since then. Once, and not much later: it waits for its own reasons, too.
void stackcap_tracer_count_wait(stackcap_process *process);
void stackcap_tracer_prepare(struct stackcap_tracer *tracer);
void stackcap_tracer_finish(struct stackcap_tracer *tracer);

// request.c

/// What the capturing thread asks and the handler answers. `word` says whose turn it is: see request.c.
struct stackcap_request {
    _Atomic uint64_t word;
    _Atomic pid_t thread;
    uint64_t low, high;
    struct stackcap_registers registers;
    int copy_error;
    bool is_foreign;  ///< The thread is on another stack than its own.
    uint64_t copied_ns;  ///< When it was served.
    pid_t left_open;  ///< Nobody waits for it any more, but whoever captures this thread next may find it served. The capturer's; 0 for none.
};

// previous.c

/// The handler that was there before ours.
struct stackcap_previous {
    _Atomic(const struct sigaction *) action;
    struct sigaction kept[2];
    atomic_bool is_spent;  ///< It asked to be called once (SA_RESETHAND), and was.
};

/// Not in a handler.
void stackcap_previous_keep(struct stackcap_previous *previous, const struct sigaction *action);

/// What to install when ours goes.
void stackcap_previous_restore(const struct stackcap_previous *previous, struct sigaction *action);

/// What of its flags the kernel acts upon when it delivers to ours: what the application's signal does to system calls, and on
/// which stack, stays as the application chose it.
int stackcap_flags_over(const struct sigaction *action);

/// Acts as the kernel would have without us. In the handler.
void stackcap_previous_call(struct stackcap_previous *previous, int signal, siginfo_t *info, void *context);

struct stackcap_session {
    int signal;
    uint32_t mark;  ///< In every signal we send, so that the application's own are told apart.
    bool open;
    pid_t process;  ///< That opened it. A fork's child inherits a session that nobody there can close.
    bool in_chain;  ///< Our handler is installed, or someone may pass signals on to it.
    uintptr_t cover;         ///< The handler seen over ours,
    uint64_t passed_before;  ///< … and what had been chained when it was first seen there.
    struct stackcap_previous previous;

    struct stackcap_request request;
    stackcap_unwinder unwinder;

    _Atomic uint64_t sent_ns;  ///< When the last one was sent.
    _Atomic uint64_t sent, arrived, late, chained, calls_cut_short;
};

/// The signal handler's life. \returns 0 or an error number.
int stackcap_handler_install(struct stackcap_session *session);
/// Not when another handler has replaced ours, which then stays below it.
void stackcap_handler_remove(struct stackcap_session *session);
bool stackcap_handler_is_busy(const struct stackcap_session *session);
/// In a fork's child, at once: the request that took the place of an ignored signal is its parent's, and nobody in the child would make
/// it ignored again, nor would a program that it executes get it so.
void stackcap_handler_ignore_in_child(struct stackcap_session *session);
/// In a fork's child, where no thread is left that could answer.
void stackcap_request_forget(struct stackcap_session *session);

// look.c

/// Whether the calling thread's system calls pass a filter (seccomp(2)). Looked up anew every 10 ms.
bool stackcap_is_filtered(void);

// look.c

/// Reads the thread's name, at most 15 bytes; empty if there is no such thread.
void stackcap_thread_name(pid_t thread, char name[_Nonnull 16]);

/// Whether the thread that was last copied without a signal has not run since.
bool stackcap_sleeps_on(const stackcap_unwinder *unwinder);

// memory.c

/// Chooses process_vm_readv, or /proc/self/mem where a sandbox refuses it. A sandbox may as well end a process for the call: where
/// there is one, the call is not tried.
int stackcap_reader_prepare(struct stackcap_reader *reader, bool through_file);
/// The same for another process: by process_vm_readv if that may read `probe`, or else through the open /proc/PID/mem.
int stackcap_reader_prepare_other(struct stackcap_reader *reader, pid_t process, int memory, bool through_file, uint64_t probe);

/// Again before each capture: after a fork, or once a sandbox has been put up, or the application has closed the file.
int stackcap_reader_refresh(struct stackcap_reader *reader, bool is_filtered);
void stackcap_reader_finish(struct stackcap_reader *reader);

/// Copies live memory. Async-signal-safe; changes errno; never faults.
/// \returns the bytes read from the start, or −errno.
ssize_t stackcap_read_live(const struct stackcap_reader *reader, uint64_t address, void *to, size_t length);

/// Forgets all cached pages but those that last.
void stackcap_pages_forget(struct stackcap_page_cache *pages);
void stackcap_pages_forget_all(struct stackcap_page_cache *pages);

/// Reads from the copy, or else from memory that is not the stack, through the page cache. Not in the handler.
bool stackcap_peek(stackcap_unwinder *unwinder, uint64_t address, void *to, size_t length);

/// Reads `length` bytes of instructions from `address`, over two pages at most. What lies on a page that cannot be read is zeros: code
/// may begin or end at a page's edge.
void stackcap_peek_code(stackcap_unwinder *unwinder, uint64_t address, void *code, size_t length);

// copy.c

/// Copies [stack_pointer − red zone, high) into the copy's buffer: both ends if it is more than STACKCAP_MAX_COPY.
/// Async-signal-safe; changes errno.
/// \returns 0 or an error number.
int stackcap_copy_stack(stackcap_unwinder *unwinder, uint64_t stack_pointer, uint64_t low, uint64_t high);

/// Copies what lies at the stack pointer, up to the first page that cannot be read, and the outer part of the thread's own stack
/// [low, high), on which it is not just now; at most STACKCAP_MAX_COPY / 2 of each. Async-signal-safe; changes errno.
/// \returns 0 or an error number.
int stackcap_copy_foreign_stack(stackcap_unwinder *unwinder, uint64_t stack_pointer, uint64_t low, uint64_t high);

/// Says where the stack ends, if that was not known when it was copied. Not in the handler.
void stackcap_bound_copy(stackcap_unwinder *unwinder, uint64_t high);

/// Whether the stack still reads as it was copied. Not in the handler.
bool stackcap_copy_holds(const stackcap_unwinder *unwinder);

/// Whether memory on both sides of what was not copied between the two ends reads as it was copied, as far out as the outermost frame. After a
/// walk, and not in the handler.
bool stackcap_middle_holds(const stackcap_unwinder *unwinder);

bool stackcap_in_copy(const stackcap_unwinder *unwinder, uint64_t address, size_t length);
bool stackcap_in_outer_copy(const stackcap_unwinder *unwinder, uint64_t address, size_t length);

/// Whether the way from one frame to the next is that from a foreign stack to the thread's own.
bool stackcap_leads_home(const stackcap_unwinder *unwinder, uint64_t from, uint64_t to);

/// Whether a frame lies neither on the stack that was copied nor on the thread's own: on another one, of which nothing is known.
bool stackcap_is_off_stack(const stackcap_unwinder *unwinder, uint64_t stack_pointer);

enum stackcap_place {
    PLACE_COPIED,
    PLACE_NOT_COPIED,  ///< On the stack all the same.
    PLACE_MIDDLE,      ///< On the stack, between the two ends of a large one.
    PLACE_ELSEWHERE,   ///< Not on the stack.
};

/// Reads from the copy if the memory lies there. \returns where it lies.
enum stackcap_place stackcap_copy_read(const stackcap_unwinder *unwinder, uint64_t address, void *to, size_t length);

// loader.c

/// Some loads: takes no lock, async-signal-safe.
void stackcap_loader_read(struct stackcap_loader *loader);

/// Whether modules have come or gone since. false, too, where that cannot be told: in a static program.
bool stackcap_loader_has_moved(const struct stackcap_loader *since);

// tables.c

/// Whether the code at the address may be another by now than when the stack was copied.
bool stackcap_is_distrusted(const stackcap_unwinder *unwinder, uint64_t address);

/// Finds the unwind row for an address, by the tables as they stand in memory, and without the loader's lock.
/// \returns 0, or libunwind's code; lacked_table is set then.
int stackcap_find_procedure(stackcap_unwinder *unwinder, unw_word_t address, unw_proc_info_t *procedure, int needs_info);

/// Where the function around `address` starts, 0 if no unwind table says.
uint64_t stackcap_function_start(stackcap_unwinder *unwinder, uint64_t address);

/// Whether an unwind table has a function that starts here, or has none around here where one may start.
bool stackcap_may_start_function(stackcap_unwinder *unwinder, uint64_t address);

/// The part of a module around the address that belongs to none of its table's functions: [low, high). \returns false for none.
bool stackcap_gap_around(stackcap_unwinder *unwinder, uint64_t address, uint64_t *low, uint64_t *high);

/// Whether the address lies in a module.
bool stackcap_in_module(stackcap_unwinder *unwinder, uint64_t address);

// walk.c

/// Creates libunwind's address space and makes it initialise itself. Allocates. \returns 0 or an error number.
int stackcap_space_prepare(stackcap_unwinder *unwinder);

/// Unwinds the last copy. See stackcap_unwind.
stackcap_outcome stackcap_unwind_copy(stackcap_unwinder *unwinder, stackcap_unwound *unwound);

/// Unwinds from the registers into the frames. \returns whether the first frame was found.
bool stackcap_unwind_from_registers(stackcap_unwinder *unwinder);

/// Reads a word for the unwinder; what looks like a frame pointer loses Swift's mark. met_unknown and first_unknown say if the
/// address cannot be known.
bool stackcap_read_word(stackcap_unwinder *unwinder, uint64_t address, uint64_t *value);

/// \returns a register as the frame had it that the walk stands on; 0 if that is not known.
uint64_t stackcap_walk_register(struct stackcap_walk *walk, int number);

/// Reads what is known of the registers of the frame that the walk stands on.
void stackcap_walk_read_registers(struct stackcap_walk *walk, struct stackcap_registers *registers);

/// \returns the frame with this index, innermost 0; it is another one's if it fell out of the ring.
stackcap_frame *stackcap_frame_at(const stackcap_unwinder *unwinder, size_t index);

// rows.c

/// Whether the address lies in a part that cannot be written of a module that came with this program, and so is never unloaded.
bool stackcap_is_lasting(const stackcap_unwinder *unwinder, uint64_t address);

/// Unwinds to the caller by a row that is known already: a twentieth of libunwind's time, which looks it up and reads it again.
/// \returns false, with nothing changed, where there is none, or it leads nowhere: libunwind then has the word.
bool stackcap_row_step(stackcap_unwinder *unwinder, struct stackcap_walk *walk);

/// What has to be noted before a step of libunwind's, so that its row can be learnt from it.
struct stackcap_lesson {
    struct stackcap_row *_Nullable row;  ///< None, where there is nothing to learn.
    uint64_t before[KEPT_REGISTERS];     ///< Where the registers were saved.
    uint64_t bases[KEPT_REGISTERS + 1];  ///< What they held; the stack pointer last.
};
void stackcap_row_watch(stackcap_unwinder *unwinder, struct stackcap_walk *walk, struct stackcap_lesson *lesson);
void stackcap_row_learn(stackcap_unwinder *unwinder, struct stackcap_walk *walk, const struct stackcap_lesson *lesson);

// async.c

/// Reads what is likely to be the innermost contexts of a thread right after its stack: when that has been unwound, they may be gone. At
/// most 25 system calls, three for nearly all; nothing is believed of what they give. Async-signal-safe; changes errno.
/// \param context_register 0 if unknown.
void stackcap_async_glimpse(stackcap_unwinder *unwinder, uint64_t context_register);
/// Forgets the glimpses that are no longer what is there: of a thread that has run meanwhile.
void stackcap_async_recheck_glimpses(stackcap_unwinder *unwinder);
/// Forgets what an earlier walk saw.
void stackcap_async_begin(stackcap_unwinder *unwinder);
/// Looks at the walk's latest frame: whether it started the one before it as a job. Reads a few bytes of code.
void stackcap_async_notice(stackcap_unwinder *unwinder, const struct stackcap_async_registers *callee,
                           struct stackcap_walk *caller);
/// Follows the contexts of the innermost asynchronous frame into async.callers. Reads the live heap; never faults.
void stackcap_async_read(stackcap_unwinder *unwinder);
/// Whether the chain is the one of the moment of the copy: its beginning was seen then, and the rest of it and the frame are unchanged.
bool stackcap_async_holds(const stackcap_unwinder *unwinder);
/// Gives up the chain, but not the frame.
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

/// How well the instruction before a return address fits a call of `function`. 0: it is no call.
enum { CALL_NONE = 0, CALL_ELSEWHERE, CALL_INDIRECT, CALL_MATCHES };
int stackcap_call_before(stackcap_unwinder *unwinder, uint64_t return_address, uint64_t function);

/// Whether a signal's handler returns to this address: the frame further out was interrupted, it did not call.
bool stackcap_is_signal_return(stackcap_unwinder *unwinder, uint64_t address);
/// One step of the cursor to the caller: unw_step, and where that has no unwind table, by what the code does, or by the frame pointer.
/// \returns as unw_step does; found_behind_gap is set without a table.
int stackcap_step(stackcap_unwinder *unwinder, unw_cursor_t *cursor);

// way_out_x86_64.c

/// An address: a register, as it is now, and a constant. Register 0 for none: no address is counted from that one.
struct stackcap_sum {
    int base;
    int64_t offset;
};

/// How a function without an unwind table comes back to its caller.
struct stackcap_way_out {
    struct stackcap_sum return_address;
    struct stackcap_sum saved[KEPT_REGISTERS];  ///< Where the caller's lie; none for those that still are what they were.
    bool is_sure;  ///< The way is the function's own up to a return, for all that can be told.
};

/// Reads the function's instructions from the address on. A call is expected to have been made there if that is where it returns to.
/// \returns false where no way leads out.
bool stackcap_find_way_out(stackcap_unwinder *unwinder, uint64_t address, bool is_return, struct stackcap_way_out *way);

enum { STACKCAP_STARTS = 4 };

/// Where functions without an unwind table may start, in the same gap between tables' functions, up to the address: the last STACKCAP_STARTS
/// of them, each at its number % STACKCAP_STARTS. \returns how many there are in all.
size_t stackcap_find_starts(stackcap_unwinder *unwinder, uint64_t address, uint64_t starts[_Nonnull STACKCAP_STARTS]);

/// The same as stackcap_find_way_out by the instructions from the function's start to the address: for a function that never returns.
bool stackcap_find_way_in(stackcap_unwinder *unwinder, uint64_t start, uint64_t address, struct stackcap_way_out *way);

/// Finds out where the innermost function returns to, where that is in a register that is unknown: a frame record leads to the
/// caller's caller, the call there to the caller, and the calls in the caller to the place. Unwinds from the registers it found.
/// Leaves the registers as they were if nothing fits.
void stackcap_guess_return_address(stackcap_unwinder *unwinder);

/// How far the frame pointer lies above the stack pointer in a function's body, read from the instructions at its start.
/// \returns false for a function that sets its frame up in another way than compilers usually do.
bool stackcap_frame_pointer_distance(stackcap_unwinder *unwinder, uint64_t function, uint64_t *distance);

/// Has a call that our signal has cut short begin again when the handler returns, if it is one that only looks and never waits: poll and
/// select without time, as event loops make them. Even these return EINTR when a signal is pending. A call that waits is left alone:
/// a signal of the application's own may have been meant to end it. Async-signal-safe; changes errno.
void stackcap_restart_looking_call(const struct stackcap_reader *reader, ucontext_t *context);

#pragma clang assume_nonnull end
