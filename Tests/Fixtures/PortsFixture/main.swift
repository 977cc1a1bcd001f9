import CRunLoopPorts
import CRunLoopShims
import Glibc
import RunLoopKit
import RunLoopPorts
import Synchronization

// Processes at the other end of a port. Each prints what it saw; the tests compare.
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
    let port = try LocalPort(name(), in: directory, handler: handler)
    try EventRunLoop.current.add(port)
    say("ready \(getpid())")
    EventRunLoop.current.run()
}

func echo() throws {
    try serve { message in
        switch message.id {
        // Left without a reply.
        case 404: break
        case 500: exit(7)
        // The descriptor that came is written to.
        case 7:
            guard let descriptor = message.takeDescriptor(at: 0) else { return say("no descriptor") }
            _ = unsafe write(descriptor, "hello", 5)
            close(descriptor)
        // The reply port that came is sent to, twice.
        case 8:
            guard let port = message.takeReplyPort() else { return say("no reply port") }
            for text in ["first", "second"] { try? port.send(PortMessage(id: 9, text: text)) }
        default: try? message.reply(PortMessage(id: message.id + 1, components: message.components))
        }
    }
}

/// Has a port, and never looks at it.
func hold() throws {
    let port = try LocalPort(name(), in: directory) { _ in }
    say("ready \(getpid())")
    while readLine() != nil {}
    port.invalidate()
}

/// Tries for the name as soon as a line comes, and keeps it until the input ends.
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

/// How many descriptors the process has open, and the one that looks.
func openDescriptors() -> Int {
    guard let directory = unsafe opendir("/proc/self/fd") else { return -1 }
    defer { unsafe closedir(directory) }
    var count = 0
    while unsafe readdir(directory) != nil { count += 1 }
    return count
}

/// Everything that can be done with descriptors in messages, many times: what is left open afterwards.
func leaks() throws {
    try passDescriptors()
    let before = openDescriptors()
    for _ in 0..<200 { try passDescriptors() }
    say("left behind: \(openDescriptors() - before)")
}

func passDescriptors() throws {
    let loop = EventRunLoop.current
    let port = try LocalPort(name(), in: directory) { message in
        // One taken and closed, the rest left to the message.
        if let taken = message.takeDescriptor(at: 0) { close(taken) }
        if message.expectsReply { try? message.reply(PortMessage(descriptors: [0, 1, 2])) }
    }
    try loop.add(port)
    let remote = try RemotePort(name(), in: directory)
    try remote.send(PortMessage(descriptors: [0, 1, 2], replyPort: port))
    _ = try remote.request(PortMessage(descriptors: [0, 0]))
    // Too much of everything: refused before anything is sent.
    let large = [UInt8](repeating: 0, count: PortMessage.maximumSize + 1)
    for refused in [
        PortMessage(components: [large], descriptors: [0], replyPort: port),
        PortMessage(descriptors: Array(repeating: 0, count: 254), replyPort: port),
        // Refused by the kernel.
        PortMessage(descriptors: [0, 999_999], replyPort: port),
    ] {
        do {
            try remote.send(refused)
            say("sent what could not be sent")
        } catch {}
    }
    // Not delivered when the port goes.
    try remote.send(PortMessage(descriptors: [0, 1, 2], replyPort: port))
    rawConnections()
    loop.run(for: .milliseconds(1))
    port.invalidate()
    remote.invalidate()
}

/// Connects past the library and sends messages that are none, with descriptors.
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

/// Fills the descriptor table down to `free` descriptors, does the work, and gives them back.
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

/// Every creation with none, one, two … descriptors free: a typed error and nothing left open, or success.
func noDescriptors() throws {
    var limit = rlimit(rlim_cur: 64, rlim_max: 64)
    unsafe setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    let loop = EventRunLoop.current
    let other = LocalPort { _ in }
    // Once, so that what lasts is there.
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
        // Whose other end has gone is noticed on the loop.
        while other.connectionCount > 0 { loop.run(for: .milliseconds(1)) }
        say("\(free): \(outcomes.text), left behind: \(openDescriptors() - before)")
    }
    port.invalidate()
    other.invalidate()
}

/// A list that prints.
final class Outcomes {
    private var all: [String] = []
    func add(_ text: String) { all.append(text) }
    var text: String { all.joined(separator: " ") }
}

/// A receiver without descriptors refuses who connects and what cannot be received, says why, and does not spin.
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

/// The receiver's spare descriptor is lost in a shortage: who connects waits, the loop sleeps, and afterwards all is as before.
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
    // No new number is below the limit: the spare one cannot be had again once it is given up.
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
