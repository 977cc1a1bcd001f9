#include "native.h"
#include <unistd.h>

namespace warehouse {
static volatile int sink;

struct Shelf {
    int level;
    explicit Shelf(int seconds);
    Shelf() : level(1) {}
    int restock(int seconds);
    template <typename Item> int place(Item item, int seconds);
};

__attribute__((noinline)) Shelf::Shelf(int seconds) : level(seconds) {
    sleep(seconds);
    ++sink;
}

__attribute__((noinline)) int Shelf::restock(int seconds) {
    sleep(seconds);
    return level + ++sink;
}

template <typename Item> __attribute__((noinline)) int Shelf::place(Item item, int seconds) {
    sleep(seconds);
    return static_cast<int>(item) + ++sink;
}
}

using namespace warehouse;

int native_cxx_method(int seconds) { return Shelf().restock(seconds) + ++sink; }

int native_cxx_lambda(int seconds) {
    auto wait = [](int length) __attribute__((noinline)) {
        sleep(length);
        return ++sink;
    };
    return wait(seconds) + ++sink;
}

int native_cxx_template_of_int(int seconds) { return Shelf().place(1, seconds) + ++sink; }
int native_cxx_template_of_double(int seconds) { return Shelf().place(1.5, seconds) + ++sink; }
int native_cxx_constructor(int seconds) { return Shelf(seconds).level + ++sink; }
