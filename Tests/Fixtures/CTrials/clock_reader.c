/// A thread that detects each of its own pauses, and a thread that only sleeps.
#include "blocking.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

struct trial_clock_reader {
    int frames, processor;
    pthread_t handle;
    trial_thread thread;
    atomic_bool started, released;
    _Atomic uint64_t gap, readings;
};

void trial_stay_on(int processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    sched_setaffinity(0, sizeof set, &set);  // Fails if there is one processor: the figures are worse then.
}

__attribute__((noinline)) static void read_clock(trial_clock_reader *reader) {
    atomic_store(&reader->started, true);
    for (uint64_t last = trial_now_ns(); !atomic_load_explicit(&reader->released, memory_order_relaxed);) {
        uint64_t now = trial_now_ns();
        // A compare-and-exchange is not needed: a value that is taken at this moment belongs to an earlier pause.
        if (now - last > atomic_load_explicit(&reader->gap, memory_order_relaxed))
            atomic_store_explicit(&reader->gap, now - last, memory_order_relaxed);
        atomic_store_explicit(&reader->readings, reader->readings + 1, memory_order_relaxed);
        last = now;
    }
}

__attribute__((noinline)) static int descend(int frames, void (*work)(void *), void *context) {
    volatile char frame[64] = {0};
    if (frames <= 0)
        work(context);
    else
        descend(frames - 1, work, context);
    return frame[frames & 63];
}

static void read_clock_in(void *context) { read_clock(context); }

static void *clock_reader_main(void *context) {
    trial_clock_reader *reader = context;
    reader->thread = trial_own_thread();
    if (reader->processor >= 0)
        trial_stay_on(reader->processor);
    descend(reader->frames, read_clock_in, reader);
    return NULL;
}

trial_clock_reader *trial_clock_reader_start(int frames, int processor) {
    trial_clock_reader *reader = calloc(1, sizeof *reader);
    require(reader != NULL);
    reader->frames = frames;
    reader->processor = processor;
    require(pthread_create(&reader->handle, NULL, clock_reader_main, reader) == 0);
    while (!atomic_load(&reader->started))
        sched_yield();
    return reader;
}

trial_thread trial_clock_reader_thread(const trial_clock_reader *reader) { return reader->thread; }
uint64_t trial_clock_reader_take_gap(trial_clock_reader *reader) { return atomic_exchange(&reader->gap, 0); }
void trial_clock_reader_await(const trial_clock_reader *reader) {
    for (uint64_t before = reader->readings; reader->readings < before + 2;) {}
}

uint64_t trial_clock_reader_preemptions(const trial_clock_reader *reader) {
    char path[64], line[256];
    unsigned long long count = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/status", reader->thread.number);
    FILE *file = fopen(path, "re");
    require(file != NULL);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "nonvoluntary_ctxt_switches: %llu", &count) == 1)
            break;
    fclose(file);
    return count;
}

void trial_clock_reader_finish(trial_clock_reader *reader) {
    atomic_store(&reader->released, true);
    pthread_join(reader->handle, NULL);
    free(reader);
}

static void sleep_for_good(void *context) {
    *(trial_thread *)context = trial_own_thread();
    for (;;)
        pause();
}

struct sleeper {
    int frames;
    trial_thread thread;
};

static void *sleeper_main(void *context) {
    struct sleeper *sleeper = context;
    descend(sleeper->frames, sleep_for_good, &sleeper->thread);
    return NULL;
}

trial_thread trial_sleeper_start(int frames) {
    struct sleeper *sleeper = calloc(1, sizeof *sleeper);  // lives as long as the thread
    pthread_t handle;
    require(sleeper != NULL);
    sleeper->frames = frames;
    require(pthread_create(&handle, NULL, sleeper_main, sleeper) == 0);
    while (*(volatile uint64_t *)&sleeper->thread.high == 0)
        sched_yield();
    usleep(10000);
    return sleeper->thread;
}

void trial_schedule_of(pid_t thread, uint64_t numbers[3]) {
    char path[64];
    unsigned long long read[3] = {0};
    snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", thread);
    FILE *file = fopen(path, "re");
    require(file && fscanf(file, "%llu %llu %llu", &read[0], &read[1], &read[2]) == 3);
    fclose(file);
    for (int i = 0; i < 3; i++)
        numbers[i] = read[i];
}
