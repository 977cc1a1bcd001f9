/// Reads memory that may be unmapped at any time, of this process or another, without ever faulting: for the copy of a stack at once, for the
/// unwinder through a cache of pages.
#include "look.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

// Live memory. A load may fault: the stack may be gone, a module unloaded, the bounds stale. A system call returns an error
// instead.

static ssize_t read_by_call(const struct stackcap_reader *reader, uint64_t address, void *to, size_t length) {
    struct iovec local = {to, length};
    struct iovec remote = {(void *)(uintptr_t)address, length};
    ssize_t count = process_vm_readv(reader->process, &local, 1, &remote, 1, 0);
    // Once the first thread has ended, the process's number leads to no memory. That of any other thread does.
    if (count < 0 && errno == ESRCH && reader->process == getpid())
        count = process_vm_readv(stackcap_own_thread(), &local, 1, &remote, 1, 0);
    return count;
}

/// Not by pread(3), which is a cancellation point: in the handler, a thread that the application has cancelled would end there, in
/// the middle of whatever was interrupted.
static ssize_t read_by_file(const struct stackcap_reader *reader, uint64_t address, void *to, size_t length) {
    return (ssize_t)syscall(SYS_pread64, reader->file, to, length, (off_t)address);
}

ssize_t stackcap_read_live(const struct stackcap_reader *reader, uint64_t address, void *to, size_t length) {
    if (reader->process == 0)
        return -ESRCH;  // without the call, which a sandbox may forbid
    ssize_t count = reader->file < 0 ? read_by_call(reader, address, to, length) : read_by_file(reader, address, to, length);
    return count < 0 ? -errno : count;
}

static bool is_file(int file, const uint64_t identity[2]) {
    struct stat found;
    return fstat(file, &found) == 0 && found.st_dev == identity[0] && found.st_ino == identity[1];
}

/// \param file −1 with errno set if it could not be opened.
static int take_file(struct stackcap_reader *reader, pid_t process, int file) {
    struct stat opened;
    if (file < 0)
        return errno;
    if (fstat(file, &opened) != 0) {
        int error = errno;
        close(file);
        return error;
    }
    reader->file_identity[0] = opened.st_dev;
    reader->file_identity[1] = opened.st_ino;
    reader->file = file;
    reader->process = process;
    return 0;
}

int stackcap_open_own(const char *name) {
    int directory = -1, file = -1;
    static const char *const places[] = {"/proc/thread-self", "/proc/self"};
    for (int place = 0; file < 0 && place < 2; place++) {
        directory = open(places[place], O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (directory < 0)
            continue;
        file = openat(directory, name, O_RDONLY | O_CLOEXEC);
        int error = errno;
        close(directory);
        errno = error;
    }
    return file;
}

int stackcap_reader_prepare(struct stackcap_reader *reader, bool through_file) {
    stackcap_reader_finish(reader);
    struct stackcap_reader by_call = {.process = getpid(), .file = -1};
    char from = 1, to = 0;
    if (!through_file && !stackcap_is_filtered() && read_by_call(&by_call, (uintptr_t)&from, &to, 1) == 1 && to == from)
        return *reader = by_call, 0;
    return take_file(reader, by_call.process, stackcap_open_own("mem"));
}

int stackcap_reader_refresh(struct stackcap_reader *reader, bool is_filtered) {
    bool through_file = reader->file >= 0;
    bool is_good = through_file ? is_file(reader->file, reader->file_identity) : !is_filtered && !stackcap_is_filtered();
    if (is_good && reader->process == getpid())
        return 0;
    return stackcap_reader_prepare(reader, through_file || is_filtered);
}

int stackcap_reader_prepare_other(struct stackcap_reader *reader, pid_t process, int memory, bool through_file, uint64_t probe) {
    stackcap_reader_finish(reader);
    struct stackcap_reader by_call = {.process = process, .file = -1};
    char byte;
    if (!through_file && !stackcap_is_filtered() && read_by_call(&by_call, probe, &byte, 1) == 1)
        return *reader = by_call, 0;
    return take_file(reader, process, fcntl(memory, F_DUPFD_CLOEXEC, 0));
}

void stackcap_reader_finish(struct stackcap_reader *reader) {
    reader->process = 0;  // first: the handler of a late signal may be about to read
    if (reader->file >= 0 && is_file(reader->file, reader->file_identity))
        close(reader->file);
    reader->file = -1;
}

// The page cache: the unwinder reads a table byte by byte.

void stackcap_pages_forget(struct stackcap_page_cache *pages) {
    pages->generation++;
}

void stackcap_pages_forget_all(struct stackcap_page_cache *pages) {
    memset(pages->slots, 0, sizeof pages->slots);
    pages->generation++;
}

static const uint8_t *_Nullable cached_page(stackcap_unwinder *unwinder, uint64_t page) {
    struct stackcap_page_cache *pages = &unwinder->pages;
    size_t index = (size_t)(page / PAGE_SIZE * 2654435761u >> 7) % PAGE_SLOTS;
    uint8_t *bytes = pages->bytes + index * PAGE_SIZE;
    bool is_good = pages->slots[index].generation == pages->generation || pages->slots[index].generation == LASTING;
    if (pages->slots[index].page != page || !is_good) {
        bool is_lasting = stackcap_is_lasting(unwinder, page) && stackcap_is_lasting(unwinder, page + PAGE_SIZE - 1);
        bool readable = stackcap_read_live(&unwinder->reader, page, bytes, PAGE_SIZE) == PAGE_SIZE;
        pages->slots[index].page = page;
        pages->slots[index].generation = readable && is_lasting ? LASTING : pages->generation;
        pages->slots[index].readable = readable;
    }
    return pages->slots[index].readable ? bytes : NULL;
}

static bool peek_live(stackcap_unwinder *unwinder, uint64_t address, uint8_t *out, size_t length) {
    while (length > 0) {
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

bool stackcap_peek(stackcap_unwinder *unwinder, uint64_t address, void *to, size_t length) {
    if (unwinder->modules && stackcap_index_read(unwinder->modules, address, to, length))
        return true;
    switch (stackcap_copy_read(unwinder, address, to, length)) {
    case PLACE_COPIED:
        return true;
    case PLACE_ELSEWHERE:
        return peek_live(unwinder, address, to, length);
    case PLACE_MIDDLE:
        // This address is further out than all that was copied of the inner end, and if that is unchanged, so is this:
        // stackcap_middle_holds.
        unwinder->read_middle |= unwinder->reads_middle;
        if (unwinder->reads_middle)
            return peek_live(unwinder, address, to, length);
        break;
    case PLACE_NOT_COPIED:
        break;
    }
    unwinder->left_copy = true;  // The live stack must not be used: it may have changed since.
    return false;
}

void stackcap_peek_code(stackcap_unwinder *unwinder, uint64_t address, void *code, size_t length) {
    size_t first = PAGE_SIZE - address % PAGE_SIZE;
    memset(code, 0, length);
    stackcap_peek(unwinder, address, code, first < length ? first : length);
    if (first < length)
        stackcap_peek(unwinder, address + first, (uint8_t *)code + first, length - first);
}
