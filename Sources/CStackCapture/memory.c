#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

// Live memory. A load may fault: the stack may be gone, a module unloaded, the bounds stale. A system call reports that instead.

static ssize_t read_by_call(const struct stackcap_reader *reader, uint64_t address, void *to, size_t length) {
    struct iovec local = {to, length};
    struct iovec remote = {(void *)(uintptr_t)address, length};
    return process_vm_readv(reader->process, &local, 1, &remote, 1, 0);
}

ssize_t stackcap_read_live(const struct stackcap_reader *reader, uint64_t address, void *to, size_t length) {
    ssize_t count = reader->file < 0 ? read_by_call(reader, address, to, length)
                                     : pread(reader->file, to, length, (off_t)address);
    return count < 0 ? -errno : count;
}

static bool is_file(int file, const uint64_t identity[2]) {
    struct stat found;
    return fstat(file, &found) == 0 && found.st_dev == identity[0] && found.st_ino == identity[1];
}

static int open_file(struct stackcap_reader *reader) {
    struct stat opened;
    int file = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return errno;
    fstat(file, &opened);
    reader->file_identity[0] = opened.st_dev;
    reader->file_identity[1] = opened.st_ino;
    reader->file = file;
    return 0;
}

int stackcap_reader_prepare(struct stackcap_reader *reader, bool through_file) {
    stackcap_reader_finish(reader);
    reader->process = getpid();
    char from = 1, to = 0;
    if (!through_file && !stackcap_is_filtered() && read_by_call(reader, (uintptr_t)&from, &to, 1) == 1 && to == from)
        return 0;
    int error = open_file(reader);
    if (error)
        reader->process = 0;
    return error;
}

int stackcap_reader_refresh(struct stackcap_reader *reader, bool is_filtered) {
    bool through_file = reader->file >= 0;
    bool is_good = through_file ? is_file(reader->file, reader->file_identity) : !is_filtered && !stackcap_is_filtered();
    if (is_good && reader->process == getpid())
        return 0;
    return stackcap_reader_prepare(reader, through_file || is_filtered);
}

void stackcap_reader_prepare_other(struct stackcap_reader *reader, pid_t process, int memory, bool through_file,
                                   uint64_t probe) {
    stackcap_reader_finish(reader);
    reader->process = process;
    char byte;
    if (through_file || read_by_call(reader, probe, &byte, 1) != 1)
        reader->file = fcntl(memory, F_DUPFD_CLOEXEC, 0);
}

void stackcap_reader_finish(struct stackcap_reader *reader) {
    if (reader->file >= 0 && is_file(reader->file, reader->file_identity))
        close(reader->file);
    reader->file = -1;
    reader->process = 0;
}

// The copy of the stack.

int stackcap_copy_stack(stackcap_unwinder *unwinder, uint64_t stack_pointer, uint64_t low, uint64_t high) {
    struct stackcap_copy *copy = &unwinder->copy;
    // The compiler may still count on "frame pointer saved at CFA − 16" behind the pop that took it: that is in the red zone.
    uint64_t start = stack_pointer - low < RED_ZONE ? low : stack_pointer - RED_ZONE;
    uint64_t length = high - start < STACKCAP_MAX_COPY ? high - start : STACKCAP_MAX_COPY;
    copy->start = start;
    copy->high = high;
    copy->home_low = copy->home_start = copy->home_end = 0;
    ssize_t count = stackcap_read_live(&unwinder->reader, start, copy->bytes, length);
    copy->length = count < 0 ? 0 : (uint64_t)count;
    if (count < 0)
        return (int)-count;
    return start + copy->length > stack_pointer ? 0 : EFAULT;
}

enum { HALF = STACKCAP_MAX_COPY / 2, HOME_STEP = 32 * 1024 };

static bool read_home(stackcap_unwinder *unwinder, uint64_t start, uint64_t end) {
    uint8_t *to = unwinder->copy.bytes + STACKCAP_MAX_COPY - (unwinder->copy.home_end - start);
    return stackcap_read_live(&unwinder->reader, start, to, end - start) == (ssize_t)(end - start);
}

/// The first thread's stack is mapped only as far as it has been used: if the whole cannot be read, take what can from its outer end.
static void copy_home(stackcap_unwinder *unwinder, uint64_t low, uint64_t high) {
    struct stackcap_copy *copy = &unwinder->copy;
    copy->home_low = low;
    copy->home_start = copy->home_end = high;
    uint64_t start = high - low < HALF ? low : high - HALF;
    if (high > low && read_home(unwinder, start, high))
        copy->home_start = start;
    else
        while (copy->home_start - start >= HOME_STEP && read_home(unwinder, copy->home_start - HOME_STEP, copy->home_start))
            copy->home_start -= HOME_STEP;
}

int stackcap_copy_foreign_stack(stackcap_unwinder *unwinder, uint64_t stack_pointer, uint64_t low, uint64_t high) {
    struct stackcap_copy *copy = &unwinder->copy;
    copy_home(unwinder, low, high);
    // Below the stack pointer there may be no page.
    for (uint64_t red_zone = RED_ZONE;; red_zone = 0) {
        copy->start = stack_pointer - red_zone;
        ssize_t count = stackcap_read_live(&unwinder->reader, copy->start, copy->bytes, HALF);
        copy->length = count < 0 ? 0 : (uint64_t)count;
        copy->high = copy->start + copy->length;
        if (copy->high > stack_pointer && copy->length > 0)
            return 0;
        if (red_zone == 0)
            return count < 0 ? (int)-count : EFAULT;
    }
}

/// Whether the whole of [address, address + length) lies in the range, without overflow.
static bool contains(uint64_t start, uint64_t size, uint64_t address, size_t length) {
    return length <= size && address - start <= size - length;
}

static bool in_home_copy(const stackcap_unwinder *unwinder, uint64_t address, size_t length) {
    const struct stackcap_copy *copy = &unwinder->copy;
    return contains(copy->home_start, copy->home_end - copy->home_start, address, length);
}

static bool in_home(const stackcap_unwinder *unwinder, uint64_t address, size_t length) {
    const struct stackcap_copy *copy = &unwinder->copy;
    return contains(copy->home_low, copy->home_end - copy->home_low, address, length);
}

bool stackcap_is_further_out(const stackcap_unwinder *unwinder, uint64_t from, uint64_t to) {
    return to >= from || (in_home(unwinder, to, 1) && !in_home(unwinder, from, 1));
}

bool stackcap_is_beyond_foreign_copy(const stackcap_unwinder *unwinder, uint64_t stack_pointer) {
    const struct stackcap_copy *copy = &unwinder->copy;
    return copy->home_end > 0 && stack_pointer >= copy->high && !in_home(unwinder, stack_pointer, 1);
}

bool stackcap_copy_holds(const stackcap_unwinder *unwinder) {
    const struct stackcap_copy *copy = &unwinder->copy;
    uint8_t part[PAGE_SIZE];
    for (uint64_t at = 0; at < copy->length; at += sizeof part) {
        size_t length = copy->length - at < sizeof part ? copy->length - at : sizeof part;
        ssize_t count = stackcap_read_live(&unwinder->reader, copy->start + at, part, length);
        if (count != (ssize_t)length || memcmp(part, copy->bytes + at, length) != 0)
            return false;
    }
    if (copy->home_end > copy->home_start) {
        const uint8_t *bytes = copy->bytes + STACKCAP_MAX_COPY - (copy->home_end - copy->home_start);
        for (uint64_t at = copy->home_start; at < copy->home_end; at += sizeof part) {
            size_t length = copy->home_end - at < sizeof part ? copy->home_end - at : sizeof part;
            ssize_t count = stackcap_read_live(&unwinder->reader, at, part, length);
            if (count != (ssize_t)length || memcmp(part, bytes + (at - copy->home_start), length) != 0)
                return false;
        }
    }
    return copy->length > 0;
}

bool stackcap_in_copy(const stackcap_unwinder *unwinder, uint64_t address, size_t length) {
    return contains(unwinder->copy.start, unwinder->copy.length, address, length);
}

// The page cache: the unwinder asks for a table byte by byte.

void stackcap_pages_forget(struct stackcap_page_cache *pages) {
    pages->generation++;
}

static const uint8_t *_Nullable cached_page(stackcap_unwinder *unwinder, uint64_t page) {
    struct stackcap_page_cache *pages = &unwinder->pages;
    size_t index = (size_t)(page / PAGE_SIZE * 2654435761u >> 7) % PAGE_SLOTS;
    uint8_t *bytes = pages->bytes + index * PAGE_SIZE;
    if (pages->slots[index].page != page || pages->slots[index].generation != pages->generation) {
        pages->slots[index].page = page;
        pages->slots[index].generation = pages->generation;
        pages->slots[index].readable = stackcap_read_live(&unwinder->reader, page, bytes, PAGE_SIZE) == PAGE_SIZE;
    }
    return pages->slots[index].readable ? bytes : NULL;
}

bool stackcap_peek(stackcap_unwinder *unwinder, uint64_t address, void *to, size_t length) {
    const struct stackcap_copy *copy = &unwinder->copy;
    if (stackcap_in_copy(unwinder, address, length)) {
        memcpy(to, copy->bytes + (address - copy->start), length);
        return true;
    }
    if (in_home_copy(unwinder, address, length)) {
        memcpy(to, copy->bytes + STACKCAP_MAX_COPY - (copy->home_end - address), length);
        return true;
    }
    if (in_home(unwinder, address, length)) {
        unwinder->left_copy = true;
        return false;
    }
    if (copy->high > copy->start && contains(copy->start, copy->high - copy->start, address, length)) {
        unwinder->left_copy = true;  // The live stack is no answer: it may have moved on since.
        return false;
    }
    for (uint8_t *out = to; length > 0;) {
        uint64_t offset = address % PAGE_SIZE;
        size_t part = PAGE_SIZE - offset < length ? PAGE_SIZE - offset : length;
        const uint8_t *page = cached_page(unwinder, address - offset);
        if (!page)
            return false;
        memcpy(out, page + offset, part);
        out += part, address += part, length -= part;
    }
    return true;
}
