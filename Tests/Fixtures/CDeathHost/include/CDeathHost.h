#pragma once
// Records the program's operations on the files of one directory, in the order of the system
// calls, so that a test can compute what a power cut at any moment would have left. Replaces
// the C library's functions for the whole program; without a log they behave as usual.
//
// A record is a letter, a descriptor (i32), an offset (i64), a length (u32) and that many bytes:
//   C  openat created a file: its name       W  write or pwrite: the bytes; offset −1 is the end       F  fsync has returned
//   R  renameat: two names, a zero between    U  unlinkat: the name          X  close        D  a directory was opened
//   P  a writer was promised that the file of this name is on the disk

/// Opens the log. Call it before other threads start. Returns 0 or −1.
int write_log_start(const char *path);
/// Records that the file was promised to be on the disk: the call that wrote it has returned.
void write_log_promise(const char *name);

/// fork(2), which Swift does not import.
int victim_fork(void);
/// Forks on a thread that was cancelled and has not reached a cancellation point. The child ends with 42 at once. Returns its
/// status, or −1 if it ended in another way.
int victim_fork_cancelled(void);
/// close_range(2) to the end, like a daemon.
void victim_close_from(int first);
