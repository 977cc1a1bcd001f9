import Dispatch
import Glibc
import RunLoopKit
import StallMonitor
import StallReports
import Synchronization

// A process with a monitored loop that a test stops, freezes, traces and forks. It reads one command per line:
//
//     pause-host DIRECTORY TICKS
// It prints "ready TID", with the worker's number, and then:
//
//     block    the loop's thread waits in read(2): "block TID"
//     spin     it computes: "spin TID"
//     release  it continues: "released"
//     fork     a child uses the monitor, and starts its own: "child …"
//     hold     at the end of the next stall the handler waits for a further line: "held", and then "let go"
//     stop     the monitor ends: "stopped"
//
// It prints "began" and "ended" when stalls begin and end. It ends at the end of its input.

/// One write per line: safe with other threads, and in a fork's child.
func say(_ text: String) {
    let line = text + "\n"
    _ = unsafe line.utf8.withContiguousStorageIfAvailable { unsafe write(STDOUT_FILENO, $0.baseAddress, $0.count) }
}

func spin(until descriptor: Int32) {
    var poll = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
    var sum = 1
    while unsafe Glibc.poll(&poll, 1, 0) == 0 {
        for step in 0..<100_000 { sum = sum &* 31 &+ step }
    }
    precondition(sum != 0 || poll.revents != 0)
}

func take(from descriptor: Int32) {
    var byte: UInt8 = 0
    while unsafe read(descriptor, &byte, 1) < 0, errno == EINTR {}
}

/// Swift offers no fork: its runtime guarantees nothing in a child that
/// does not exec. The functions that the child uses here work anyway.
func forkedChild() -> pid_t {
    typealias Fork = @convention(c) () -> pid_t
    guard let symbol = unsafe dlsym(nil, "fork") else { return -1 }
    return unsafe unsafeBitCast(symbol, to: Fork.self)()
}

func tryInChild(_ monitor: StallMonitor, _ configuration: StallMonitor.Configuration) {
    // Whoever started this program may have blocked the signal.
    var alarms = sigset_t()
    unsafe sigemptyset(&alarms)
    unsafe sigaddset(&alarms, SIGALRM)
    unsafe pthread_sigmask(SIG_UNBLOCK, &alarms, nil)
    alarm(30)
    let isForked = monitor.disarmed?.code == .forked
    say("child running \(monitor.isRunning), forked \(isForked)")
    monitor.pause()
    monitor.resume()
    say(
        "child slow \(monitor.expectSlow(for: .seconds(1)) { 42 }), watch \(monitor.watch(of: EventRunLoop.main) == nil)"
    )
    monitor.stop()
    var own = configuration
    own.directory += "-child"
    let another = StallMonitor.start(own) { event in
        if case .fault(let error) = event { say("child fault \(error)") }
    }
    EventRunLoop.main.perform { usleep(700_000) }
    _ = EventRunLoop.main.run(for: .milliseconds(900))
    another.stop()
    say("child done")
}

enum Handler {
    static let waits = Atomic(false)
}

func report(_ event: StallEvent) {
    switch event {
    case .began: say("began")
    case .grew: break
    case .ended:
        say("ended")
        guard Handler.waits.exchange(false, ordering: .sequentiallyConsistent) else { return }
        say("held")
        // The thread that reads the commands is stopping the monitor.
        _ = readLine()
        say("let go")
    case .fault(let error): say("fault \(error)")
    case .mended, .suppressed: break
    }
}

func serve() throws {
    let arguments = CommandLine.arguments
    guard arguments.count == 3, let ticks = Int(arguments[2]) else { fatalError("pause-host DIRECTORY TICKS") }
    var ends: [Int32] = [0, 0]
    guard unsafe pipe(&ends) == 0 else { fatalError("no pipe") }
    let worker = try WorkerThread(name: "worker")
    let configuration = StallMonitor.Configuration(
        directory: arguments[1],
        rule: StallRule(ticks: ticks),
        repeats: .everyStall
    )
    let monitor = StallMonitor.start(configuration, onEvent: report)
    try monitor.watch(worker.loop, label: "worker")
    // By then the watchdog has sampled the process. It detects a pause in its first moments, but cannot determine its kind.
    usleep(200_000)
    say("ready \(worker.loop.thread?.id ?? 0)")
    while let command = readLine() {
        switch command {
        case "block", "spin": stall(worker.loop, in: command, until: ends[0])
        case "release": release(worker.loop, by: ends[1])
        case "fork": fork(monitor, configuration)
        case "hold": Handler.waits.store(true, ordering: .sequentiallyConsistent)
        case "stop":
            monitor.stop()
            say("stopped")
        default: say("unknown \(command)")
        }
    }
}

func stall(_ loop: EventRunLoop, in command: String, until input: Int32) {
    loop.perform {
        say("\(command) \(loop.thread?.id ?? 0)")
        if command == "spin" { spin(until: input) }
        take(from: input)
    }
}

func release(_ loop: EventRunLoop, by output: Int32) {
    let done = DispatchSemaphore(value: 0)
    _ = unsafe write(output, "x", 1)
    loop.perform { done.signal() }
    done.wait()
    say("released")
}

func fork(_ monitor: StallMonitor, _ configuration: StallMonitor.Configuration) {
    let child = forkedChild()
    if child == 0 {
        tryInChild(monitor, configuration)
        _exit(0)
    }
    var status: Int32 = 0
    while unsafe waitpid(child, &status, 0) < 0, errno == EINTR {}
    say("forked \(status)")
}

try serve()
_exit(0)
