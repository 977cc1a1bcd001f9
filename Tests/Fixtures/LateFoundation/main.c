// A program with the hooks that loads Foundation late, for itself alone, and runs its loop until a timer fires. The argument is the library's path.
// Prints FIRED. Compiled by a test.

#include <dlfcn.h>
#include <poll.h>
#include <stdio.h>

static void *foundation;

static void *find(const char *name) { return dlsym(foundation, name); }

static void fired(void *timer, void *context) {
    void *(*current)(void) = find("CFRunLoopGetCurrent");
    void (*stop)(void *) = find("CFRunLoopStop");
    puts("FIRED");
    stop(current());
}

int main(int count, char **arguments) {
    struct pollfd none;
    poll(&none, 0, 1);  // the hooks know the other functions before Foundation is there
    foundation = count > 1 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!foundation) {
        puts(dlerror());
        return 1;
    }
    void *(*make_text)(void *, const char *, unsigned) = find("CFStringCreateWithCString");
    double (*now)(void) = find("CFAbsoluteTimeGetCurrent");
    void *(*make_timer)(void *, double, double, unsigned long, long, void (*)(void *, void *), void *) = find("CFRunLoopTimerCreate");
    void *(*current)(void) = find("CFRunLoopGetCurrent");
    void (*add)(void *, void *, void *) = find("CFRunLoopAddTimer");
    int (*run)(void *, double, unsigned char) = find("CFRunLoopRunInMode");
    void *mode = make_text(NULL, "kCFRunLoopDefaultMode", 0x08000100);
    add(current(), make_timer(NULL, now(), 0, 0, 0, fired, NULL), mode);
    return run(mode, 600, 0) == 2 ? 0 : 2;  // kCFRunLoopRunStopped
}
