#pragma once
// Writes down what the program does to files in one directory, in the order in which the kernel is asked: so that it can be judged
// what a power cut at any moment would have left. The C library's functions are replaced for the whole program; without a log they
// do what they always do.
//
// A record is a letter, a descriptor (i32), an offset (i64), a length (u32) and that many bytes:
//   C  openat created a file: its name       W  write or pwrite: the bytes; offset −1 is the end       F  fsync has returned
//   R  renameat: two names, a zero between    U  unlinkat: the name          X  close        D  a directory was opened
//   P  a writer was told that the file of this name is on the disk

/// Opens the log. Call it before other threads start. Returns 0 or −1.
int write_log_start(const char *path);
/// Notes that the file was promised to be on the disk: what wrote it has returned.
void write_log_promise(const char *name);

/// fork(2), which Swift hides.
int victim_fork(void);
/// close_range(2) to the end, as a daemon does it.
void victim_close_from(int first);
