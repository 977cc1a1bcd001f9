#pragma once

// Disks that fail: it stands between the monitor's writing thread ("stall-writer") and the kernel for a few system calls. Any thread may
// call these functions.

#include <stdbool.h>
#include <stdint.h>

#pragma clang assume_nonnull begin

enum disk_call { disk_create, disk_write, disk_fsync, disk_rename };

/// From now on the call fails with `error`; 0 lets it through again. `disk_write` takes half of the bytes first.
void disk_fail(enum disk_call call, int error);

/// From now on fsync does not return; false lets those that wait go on.
void disk_hang(bool hangs);

/// How often the thread with this name has opened a file outside of /proc, /sys and /dev, or written, renamed or synchronised one.
int64_t disk_touches(const char *thread);
/// From now on such calls of the thread with this name are counted.
void disk_watch(const char *thread);
/// The last path that was counted; empty for none.
const char *disk_last_path(void);

/// Gives the process, which must have one thread, mounts of its own. 0 or an errno.
int disk_own_mounts(void);
/// Mounts a tmpfs. 0 or an errno.
int disk_mount(const char *path, const char *options);
/// Makes it read-only or writable. 0 or an errno.
int disk_remount(const char *path, bool read_only);

#pragma clang assume_nonnull end
