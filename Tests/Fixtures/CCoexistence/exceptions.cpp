#include "CCoexistence.h"

#include <ctime>

namespace {

struct Failure {
    int depth;
};

struct Count {
    int *left;
    ~Count() { ++*left; }
};

__attribute__((noinline)) void descend(int depth, int *left) {
    Count count{left};
    if (depth == 0) throw Failure{*left};
    descend(depth - 1, left);
    asm volatile("" ::: "memory");
}

uint64_t now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

extern "C" uint64_t coexist_throw(int count) {
    uint64_t began = now_ns();
    int left = 0, caught = 0;
    for (int i = 0; i < count; i++) {
        try {
            descend(20, &left);
        } catch (const Failure &) {
            caught++;
        }
    }
    return caught == count && left == count * 21 ? (now_ns() - began) / static_cast<uint64_t>(count) : 0;
}
