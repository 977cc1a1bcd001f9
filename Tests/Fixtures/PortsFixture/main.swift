import CRunLoopPorts
import CRunLoopShims
import Glibc
import RunLoopKit
import RunLoopPorts
import Synchronization

// Processes at the other end of a port. Each prints what it observed; the tests compare.
//
//     PortsFixture ROLE DIRECTORY NAME

func say(_ text: String) {
    print(text)
    fflush(nil)
}

let arguments = CommandLine.arguments
let role = arguments.count > 1 ? arguments[1] : ""
let directory = PortDirectory(arguments.count > 2 ? arguments[2] : "/nonexistent")

func name() throws -> PortName { try PortName(arguments.count > 3 ? arguments[3] : "port") }

/// Serves a named port until it is killed: replies to requests with the same components, in order.
func serve(_ handler: @escaping @Sendable (ReceivedMessage) -> Void) throws {
    let port = try LocalPort(name(), in: directory, handler)
    try EventRunLoop.current.add(port)
    say("ready \(getpid())")
    EventRunLoop.current.run()
}

func echo() throws {
    try serve { message in
        switch message.id {
        // Without a reply.
        case 404: break
        case 500: exit(7)
        // Writes to the received descriptor.
        case 7:
            guard let descriptor = message.takeDescriptor(at: 0) else { return say("no descriptor") }
            _ = unsafe write(descriptor, "hello", 5)
            close(descriptor)
        // Sends to the received reply port, twice.
        case 8:
            guard let port = message.takeReplyPort() else { return say("no reply port") }
            for text in ["first", "second"] { try? port.send(PortMessage(id: 9, text: text)) }
        default: try? message.reply(PortMessage(id: message.id + 1, components: message.components))
        }
    }
}

/// Has a port, and never receives from it.
func hold() throws {
    let port = try LocalPort(name(), in: directory) { _ in }
    say("ready \(getpid())")
    while readLine() != nil {}
    port.invalidate()
}

/// Ends the process's first thread. Then another one makes a port and reaches it by its name.
func endFirstThread() -> Never {
    var thread = pthread_t()
    let error = unsafe pthread_create(
        &thread,
        nil,
        { _ in
            // The process's number leads to its program as long as its first thread lives.
            var byte: CChar = 0
            while unsafe readlink("/proc/self/exe", &byte, 1) > 0 { sched_yield() }
            do {
                let port = try LocalPort(name(), in: directory) { _ in }
                try RemotePort(name(), in: directory).send(PortMessage())
                say("reached")
                port.invalidate()
            } catch {
                say("error: \(error)")
            }
            exit(0)
        },
        nil
    )
    precondition(error == 0, "the machine has no thread")
    pthread_exit(nil)
}

/// Tries to take the name as soon as a line is read, and keeps it until the end of the input.
func race() throws {
    say("ready \(getpid())")
    _ = readLine()
    do {
        let port = try LocalPort(name(), in: directory) { _ in }
        say("won")
        while readLine() != nil {}
        port.invalidate()
    } catch let error as RunLoopError {
        say(error.code == .portNameInUse ? "lost" : "error: \(error)")
        while readLine() != nil {}
    }
}

/// The number of the process's open descriptors, including the one used to count them.
func openDescriptors() -> Int {
    guard let directory = unsafe opendir("/proc/self/fd") else { return -1 }
    defer { unsafe closedir(directory) }
    var count = 0
    while unsafe readdir(directory) != nil { count += 1 }
    return count
}

/// Repeats everything that can be done with descriptors in messages, and prints the number left open afterwards.
func leaks() throws {
    try passDescriptors()
    let before = openDescriptors()
    for _ in 0..<200 { try passDescriptors() }
    say("left behind: \(openDescriptors() - before)")
}

func passDescriptors() throws {
    let loop = EventRunLoop.current
    let port = try LocalPort(name(), in: directory) { message in
        // One is taken and closed, the rest are left to the message.
        if let taken = message.takeDescriptor(at: 0) { close(taken) }
        if message.expectsReply { try? message.reply(PortMessage(descriptors: [0, 1, 2])) }
    }
    try loop.add(port)
    let remote = try RemotePort(name(), in: directory)
    try remote.send(PortMessage(descriptors: [0, 1, 2], replyPort: port))
    _ = try remote.request(PortMessage(descriptors: [0, 0]))
    // Exceeds each limit: rejected before anything is sent.
    let large = [UInt8](repeating: 0, count: PortMessage.maximumSize + 1)
    for refused in [
        PortMessage(components: [large], descriptors: [0], replyPort: port),
        PortMessage(descriptors: Array(repeating: 0, count: 254), replyPort: port),
        // Rejected by the kernel.
        PortMessage(descriptors: [0, 999_999], replyPort: port),
    ] {
        do {
            try remote.send(refused)
            say("sent what could not be sent")
        } catch {}
    }
    // Not delivered before the port is invalidated.
    try remote.send(PortMessage(descriptors: [0, 1, 2], replyPort: port))
    rawConnections()
    loop.run(for: .milliseconds(1))
    port.invalidate()
    remote.invalidate()
}

/// Connects without the library and sends invalid messages, with descriptors.
func rawConnections() {
    for length in [1, 20, 5000, 200_000] {
        let socket = run_loop_message_socket()
        defer { close(socket) }
        guard let text = arguments.dropFirst(3).first else { return }
        let path = directory.path + "/" + text + ".port"
        guard unsafe run_loop_message_connect(socket, path, 1_000_000) == 0 else { return say("not connected") }
        let bytes = [UInt8](repeating: 0xA5, count: length)
        unsafe bytes.withUnsafeBytes { bytes in
            var part = unsafe iovec(
                iov_base: UnsafeMutableRawPointer(mutating: bytes.baseAddress),
                iov_len: bytes.count
            )
            _ = unsafe run_loop_message_send(socket, &part, 1, [0, 1, 2], 3)
        }
        for _ in 0..<3 { EventRunLoop.current.run(for: .zero) }
    }
}

/// Fills the descriptor table except for `free` descriptors, does the work, and closes them.
func with(free: Int, _ work: () -> Void) {
    var taken: [Int32] = []
    while case let fd = dup(0), fd >= 0 { taken.append(fd) }
    for _ in 0..<free { if let fd = taken.popLast() { close(fd) } }
    work()
    for fd in taken { close(fd) }
}

func code(_ work: () throws -> Void) -> String {
    do {
        try work()
        return "done"
    } catch let error as RunLoopError {
        return error.code == .outOfResources ? "outOfResources" : "\(error)"
    } catch {
        return "\(error)"
    }
}

/// Every creation with no, one, two … free descriptors: a typed error and nothing left open, or success.
func noDescriptors() throws {
    var limit = rlimit(rlim_cur: 64, rlim_max: 64)
    unsafe setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    let loop = EventRunLoop.current
    let other = LocalPort { _ in }
    // Once before the measurement, to create everything that is kept.
    try loop.add(other)
    loop.run(for: .zero)
    let port = try LocalPort(PortName("served"), in: directory) { _ in }
    let before = openDescriptors()
    for free in 0...8 {
        let outcomes = Outcomes()
        with(free: free) {
            outcomes.add(code { _ = try LocalPort(PortName("another"), in: directory) { _ in } })
            outcomes.add(code { _ = try RemotePort(PortName("served"), in: directory) })
            outcomes.add(code { _ = try RemotePort(to: other) })
        }
        // The loop detects that the other end was closed.
        while other.connectionCount > 0 { loop.run(for: .milliseconds(1)) }
        say("\(free): \(outcomes.text), left behind: \(openDescriptors() - before)")
    }
    port.invalidate()
    other.invalidate()
}

/// Collects outcomes, and prints them.
final class Outcomes {
    private var all: [String] = []
    func add(_ text: String) { all.append(text) }
    var text: String { all.joined(separator: " ") }
}

/// A receiver without descriptors refuses new connections and messages
/// that it cannot receive, reports the reason, and does not spin.
func refusals() throws {
    var limit = rlimit(rlim_cur: 64, rlim_max: 64)
    unsafe setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    var options = LocalPort.Options()
    options.onDrop = { _, reason in say("dropped: \(reason)") }
    let loop = EventRunLoop.current
    let port = try LocalPort(name(), in: directory, options: options) { _ in say("message") }
    try loop.add(port)
    let first = try RemotePort(name(), in: directory)
    try first.send(PortMessage())
    loop.run(for: .zero)
    loop.run(for: .zero)
    let before = openDescriptors()
    let second = try RemotePort(name(), in: directory)
    with(free: 0) {
        for _ in 0..<3 { loop.run(for: .zero) }
        try? first.send(PortMessage(descriptors: [0, 1, 2]))
        for _ in 0..<3 { loop.run(for: .zero) }
    }
    for port in [first, second] { say(code { try port.send(PortMessage()) }) }
    say("left behind: \(openDescriptors() - before)")
    try RemotePort(name(), in: directory).send(PortMessage())
    for _ in 0..<3 { loop.run(for: .zero) }
}

func setDescriptorLimit(_ count: rlim_t) {
    var limit = rlimit(rlim_cur: count, rlim_max: 64)
    unsafe setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
}

final class Turns: Sendable {
    let count = Atomic<Int>(0)
}

/// The receiver loses its spare descriptor in a shortage: a client that
/// connects waits, the loop sleeps, and afterwards everything works as before.
func shortage() throws {
    setDescriptorLimit(64)
    var options = LocalPort.Options()
    options.onDrop = { _, reason in say("dropped: \(reason)") }
    let loop = EventRunLoop.current
    let port = try LocalPort(name(), in: directory, options: options) { message in
        say("message")
        loop.stop()
    }
    try loop.add(port)
    let turns = Turns()
    loop.add(LoopObserver(activities: .beforeTimers) { _, _ in turns.count.add(1, ordering: .relaxed) })
    loop.run(for: .zero)
    let waiting = try RemotePort(name(), in: directory)
    try waiting.send(PortMessage())
    // No new number is below the limit: the spare descriptor cannot be opened again once it is closed.
    setDescriptorLimit(3)
    loop.run(for: .milliseconds(300))
    say("spins: \(turns.count.load(ordering: .relaxed) > 1000)")
    setDescriptorLimit(64)
    loop.run(for: .seconds(10))
    let refused = try RemotePort(name(), in: directory)
    with(free: 0) { for _ in 0..<3 { loop.run(for: .zero) } }
    say(code { try refused.send(PortMessage()) })
    port.invalidate()
}

do {
    switch role {
    case "echo": try echo()
    case "hold": try hold()
    case "race": try race()
    case "first-thread-ended": endFirstThread()
    case "leaks": try leaks()
    case "no-descriptors": try noDescriptors()
    case "refusals": try refusals()
    case "shortage": try shortage()
    default:
        say("unknown role")
        exit(64)
    }
} catch {
    say("failed: \(error)")
    exit(1)
}
