/// The C library, and kinds of code that compilers seldom generate.
#include "CTrials.h"
#include "made_code.h"

#include <alloca.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <glob.h>
#include <link.h>
#include <locale.h>
#include <math.h>
#include <netdb.h>
#include <regex.h>
#include <search.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <wchar.h>

#define SCENE __attribute__((noinline)) static void

/// Prevents calls before it from being tail calls.
static volatile int done;
static char plugin_folder[256];
void trial_set_plugin_folder(const char *folder) { snprintf(plugin_folder, sizeof plugin_folder, "%s", folder); }

__attribute__((noinline)) static void work(int amount) {
    for (volatile int i = 0; i < amount; i++) {}
    done = amount;
}

static int compare_slowly(const void *a, const void *b) {
    work(20);
    return *(const int *)a - *(const int *)b;
}
SCENE scene_qsort(void) {
    int numbers[300];
    for (int i = 0; i < 300; i++)
        numbers[i] = i * 7919 % 300;
    qsort(numbers, 300, sizeof *numbers, compare_slowly);
    done = numbers[0];
}
SCENE scene_bsearch(void) {
    int numbers[300], wanted = 123;
    for (int i = 0; i < 300; i++)
        numbers[i] = i;
    done = bsearch(&wanted, numbers, 300, sizeof *numbers, compare_slowly) != NULL;
}
SCENE scene_tsearch(void) {
    void *tree = NULL;
    static int numbers[100];
    for (int i = 0; i < 100; i++) {
        numbers[i] = i * 31 % 100;
        tsearch(&numbers[i], &tree, compare_slowly);
    }
    for (int i = 0; i < 100; i++)
        tdelete(&numbers[i], &tree, compare_slowly);
    done = tree == NULL;
}
SCENE scene_printf(void) {
    char text[512];
    for (int i = 1; i < 30; i++)
        done = snprintf(text, sizeof text, "%.*f %g %a %d %s %-20lx", i, i / 3.0, 1e100 / i, 1.0 / i, i, "text", (long)i);
}
SCENE scene_printf_to_file(void) {
    static _Thread_local FILE *file;
    if (!file)
        file = fopen("/dev/null", "w");
    for (int i = 0; i < 50; i++)
        done = fprintf(file, "%d %s\n", i, "a line");
    fflush(file);
    done = 0;
}
SCENE scene_scanf(void) {
    int number;
    double real;
    char word[20];
    for (int i = 0; i < 30; i++)
        done = sscanf("123 4.5e6 word", "%d %lf %19s", &number, &real, word);
}
SCENE scene_strtod(void) {
    for (int i = 0; i < 50; i++)
        done = (int)strtod("1.7976931348623157e308", NULL) + (int)strtod("2.2250738585072011e-308", NULL);
}
SCENE scene_regexec(void) {
    regex_t expression;
    require(regcomp(&expression, "(a*)*(b|c)+([a-z]+)\\1", REG_EXTENDED) == 0);
    done = regexec(&expression, "aaaaaaabcbcbcbaaaxyzaaaaaaa", 0, NULL, 0);
    regfree(&expression);
    done = 0;
}
SCENE scene_fnmatch(void) {
    for (int i = 0; i < 50; i++)
        done = fnmatch("*a*b*c*[x-z]", "aaaaaabbbbbbbccccccccccy", 0);
}
SCENE scene_glob(void) {
    glob_t found;
    done = glob("/usr/include/s*.h", 0, NULL, &found);
    globfree(&found);
    done = 0;
}
SCENE scene_getaddrinfo(void) {
    struct addrinfo *found = NULL;
    done = getaddrinfo("localhost", "http", NULL, &found);
    if (found)
        freeaddrinfo(found);
    done = 0;
}
SCENE scene_popen(void) {
    FILE *pipe = popen("exit 0", "r");
    require(pipe != NULL);
    char bytes[16];
    done = (int)fread(bytes, 1, sizeof bytes, pipe);
    done = pclose(pipe);
}
SCENE scene_malloc(void) {
    void *kept[100];
    for (int i = 0; i < 100; i++)
        kept[i] = malloc((size_t)(i * i * 13 + 16));
    for (int i = 0; i < 100; i++)
        free(kept[i]);
    done = 0;
}
SCENE scene_memory(void) {
    static _Thread_local char a[65536], b[65536];
    for (int i = 0; i < 20; i++) {
        memcpy(a, b, sizeof a - (size_t)i);
        memset(b, i, sizeof b);
        done = memcmp(a, b, sizeof a) + (int)strlen("text");
    }
}
SCENE scene_mathematics(void) {
    for (int i = 1; i < 200; i++)
        done = (int)(pow(i, 1.5) + sin(i * 1e5) + exp(i / 50.0) + lgamma(i));
}
static int walk_object(struct dl_phdr_info *info, size_t size, void *context) {
    (void)info, (void)size, (void)context;
    work(50);
    return 0;
}
SCENE scene_iterate(void) { done = dl_iterate_phdr(walk_object, NULL); }
SCENE scene_plugin(void) {
    char file[300];
    snprintf(file, sizeof file, "%s/plugin1.so", plugin_folder);
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    require(handle != NULL);
    int (*run)(int) = (int (*)(int))(uintptr_t)dlsym(handle, "plugin_run");
    for (int i = 0; i < 50; i++)
        done = run(12);
    dlclose(handle);
    done = 0;
}
SCENE scene_resolve(void) {
    for (int i = 0; i < 20; i++)
        done = dlsym(RTLD_DEFAULT, "no_such_symbol_anywhere") != NULL;
}

// Frames of unusual shapes.

__attribute__((noinline)) static int vary(int size) {
    volatile char array[size + 1];
    array[size] = 1;
    void *more = alloca((size_t)size % 200 + 16);
    memset(more, 1, 16);
    work(100);
    return array[size] + (size > 100 ? vary(size - 97) : 0);
}
SCENE scene_alloca(void) { done = vary(3000); }
__attribute__((noinline)) static int widen(int depth) {
    volatile char frame[20000];
    frame[0] = (char)depth;
    work(100);
    return depth == 0 ? 0 : widen(depth - 1) + frame[0];
}
SCENE scene_large_frames(void) { done = widen(10); }
__attribute__((noinline)) static int deepen(int depth) {
    if (depth == 0)
        work(30000);
    return depth == 0 ? 0 : deepen(depth - 1) + done;
}
SCENE scene_deep(void) { done = deepen(700); }
__attribute__((noinline)) static int align(int depth) {
    __attribute__((aligned(64))) volatile char frame[64];
    frame[0] = 1;
    work(100);
    return depth == 0 ? 0 : align(depth - 1) + frame[0];
}
SCENE scene_realigned(void) { done = align(10); }
__attribute__((noinline)) static int many_arguments(int a, int b, int c, int d, int e, int f, int g, int h, int i) {
    work(100);
    return i == 0 ? a + b + c + d + e + f + g + h : many_arguments(b, c, d, e, f, g, h, a, i - 1) + 1;
}
SCENE scene_stack_arguments(void) { done = many_arguments(1, 2, 3, 4, 5, 6, 7, 8, 9); }
static _Thread_local jmp_buf landing;
__attribute__((noinline)) static void jump(int depth) {
    work(50);
    if (depth == 0)
        longjmp(landing, 1);
    jump(depth - 1);
    done = depth;
}
SCENE scene_longjmp(void) {
    if (setjmp(landing) == 0)
        jump(10);
    done = 0;
}
static void on_signal(int signal) { work(3000 + signal); }
SCENE scene_handler(void) {
    signal(SIGUSR2, on_signal);
    raise(SIGUSR2);
    done = 0;
}
static void on_alternate_stack(int signal) { work(100000 + signal); }
SCENE scene_alternate_stack(void) {
    stack_t stack = {.ss_size = 65536}, off = {.ss_flags = SS_DISABLE};
    stack.ss_sp = mmap(NULL, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(stack.ss_sp != MAP_FAILED);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_alternate_stack;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR2, &action, NULL);
    sigaltstack(&stack, NULL);
    raise(SIGUSR2);
    sigaltstack(&off, NULL);
    munmap(stack.ss_sp, stack.ss_size);
    done = 0;
}

#if defined(__x86_64__)
static void callee(void) { work(3000); }
// push %rbp; mov %rsp, %rbp; call *%rdi; pop %rbp; ret
static const unsigned char calling_code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
__attribute__((noinline)) static void run_made(bool ends_page) {
    made_code code = make_code(calling_code, sizeof calling_code, ends_page);
    ((void (*)(void (*)(void)))(uintptr_t)code.function)(callee);
    unmake_code(code);
    done = 0;
}

// The row of `misdescribed` does not know its pushes, like that of the C library's `__mpn_mul_1`. Both saved registers point to `data`.
void trial_call_misdescribed(const void *data);
__asm__(".text\n"
        "trial_call_misdescribed:\n"
        "    .cfi_startproc\n"
        "    push %rbx\n    .cfi_adjust_cfa_offset 8\n    .cfi_rel_offset %rbx, 0\n"
        "    push %rbp\n    .cfi_adjust_cfa_offset 8\n    .cfi_rel_offset %rbp, 0\n"
        "    mov %rdi, %rbx\n"
        "    mov %rdi, %rbp\n"
        "    call misdescribed\n"
        "    pop %rbp\n    .cfi_adjust_cfa_offset -8\n    .cfi_restore %rbp\n"
        "    pop %rbx\n    .cfi_adjust_cfa_offset -8\n    .cfi_restore %rbx\n"
        "    ret\n"
        "    .cfi_endproc\n"
        "misdescribed:\n"
        "    .cfi_startproc\n"
        "    push %rbx\n"
        "    push %rbp\n"
        "    nop\n"
        "    pop %rbp\n"
        "    pop %rbx\n"
        "    ret\n"
        "    .cfi_endproc\n");
void trial_run_misdescribed(void) {
    unsigned char data[16] = {0x5b, 0xc3};  // as instructions: pop %rbx; ret
    trial_call_misdescribed(data);
    done = data[0];
}

SCENE scene_made_code(void) { run_made(false); done = 0; }
SCENE scene_made_code_to_the_end(void) { run_made(true); done = 0; }
#else
void trial_run_misdescribed(void) {}
#endif

const trial_scene trial_c_scenes[] = {
    {"qsort", scene_qsort}, {"bsearch", scene_bsearch}, {"tsearch", scene_tsearch}, {"snprintf", scene_printf},
    {"fprintf", scene_printf_to_file}, {"sscanf", scene_scanf}, {"strtod", scene_strtod}, {"regexec", scene_regexec},
    {"fnmatch", scene_fnmatch}, {"glob", scene_glob}, {"getaddrinfo", scene_getaddrinfo}, {"popen", scene_popen},
    {"malloc", scene_malloc}, {"memcpy", scene_memory}, {"libm", scene_mathematics}, {"dl_iterate_phdr", scene_iterate},
    {"dlopen", scene_plugin}, {"dlsym", scene_resolve}, {"alloca", scene_alloca}, {"large frames", scene_large_frames},
    {"deep recursion", scene_deep}, {"realigned frames", scene_realigned}, {"arguments on the stack", scene_stack_arguments},
    {"longjmp", scene_longjmp}, {"signal handler", scene_handler}, {"alternate signal stack", scene_alternate_stack},
#if defined(__x86_64__)
    {"code made at run time", scene_made_code}, {"code to its page's end", scene_made_code_to_the_end},
#endif
};
const size_t trial_c_scene_count = sizeof trial_c_scenes / sizeof *trial_c_scenes;
