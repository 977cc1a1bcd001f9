#pragma once

// Foundation's run loop, which the toolchain exports without a header, declared with opaque pointers. Users of this header must
// also import Foundation, so that it is linked. Core Foundation's ownership rules apply: an object returned by a function with
// Create or Copy in its name is owned by the caller.

#include "simulated_kernel.h"

#include <stdbool.h>
#include <stdint.h>

typedef const void *_Nonnull cf_ref;

typedef struct {
    long version;
    void *_Nullable info;
    const void *_Nullable (*_Nullable retain)(const void *_Nullable);
    void (*_Nullable release)(const void *_Nullable);
    cf_ref (*_Nullable copy_description)(const void *_Nullable);
} cf_item_context;

typedef struct {
    cf_item_context base;
    uint8_t (*_Nullable equal)(const void *_Nullable, const void *_Nullable);
    unsigned long (*_Nullable hash)(const void *_Nullable);
    void (*_Nullable schedule)(void *_Nullable info, cf_ref loop, cf_ref mode);
    void (*_Nullable cancel)(void *_Nullable info, cf_ref loop, cf_ref mode);
    void (*_Nullable perform)(void *_Nullable info);
} cf_source_context;

typedef void (*_Nonnull cf_observer_callback)(cf_ref observer, unsigned long activity, void *_Nullable info);
typedef void (*_Nonnull cf_timer_callback)(cf_ref timer, void *_Nullable info);

extern const cf_ref kCFRunLoopDefaultMode;
extern const cf_ref kCFRunLoopCommonModes;

cf_ref CFRunLoopGetCurrent(void);
int32_t CFRunLoopRunInMode(cf_ref mode, double seconds, uint8_t return_after_source);
void CFRunLoopRun(void);
void CFRunLoopStop(cf_ref loop);
void CFRunLoopWakeUp(cf_ref loop);
uint8_t CFRunLoopIsWaiting(cf_ref loop);
const void *_Nullable CFRunLoopCopyCurrentMode(cf_ref loop);
void CFRunLoopAddCommonMode(cf_ref loop, cf_ref mode);
double CFRunLoopGetNextTimerFireDate(cf_ref loop, cf_ref mode);
/// `modes` is a string or an array of strings. The block is copied.
#if __BLOCKS__
void CFRunLoopPerformBlock(cf_ref loop, cf_ref modes, void (^_Nonnull block)(void));
#endif

cf_ref CFRunLoopSourceCreate(const void *_Nullable allocator, long order, cf_source_context *_Nonnull context);
void CFRunLoopAddSource(cf_ref loop, cf_ref source, cf_ref mode);
void CFRunLoopRemoveSource(cf_ref loop, cf_ref source, cf_ref mode);
uint8_t CFRunLoopContainsSource(cf_ref loop, cf_ref source, cf_ref mode);
void CFRunLoopSourceInvalidate(cf_ref source);
uint8_t CFRunLoopSourceIsValid(cf_ref source);
void CFRunLoopSourceSignal(cf_ref source);
uint8_t CFRunLoopSourceIsSignalled(cf_ref source);

cf_ref CFRunLoopObserverCreate(
    const void *_Nullable allocator, unsigned long activities, uint8_t repeats, long order, cf_observer_callback callback,
    cf_item_context *_Nonnull context);
void CFRunLoopAddObserver(cf_ref loop, cf_ref observer, cf_ref mode);
void CFRunLoopRemoveObserver(cf_ref loop, cf_ref observer, cf_ref mode);
uint8_t CFRunLoopContainsObserver(cf_ref loop, cf_ref observer, cf_ref mode);
void CFRunLoopObserverInvalidate(cf_ref observer);
uint8_t CFRunLoopObserverIsValid(cf_ref observer);

cf_ref CFRunLoopTimerCreate(
    const void *_Nullable allocator, double fire_date, double interval, unsigned long flags, long order,
    cf_timer_callback callback, cf_item_context *_Nonnull context);
void CFRunLoopAddTimer(cf_ref loop, cf_ref timer, cf_ref mode);
void CFRunLoopRemoveTimer(cf_ref loop, cf_ref timer, cf_ref mode);
uint8_t CFRunLoopContainsTimer(cf_ref loop, cf_ref timer, cf_ref mode);
void CFRunLoopTimerInvalidate(cf_ref timer);
uint8_t CFRunLoopTimerIsValid(cf_ref timer);
void CFRunLoopTimerSetNextFireDate(cf_ref timer, double fire_date);
double CFRunLoopTimerGetNextFireDate(cf_ref timer);

cf_ref CFStringCreateWithCString(const void *_Nullable allocator, const char *_Nonnull text, uint32_t encoding);
uint8_t CFEqual(cf_ref left, cf_ref right);
uint8_t CFStringGetCString(cf_ref string, char *_Nonnull buffer, long size, uint32_t encoding);
void CFRelease(cf_ref object);

/// An array of `count` objects, which it retains.
cf_ref cf_array_of(cf_ref const *_Nonnull values, long count);

/// libdispatch: the eventfd through which Foundation's main loop and ours serve the main queue.
int _dispatch_get_main_queue_handle_4CF(void);
