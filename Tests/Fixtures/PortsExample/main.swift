import Glibc

// Two ways to communicate with a thread that runs a loop.
//
// With ports: the worker checks in with its own port, and from then on receives commands and sends answers. With a custom source:
// commands are buffered, and the source is signalled to perform them.

do {
    try checkInExample()
    commandSourceExample()
} catch {
    print("failed: \(error)")
    exit(1)
}
