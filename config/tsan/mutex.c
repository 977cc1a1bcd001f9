// Shows the thread sanitizer the contended half of Synchronization.Mutex. scripts/tsan preloads it.
//
// The mutex's fast paths are atomics, emitted into the code that uses them, and so instrumented. The slow ones are two functions of
// libswiftSynchronization, which is not: there the lock changes hands unseen, and all that it guards looks like a race. These two stand
// before the originals and say what they do to the mutex's word.
//
// Not for the engine, whose lock is its own, compiled with it and so instrumented: for the tests and their programs, which keep what
// several threads note in Synchronization's.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>

// Weak: a shell on the way to the program has no sanitizer.
extern void __tsan_acquire(void *address) __attribute__((weak));
extern void __tsan_release(void *address) __attribute__((weak));

#define MUTEX(name) "$s15Synchronization12_MutexHandleV" name
#define SELF __attribute__((swift_context)) void *mutex

typedef __attribute__((swiftcall)) void (*lock_function)(uint32_t thread, SELF);
typedef __attribute__((swiftcall)) void (*unlock_function)(SELF);

static lock_function real_lock;
static unlock_function real_unlock;

__attribute__((constructor)) static void find_originals(void) {
    real_lock = (lock_function)dlsym(RTLD_NEXT, MUTEX("9_lockSlowyys6UInt32VF"));
    real_unlock = (unlock_function)dlsym(RTLD_NEXT, MUTEX("11_unlockSlowyyF"));
}

__attribute__((swiftcall)) void lock_slow(uint32_t thread, SELF) __asm__(MUTEX("9_lockSlowyys6UInt32VF"));
__attribute__((swiftcall)) void unlock_slow(SELF) __asm__(MUTEX("11_unlockSlowyyF"));

__attribute__((swiftcall)) void lock_slow(uint32_t thread, SELF) {
    real_lock(thread, mutex);
    if (__tsan_acquire) { __tsan_acquire(mutex); }
}

__attribute__((swiftcall)) void unlock_slow(SELF) {
    if (__tsan_release) { __tsan_release(mutex); }
    real_unlock(mutex);
}
