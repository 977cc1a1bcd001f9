// Makes the contended paths of Synchronization.Mutex visible to the thread sanitizer. scripts/tsan preloads it.
//
// The mutex's fast paths are atomics, emitted into the code that uses them, and therefore instrumented.
// The slow paths are two functions of libswiftSynchronization, which is not instrumented: there the
// lock changes its owner unnoticed, and accesses to everything it protects look like races. The two
// functions below replace the originals and report acquire and release of the mutex's word.
//
// This is not for the engine, whose own lock is compiled with it and therefore instrumented. It is for the tests and their
// programs, which use Synchronization's mutex for data that several threads record.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>

// Weak: a shell that starts the program is not sanitized.
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
