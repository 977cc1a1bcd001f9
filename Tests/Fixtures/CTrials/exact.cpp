/// C++ frames: special cases of its compiler and its library.
#include "CTrials.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

volatile int done;

__attribute__((noinline)) void work(int amount) {
    for (volatile int i = 0; i < amount; i = i + 1) {}
    done = amount;
}

struct Busy {
    ~Busy() { work(3000); }
};

/// During the exception, the unwinder's frames and this destructor's are on the stack.
__attribute__((noinline)) int raise_below(int depth) {
    Busy busy;
    if (depth == 0)
        throw std::runtime_error("on its way");
    return raise_below(depth - 1) + 1;
}

void scene_throw() {
    try {
        done = raise_below(6);
    } catch (const std::exception &) {
        work(500);
    }
    done = 0;
}

void scene_rethrow() {
    try {
        try {
            done = raise_below(1);
        } catch (...) {
            work(1000);
            throw;
        }
    } catch (const std::exception &) {
        work(1000);
    }
    done = 0;
}

struct Shape {
    virtual ~Shape() = default;
    virtual int area(int depth) const = 0;
};
struct Square : Shape {
    int area(int depth) const override;
};
struct Circle : Shape {
    int area(int depth) const override {
        work(200);
        return depth == 0 ? 0 : Square().area(depth - 1) + 1;
    }
};
int Square::area(int depth) const {
    work(200);
    return depth == 0 ? 0 : std::make_unique<Circle>()->area(depth - 1) + 1;
}
void scene_virtual() {
    std::unique_ptr<Shape> shape = std::make_unique<Square>();
    done = shape->area(20);
}

template <int Depth>
struct Nested {
    __attribute__((noinline)) static int run() {
        work(200);
        return Nested<Depth - 1>::run() + 1;
    }
};
template <>
struct Nested<0> {
    static int run() { return 0; }
};
void scene_templates() { done = Nested<20>::run(); }

void scene_sort() {
    std::vector<std::string> words;
    for (int i = 0; i < 200; i++)
        words.push_back("a word, number " + std::to_string(i * 7919 % 200));
    std::sort(words.begin(), words.end(), [](const std::string &a, const std::string &b) {
        work(20);
        return a < b;
    });
    done = static_cast<int>(words.size());
}

void scene_function() {
    std::function<int(int)> recurse = [&recurse](int depth) {
        work(200);
        return depth == 0 ? 0 : recurse(depth - 1) + 1;
    };
    done = recurse(15);
}

void scene_map() {
    std::map<std::string, int> counts;
    for (int i = 0; i < 100; i++)
        counts[std::to_string(i * i % 61)]++;
    done = static_cast<int>(counts.size());
}

void scene_stream() {
    std::ostringstream stream;
    for (int i = 0; i < 50; i++)
        stream << i << ' ' << i / 3.0 << '\n';
    done = static_cast<int>(stream.str().size());
}

void scene_regex() {
    static const std::regex expression("(a+)(b|c)*d");
    done = std::regex_search(std::string("aaaabcbcbcbcbcbcd"), expression);
}

struct Slow {
    Slow() { work(20000); }
};
/// The guard is held during the construction of the object: a new guard for each instance.
template <int Number>
__attribute__((noinline)) int guarded() {
    static Slow slow;
    work(500);
    return reinterpret_cast<uintptr_t>(&slow) != 0;
}
void scene_static() {
    done = guarded<0>() + guarded<1>() + guarded<2>() + guarded<3>();
    for (int i = 0; i < 5; i++)
        done = guarded<4>();
}

}  // namespace

extern const trial_scene trial_cpp_scenes[] = {
    {"C++ throw", scene_throw},        {"C++ rethrow", scene_rethrow},   {"C++ virtual", scene_virtual},
    {"C++ templates", scene_templates}, {"std::sort", scene_sort},        {"std::function", scene_function},
    {"std::map", scene_map},           {"std::ostream", scene_stream},   {"std::regex", scene_regex},
    {"C++ static", scene_static},
};
extern const size_t trial_cpp_scene_count = sizeof trial_cpp_scenes / sizeof *trial_cpp_scenes;
