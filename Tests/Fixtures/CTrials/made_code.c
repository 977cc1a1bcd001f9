#include "made_code.h"

#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

made_code make_code(const void *code, size_t size, bool ends_page) {
    char *memory = mmap(NULL, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(memory != MAP_FAILED);
    char *function = memory + PAGE + (ends_page ? PAGE - size : 0);
    require(mprotect(memory + PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
    memcpy(function, code, size);
    require(mprotect(memory + PAGE, PAGE, PROT_READ | PROT_EXEC) == 0);
    return (made_code){memory, function};
}

void unmake_code(made_code code) { munmap(code.memory, 3 * PAGE); }
