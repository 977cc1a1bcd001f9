#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
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

int stackcap_reader_prepare(struct stackcap_reader *reader, bool through_file) {
    pid_t process = getpid();
    if (reader->process == process)
        return 0;
    stackcap_reader_finish(reader);
    reader->process = process;
    char from = 1, to = 0;
    if (!through_file && read_by_call(reader, (uintptr_t)&from, &to, 1) == 1 && to == from)
        return 0;
    reader->file = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    if (reader->file >= 0)
        return 0;
    reader->process = 0;
    return errno;
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
    if (reader->file >= 0)
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
    ssize_t count = stackcap_read_live(&unwinder->reader, start, copy->bytes, length);
    copy->length = count < 0 ? 0 : (uint64_t)count;
    if (count < 0)
        return (int)-count;
    return start + copy->length > stack_pointer ? 0 : EFAULT;
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
    return copy->length > 0;
}

/// Whether the whole of [address, address + length) lies in the range, without overflow.
static bool contains(uint64_t start, uint64_t size, uint64_t address, size_t length) {
    return length <= size && address - start <= size - length;
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
