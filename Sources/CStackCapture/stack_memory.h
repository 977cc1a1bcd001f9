/// Memory of a process, ours or another, and the copy of a stack: memory.c, copy.c.
#pragma once

#include "CStackCapture.h"

#pragma clang assume_nonnull begin

struct stackcap_unwinder;
typedef struct stackcap_unwinder stackcap_unwinder;

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
    pid_t process;  ///< 0 while nothing can be read.
    int file;  ///< /proc/PID/mem, or −1 while process_vm_readv works.
    uint64_t file_identity[2];  ///< Device and inode: the application may close all descriptors and reuse their numbers.
};

// memory.c

/// Opens a file of /proc that shows this process's memory, such as "maps", for reading. −1 with errno set if that fails. Once the first
/// thread has ended, only the files of other threads show it, so that of the calling thread is tried first. A profile of AppArmor may
/// permit the process's only.
int stackcap_open_own(const char *name);
/// Chooses process_vm_readv, or /proc/self/mem if a sandbox refuses it. A sandbox may also end a process for the call: if
/// there is one, the call is not tried.
int stackcap_reader_prepare(struct stackcap_reader *reader, bool through_file);
/// The same for another process: by process_vm_readv if that may read `probe`, otherwise through the open /proc/PID/mem.
int stackcap_reader_prepare_other(struct stackcap_reader *reader, pid_t process, int memory, bool through_file, uint64_t probe);

/// To be called again before each capture: after a fork, or after a sandbox was installed, or the application has closed the
/// file.
int stackcap_reader_refresh(struct stackcap_reader *reader, bool is_filtered);
void stackcap_reader_finish(struct stackcap_reader *reader);

/// Copies live memory. Async-signal-safe; changes errno; never faults; no cancellation point.
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

#pragma clang assume_nonnull end
