/// Determines whether modules were loaded or unloaded between two moments, without the loader's lock: the captured thread may
/// hold it.
///
/// dl_iterate_phdr reports this by two counts, dlpi_adds and dlpi_subs, but takes the lock. It computes them from the loader's
/// own data (`_rtld_global`), which begins with the first list of modules: its start, and the number of modules. The count of
/// all modules ever added follows at a place that only the loader knows, and is found by its value: before main, all words
/// there that have this value are recorded. A word that has it by chance makes the loader seem busy when the word changes; no
/// word can make it seem idle.
///
/// A module is mapped before it is counted, and its address may have belonged to another module, which was removed from the
/// count. So the loader's own state (r_state) is recorded too.
#include "modules.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>

enum { MODULE_LIST_BYTES = 16 };  // of a list of modules: the first one, and their number

static const uint64_t *adds[LOADER_ADDS];
static size_t adds_count;
static const unsigned *module_count;
static const struct r_debug *debugging;

static int note_adds(struct dl_phdr_info *info, size_t size, void *noted) {
    if (size > offsetof(struct dl_phdr_info, dlpi_adds))
        *(uint64_t *)noted = info->dlpi_adds;
    return 1;
}

static size_t size_of(const void *data) {
    Dl_info info;
    const ElfW(Sym) *symbol = NULL;
    bool found = dladdr1(data, &info, (void **)&symbol, RTLD_DL_SYMENT) != 0;
    return found && symbol && info.dli_saddr == data ? symbol->st_size : 0;
}

static unsigned length_of(const struct link_map *_Nullable first) {
    unsigned length = 0;
    for (const struct link_map *at = first; at; at = at->l_next)
        length++;
    return length;
}

/// \returns the number of words that have the value: more than LOADER_ADDS if there are too many.
static size_t find_adds(const uint64_t *global, size_t size, uint64_t value) {
    size_t count = 0;
    for (size_t i = MODULE_LIST_BYTES / sizeof *global; i < size / sizeof *global && count <= LOADER_ADDS; i++)
        if (global[i] == value && count++ < LOADER_ADDS)
            adds[count - 1] = &global[i];
    return count;
}

/// Runs before main. If the loader's data does not have the known layout, nothing is recorded, as in a static program.
__attribute__((constructor)) static void find_counts(void) {
    uint64_t added = 0;
    const uint64_t *global = dlsym(RTLD_DEFAULT, "_rtld_global");
    const struct r_debug *found = dlsym(RTLD_DEFAULT, "_r_debug");
    size_t size = global ? size_of(global) : 0;
    dl_iterate_phdr(note_adds, &added);
    if (!found || added == 0 || size < MODULE_LIST_BYTES)
        return;
    const unsigned *count = (const unsigned *)(global + 1);
    if (global[0] != (uintptr_t)found->r_map || *count != length_of(found->r_map))
        return;
    size_t places = find_adds(global, size, added);
    if (places == 0 || places > LOADER_ADDS)
        return;
    adds_count = places;
    module_count = count;
    debugging = found;
}

void stackcap_loader_read(struct stackcap_loader *loader) {
    *loader = (struct stackcap_loader){.modules = 0};
    for (size_t i = 0; i < adds_count; i++)
        loader->adds[i] = __atomic_load_n(adds[i], __ATOMIC_ACQUIRE);
    if (module_count)
        loader->modules = __atomic_load_n(module_count, __ATOMIC_ACQUIRE);
    if (debugging)
        loader->at_work = __atomic_load_n(&debugging->r_state, __ATOMIC_ACQUIRE);
}

bool stackcap_loader_has_moved(const struct stackcap_loader *since) {
    struct stackcap_loader now;
    atomic_thread_fence(memory_order_acquire);  // orders the earlier reads before this one
    stackcap_loader_read(&now);
    bool has_moved = now.modules != since->modules || now.at_work != since->at_work;
    for (size_t i = 0; i < adds_count; i++)
        has_moved |= now.adds[i] != since->adds[i];
    return has_moved;
}
