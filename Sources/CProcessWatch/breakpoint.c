/// A hardware breakpoint on one thread of another process, as an event of perf_event_open(2), and its hit from the event's ring buffer.
#include "CProcessWatch.h"

#include <errno.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// The registers of a sample, numbered as in asm/perf_regs.h. The sample has them in the order of their numbers.
#if defined(__x86_64__)
enum { FIRST_ARGUMENT = 5, STACK_POINTER = 7 };
#elif defined(__aarch64__)
enum { FIRST_ARGUMENT = 0, STACK_POINTER = 31 };
#endif

static size_t page_size(void) {
    long size = sysconf(_SC_PAGESIZE);
    return size > 0 ? (size_t)size : 4096;
}

static int open_event(struct perf_event_attr *event, pid_t thread) {
    int descriptor = (int)syscall(SYS_perf_event_open, event, thread, -1, -1, PERF_FLAG_FD_CLOEXEC);
    return descriptor >= 0 ? descriptor : -errno;
}

static int open_breakpoint(pid_t thread, uint64_t address) {
    struct perf_event_attr event = {
        .size = sizeof event,
        .type = PERF_TYPE_BREAKPOINT,
        .bp_type = HW_BREAKPOINT_X,
        .bp_addr = address,
#if defined(__aarch64__)
        .bp_len = HW_BREAKPOINT_LEN_4,
#else
        .bp_len = sizeof(long),
#endif
        .exclude_kernel = 1,
        .exclude_hv = 1,
        .disabled = 1,
        .sample_period = 1,
        .sample_type = PERF_SAMPLE_TIME | PERF_SAMPLE_REGS_USER,
        .sample_regs_user = 1ull << FIRST_ARGUMENT | 1ull << STACK_POINTER,
        .use_clockid = 1,
        .clockid = CLOCK_MONOTONIC,
    };
    return open_event(&event, thread);
}

/// Opens a new event each time: an event that has reached its limit cannot be started again (Linux 6.18, PERF_HES_STOPPED).
int process_watch_breakpoint_open(pid_t thread, uint64_t address, process_watch_breakpoint *opened) {
    int descriptor = open_breakpoint(thread, address);
    if (descriptor < 0)
        return -descriptor;
    void *ring = mmap(NULL, 2 * page_size(), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    int error = ring == MAP_FAILED ? errno : 0;
    if (!error && ioctl(descriptor, PERF_EVENT_IOC_REFRESH, 1) != 0) {
        error = errno;
        munmap(ring, 2 * page_size());
    }
    if (error) {
        close(descriptor);
        return error;
    }
    *opened = (process_watch_breakpoint){descriptor, ring};
    return 0;
}

/// Copies from the ring buffer, whose end is followed by its beginning.
static void copy_out(const char *data, size_t size, uint64_t from, void *to, size_t length) {
    size_t at = from % size, first = length < size - at ? length : size - at;
    memcpy(to, data + at, first);
    memcpy((char *)to + first, data, length - first);
}

bool process_watch_breakpoint_take(process_watch_breakpoint *breakpoint, process_watch_hit *hit) {
    struct perf_event_mmap_page *head = breakpoint->ring;
    size_t size = page_size();
    const char *data = (const char *)breakpoint->ring + size;
    uint64_t end = __atomic_load_n(&head->data_head, __ATOMIC_ACQUIRE), at = head->data_tail;
    bool found = false;
    while (at < end) {
        struct perf_event_header record;
        copy_out(data, size, at, &record, sizeof record);
        if (record.size < sizeof record || record.size > end - at) {
            at = end;
            break;
        }
        struct {
            uint64_t time, registers, first_argument, stack_pointer;
        } sample = {0};
        // This includes a hit without registers, and a sample that the kernel has lost: the breakpoint was hit anyway.
        if (!found && (record.type == PERF_RECORD_SAMPLE || record.type == PERF_RECORD_LOST)) {
            bool is_whole = record.type == PERF_RECORD_SAMPLE && record.size >= sizeof record + sizeof sample;
            if (is_whole)
                copy_out(data, size, at + sizeof record, &sample, sizeof sample);
            bool has_registers = is_whole && sample.registers != PERF_SAMPLE_REGS_ABI_NONE;
            *hit = (process_watch_hit){sample.time, sample.stack_pointer, sample.first_argument, has_registers};
            found = true;
        }
        at += record.size;
    }
    __atomic_store_n(&head->data_tail, at, __ATOMIC_RELEASE);
    return found;
}

void process_watch_breakpoint_close(process_watch_breakpoint *breakpoint) {
    munmap(breakpoint->ring, 2 * page_size());
    close(breakpoint->descriptor);
}

int process_watch_hold_events(void) {
    struct perf_event_attr event = {
        .size = sizeof event,
        .type = PERF_TYPE_SOFTWARE,
        .config = PERF_COUNT_SW_DUMMY,
        .disabled = 1,
        .exclude_kernel = 1,
        .exclude_hv = 1,
    };
    return open_event(&event, 0);
}

int process_watch_try_breakpoint(void) {
    process_watch_breakpoint opened;
    int error = process_watch_breakpoint_open(0, (uint64_t)(uintptr_t)&process_watch_try_breakpoint, &opened);
    if (!error)
        process_watch_breakpoint_close(&opened);
    return error;
}
