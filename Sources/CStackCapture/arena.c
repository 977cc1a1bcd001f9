/// The stacks of many threads, kept outside malloc's memory until the last of them is copied: any thread may hold malloc's lock,
/// including one whose stack is captured later.
#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SPARE_THREADS = 64,        ///< That may be started between counting and listing.
    MOST_FRAMES = 2 * 1024 * 1024,
    MOST_RANGES = 256 * 1024,  ///< Only those that exist take memory.
    MOST_READS_OF_MAPS = 4,
    TEXT_BYTES = 64 * 1024,
};

/// A directory entry as the kernel returns it: getdents64(2).
struct entry {
    uint64_t inode;
    int64_t next;
    unsigned short length;
    unsigned char type;
    char name[];
};

static size_t aligned(size_t size) {
    return (size + 63) & ~(size_t)63;
}

// Listing threads.

static pid_t number_of(const char *name) {
    return name[0] >= '1' && name[0] <= '9' ? (pid_t)strtol(name, NULL, 10) : 0;
}

static int list_threads(stackcap_arena *arena, int directory) {
    for (;;) {
        long count = syscall(SYS_getdents64, directory, arena->text, TEXT_BYTES);
        if (count <= 0)
            return count == 0 ? 0 : errno;
        for (long at = 0; at < count;) {
            const struct entry *entry = (const struct entry *)(arena->text + at);
            pid_t thread = number_of(entry->name);
            if (thread && arena->thread_count < arena->thread_capacity)
                arena->threads[arena->thread_count++] = thread;
            at += entry->length;
        }
    }
}

// Memory that may be a stack.

/// "7f00-8f00 rw-p …" \returns false for a line that is not a writable mapping.
static bool parse_mapping(const char *line, struct stackcap_range *range) {
    char *end;
    range->low = strtoull(line, &end, 16);
    if (*end != '-')
        return false;
    range->high = strtoull(end + 1, &end, 16);
    return end[0] == ' ' && end[1] == 'r' && end[2] == 'w';
}

/// Consumes the complete lines. \returns the number of bytes consumed.
static size_t take_lines(stackcap_arena *arena, size_t size) {
    size_t taken = 0;
    for (char *end; (end = memchr(arena->text + taken, '\n', size - taken)); taken = (size_t)(end + 1 - arena->text)) {
        struct stackcap_range range;
        *end = 0;
        if (arena->range_count < arena->range_capacity && parse_mapping(arena->text + taken, &range))
            arena->ranges[arena->range_count++] = range;
    }
    return taken;
}

static int read_maps(stackcap_arena *arena) {
    int file = stackcap_open_own("maps");
    if (file < 0)
        return errno;
    arena->range_count = 0;
    arena->reads_of_maps++;
    ssize_t count;
    for (size_t kept = 0; (count = read(file, arena->text + kept, TEXT_BYTES - kept)) > 0;) {
        size_t size = kept + (size_t)count, taken = take_lines(arena, size);
        kept = size - taken;
        memmove(arena->text, arena->text + taken, kept);
    }
    int error = count < 0 ? errno : 0;
    close(file);
    return error;
}

/// The kernel lists the mappings in ascending order.
static const struct stackcap_range *_Nullable range_around(const stackcap_arena *arena, uint64_t address) {
    size_t from = 0, to = arena->range_count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (address < arena->ranges[middle].low)
            to = middle;
        else if (address >= arena->ranges[middle].high)
            from = middle + 1;
        else
            return &arena->ranges[middle];
    }
    return NULL;
}

bool stackcap_arena_bounds(stackcap_arena *arena, uint64_t stack_pointer, uint64_t *low, uint64_t *high) {
    const struct stackcap_range *range = range_around(arena, stack_pointer);
    // The thread was started since then, or the first thread's stack has grown.
    if (!range && arena->reads_of_maps < MOST_READS_OF_MAPS && read_maps(arena) == 0)
        range = range_around(arena, stack_pointer);
    if (range)
        *low = range->low, *high = range->high;
    return range != NULL;
}

void stackcap_arena_bound_copy(stackcap_arena *arena, stackcap_session *session) {
    uint64_t low, high;
    if (stackcap_arena_bounds(arena, session->unwinder.registers.value[REGISTER_STACK_POINTER], &low, &high))
        stackcap_bound_copy(&session->unwinder, high);
}

// Opening and closing.

/// Allocates a part of the arena's memory; without a base, only its size is counted.
static void *place(uint8_t *_Nullable base, size_t *at, size_t size) {
    size_t start = *at;
    *at += aligned(size);
    return base ? base + start : NULL;
}

static size_t lay_out(stackcap_arena *arena, uint8_t *_Nullable base, size_t entry_size) {
    size_t at = aligned(sizeof *arena);
    arena->threads = place(base, &at, arena->thread_capacity * sizeof *arena->threads);
    arena->names = place(base, &at, arena->thread_capacity * sizeof *arena->names);
    arena->ranges = place(base, &at, arena->range_capacity * sizeof *arena->ranges);
    arena->stacks = place(base, &at, arena->thread_capacity * sizeof *arena->stacks);
    arena->index = place(base, &at, arena->index_capacity * sizeof *arena->index);
    arena->entries = place(base, &at, arena->thread_capacity * entry_size);
    arena->text = place(base, &at, TEXT_BYTES);
    arena->frames = place(base, &at, arena->frame_capacity * sizeof *arena->frames);
    return at;
}

static int reserve(stackcap_arena **out, size_t threads, size_t entry_size) {
    stackcap_arena arena = {.thread_capacity = threads, .range_capacity = MOST_RANGES};
    for (arena.index_capacity = 64; arena.index_capacity < 2 * arena.thread_capacity;)
        arena.index_capacity *= 2;
    size_t most = arena.thread_capacity * STACKCAP_MAX_FRAMES;
    arena.frame_capacity = most < MOST_FRAMES ? most : MOST_FRAMES;
    arena.size = lay_out(&arena, NULL, entry_size);
    void *memory = mmap(NULL, arena.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return errno;
    lay_out(&arena, memory, entry_size);
    *out = memory;
    **out = arena;
    return 0;
}

static int reserve_for_all(stackcap_arena **out, size_t entry_size) {
    int directory = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return errno;
    struct stat status;
    // It has a link for each thread, plus two.
    int error = fstat(directory, &status) == 0 ? reserve(out, (size_t)status.st_nlink + SPARE_THREADS, entry_size) : errno;
    if (!error)
        error = list_threads(*out, directory);
    close(directory);
    return error;
}

stackcap_outcome stackcap_arena_open(size_t entry_size, stackcap_arena **out) {
    *out = NULL;
    int error = entry_size ? reserve_for_all(out, entry_size) : reserve(out, 0, 0);
    if (!error)
        error = read_maps(*out);
    if (!error)
        return (stackcap_outcome){STACKCAP_OK, 0};
    if (*out)
        stackcap_arena_close(*out);
    *out = NULL;
    return (stackcap_outcome){error == ENOMEM ? STACKCAP_FAILED : STACKCAP_STATE_UNREADABLE, error};
}

void stackcap_arena_close(stackcap_arena *arena) {
    munmap(arena, arena->size);
}

void stackcap_arena_read_name(stackcap_arena *arena, size_t index) {
    if (arena->names[index].text[0] == 0)
        stackcap_thread_name(arena->threads[index], arena->names[index].text);
}

// Keeping stacks.

static uint64_t mixed(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15;
    return hash ^ hash >> 29;
}

static uint64_t hash_of(const stackcap_unwound *unwound) {
    uint64_t hash = mixed(mixed(unwound->left_out, (uint64_t)unwound->end), unwound->count);
    for (size_t i = 0; i < unwound->count; i++)
        hash = mixed(hash, unwound->frames[i].address << 2 ^ (uint64_t)unwound->frames[i].found);
    return hash;
}

/// The frames' stack pointers are not compared: they differ between threads.
static bool is_same(const stackcap_arena *arena, const stackcap_kept *kept, const stackcap_unwound *unwound) {
    if (kept->count != unwound->count || kept->left_out != unwound->left_out || kept->end != unwound->end)
        return false;
    for (size_t i = 0; i < kept->count; i++) {
        const stackcap_frame *a = &arena->frames[kept->first + i], *b = &unwound->frames[i];
        if (a->address != b->address || a->found != b->found)
            return false;
    }
    return true;
}

static int64_t add(stackcap_arena *arena, const stackcap_unwound *unwound) {
    if (unwound->count > arena->frame_capacity - arena->frame_count || arena->stack_count == arena->thread_capacity)
        return -1;
    arena->stacks[arena->stack_count] = (stackcap_kept){
        .first = arena->frame_count,
        .count = unwound->count,
        .left_out = unwound->left_out,
        .left_out_after = unwound->left_out_after,
        .end = unwound->end,
    };
    memcpy(arena->frames + arena->frame_count, unwound->frames, unwound->count * sizeof *unwound->frames);
    arena->frame_count += unwound->count;
    return (int64_t)arena->stack_count++;
}

int64_t stackcap_arena_keep(stackcap_arena *arena, const stackcap_unwound *unwound) {
    // Linear probing. At most half of the slots are ever used; each holds a stack's number plus one.
    size_t mask = arena->index_capacity - 1;
    size_t slot = hash_of(unwound) & mask;
    for (; arena->index[slot]; slot = (slot + 1) & mask)
        if (is_same(arena, &arena->stacks[arena->index[slot] - 1], unwound))
            return (int64_t)arena->index[slot] - 1;
    int64_t number = add(arena, unwound);
    if (number >= 0)
        arena->index[slot] = (uint32_t)number + 1;
    return number;
}
