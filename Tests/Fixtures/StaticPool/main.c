// A program that submits jobs to a queue as Swift's runtime does, with the hooks. Prints how many of them were counted, or NOT CALLED. Compiled by
// a test, with libdispatch in the program or beside it.

#include "task_hooks.h"
#include "task_pool.h"

#include <semaphore.h>
#include <stdio.h>

extern void *dispatch_queue_create(const char *label, const void *attributes);
extern void dispatch_async_f(void *queue, void *context, void (*work)(void *));

enum { JOBS = 10, PRIORITY = 21 };

/// A job without a context, with the parts of the runtime's that the hooks read.
static struct job {
    char before[32];
    unsigned char kind, priority;
    void *functions[8];
} job = {.kind = 192, .priority = PRIORITY};
static sem_t done;

/// The function by which the runtime runs jobs.
static void run(void *context) {
    if (context == &job) sem_post(&done);
}

int main(void) {
    task_pool *pool = task_pool_create(1);
    sem_init(&done, 0, 0);
    task_hooks_set_pool(PRIORITY, pool);
    task_hooks_arm(true);
    if (!task_hooks_are_called()) puts("NOT CALLED");
    // One at a time, because no attribute says otherwise: the last one begins when those before it have ended.
    void *queue = dispatch_queue_create("Swift global concurrent queue", NULL);
    for (int i = 0; i < JOBS; i++) dispatch_async_f(queue, &job, run);
    for (int i = 0; i < JOBS; i++) sem_wait(&done);
    // One word counts beginnings and ends, above sixteen bits for the jobs in progress.
    printf("%llu submitted, %d begun\n", (unsigned long long)task_pool_enqueued(pool), (int)((task_pool_word(pool) >> 16) + 1) / 2);
    return 0;
}
