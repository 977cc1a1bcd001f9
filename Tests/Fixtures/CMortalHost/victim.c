#include "CMortalHost.h"

#include <sys/syscall.h>
#include <unistd.h>

int victim_fork(void) { return fork(); }

void victim_close_from(int first) { syscall(SYS_close_range, first, ~0U, 0); }
