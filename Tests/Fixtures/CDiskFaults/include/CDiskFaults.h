#pragma once

// Simulates failing disks: intercepts a few system calls of the monitor's
// writing threads ("stall-writer"; "stall-recorder" for the live record).
// Any thread may call these functions.

#include <stdbool.h>
#include <stdint.h>

#pragma clang assume_nonnull begin

enum disk_call { disk_create, disk_write, disk_fsync, disk_rename, disk_record, disk_list };

/// From now on the call fails with `error`; 0 makes it succeed again. `disk_write` first writes half of the bytes; `disk_record` is a change of the
/// live record; `disk_list` is the reading of a directory, by any thread.
void disk_fail(enum disk_call call, int error);

/// From now on fsync does not return; false releases the waiting calls.
void disk_hang(bool hangs);
/// Whether a call waits for that.
bool disk_hangs(void);

/// The number of times that the thread with this name opened a file
/// outside of /proc, /sys and /dev, or wrote, renamed or synchronised one.
int64_t disk_touches(const char *thread);
/// From now on such calls of the thread with this name are counted.
void disk_watch(const char *thread);
/// The path of the last counted call; empty if there is none.
const char *disk_last_path(void);

/// Gives the process a separate mount namespace; it must have one thread. 0 or an errno.
int disk_own_mounts(void);
/// Mounts a tmpfs. 0 or an errno.
int disk_mount(const char *path, const char *options);
/// Makes it read-only or writable. 0 or an errno.
int disk_remount(const char *path, bool read_only);

#pragma clang assume_nonnull end
