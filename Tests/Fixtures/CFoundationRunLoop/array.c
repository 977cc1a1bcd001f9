#include "CFoundationRunLoop.h"

// Actually a structure of functions; only its address is needed.
extern const char kCFTypeArrayCallBacks[];
extern cf_ref CFArrayCreate(const void *allocator, const void *const *values, long count, const void *callbacks);

cf_ref cf_array_of(cf_ref const *values, long count) { return CFArrayCreate(0, values, count, kCFTypeArrayCallBacks); }
