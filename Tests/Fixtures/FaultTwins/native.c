#include "native.h"
#include <unistd.h>

static volatile int sink;

/* Not inlined, but may be cloned for its constant argument. */
static __attribute__((noinline)) int wait_for_disk(int seconds, int mode) {
    sink += mode;
    sleep(seconds);
    return ++sink;
}

static __attribute__((noinline)) int flush_table(int seconds) { return wait_for_disk(seconds, 7) + sink; }
static __attribute__((noinline)) int load_table(int seconds) { return wait_for_disk(seconds, 7) * sink; }

int native_c_direct(int seconds) { return flush_table(seconds) + ++sink; }
int native_c_other(int seconds) { return load_table(seconds) + ++sink; }
int native_call(int (*callback)(int), int argument) { return callback(argument) + ++sink; }
