/// An exception through five frames, each with an object to destroy.
#include "CTrials.h"

#include <stdexcept>
#include <string>

namespace {

struct Counted {
    static int alive;
    std::string text;
    explicit Counted(int number) : text("frame " + std::to_string(number)) { alive++; }
    ~Counted() { alive--; }
};
int Counted::alive = 0;

__attribute__((noinline)) int raise_below(int depth) {
    Counted counted(depth);
    if (depth == 0)
        throw std::runtime_error("a known exception");
    return raise_below(depth - 1) + static_cast<int>(counted.text.size());
}

}  // namespace

void trial_throw_once() {
    try {
        raise_below(5);
    } catch (const std::runtime_error &) {
    }
}
