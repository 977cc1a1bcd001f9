import Glibc

// Two ways to talk to a thread that lives by its loop.
//
// With ports: the worker checks in with a port of its own, and from then on gets commands and sends answers. With a source of one's
// own: commands are buffered, and the source is signalled when they are to be performed.

do {
    try checkInExample()
    commandSourceExample()
} catch {
    print("failed: \(error)")
    exit(1)
}
