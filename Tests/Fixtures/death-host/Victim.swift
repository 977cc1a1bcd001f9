import CDeathHost
import Glibc
import RunLoopKit
import StallMonitor
import StallReports
import Synchronization

/// The server itself: a loop on a separate thread, watched, and made to stall.
final class Victim: Sendable {
    let directory: String
    let monitor: StallMonitor
    private let loop: EventRunLoop

    init(directory: String) {
        self.directory = directory
        let made = Mutex<EventRunLoop?>(nil)
        startThread {
            let loop = EventRunLoop.current
            loop.add(EventSource { _ in })
            made.withLock { $0 = loop }
            loop.run()
        }
        while made.withLock({ $0 == nil }) { sched_yield() }
        loop = made.withLock { $0! }
        var configuration = StallMonitor.Configuration(
            directory: directory,
            rule: rule,
            repeats: .everyStall,
            service: .init(name: "death")
        )
        if let death = CommandLine.arguments.last, death.hasPrefix("last-resort") {
            configuration.abortsAfter = .seconds(1)
            configuration.abortPatience = .seconds(1)
            if death.hasPrefix("last-resort-hung") { signal(SIGABRT) { _ in while true { pause() } } }
            // 11 is RLIMIT_SIGPENDING: timers count as queued signals.
            var none = rlimit(rlim_cur: 0, rlim_max: 0)
            if death == "last-resort-hung-without-timer" { unsafe setrlimit(__rlimit_resource_t(11), &none) }
        }
        monitor = StallMonitor.start(configuration, watching: [loop]) { event in
            switch event {
            case .began(let report):
                tell("began \(report.id)")
                if CommandLine.arguments.last == "unreported" { while true { pause() } }
            case .ended(let report):
                tell("ended \(report.id)")
                if CommandLine.arguments[1] == "log" { writeAgain(report, in: directory) }
            default: break
            }
        }
        tell("ready \(getpid())")
    }

    /// Returns when the stall is over.
    func stall(for duration: Duration) {
        try? loop.performAndWait {
            tell("stall \(MonotonicInstant.now.nanoseconds)")
            sleep(duration)
            tell("moved \(MonotonicInstant.now.nanoseconds)")
        }
    }

    /// Returns when everything known now is reported, or after half a minute.
    func settle() {
        let isSettled = Atomic(false)
        monitor.settle { isSettled.store(true, ordering: .relaxed) }
        let deadline = MonotonicInstant.now + .seconds(30)
        while !isSettled.load(ordering: .relaxed), MonotonicInstant.now < deadline { sleep(.milliseconds(20)) }
    }

    func stallAgainAndAgain() {
        while true {
            stall(for: .milliseconds(Int.random(in: 50...900)))
            sleep(.milliseconds(Int.random(in: 5...60)))
        }
    }

    /// - Parameter death: The way in which the process dies. It happens when the caller sends a byte, or is caused by the caller.
    func live(until death: String) {
        if death == "kill" { stallAgainAndAgain() }
        if death == "first-thread-ended" { endFirstThread() }
        startThread { [self] in stall(for: .seconds(600)) }
        if death == "unreported" { second() }
        waitForOrder()
        switch death {
        case "crash": unsafe UnsafeMutablePointer<Int>(bitPattern: 8)!.pointee = 1
        case "abort": abort()
        case "exit": exit(7)
        case "return": return
        case "_exit": _exit(7)
        case "memory": takeAllMemory()
        case "exec": becomeAnother()
        case "fork": leaveChild()
        case "fork-cancelled": tell("status \(victim_fork_cancelled())")
        case "close": closeDescriptors()
        default: fail("no such death")
        }
    }

    private func waitForOrder() {
        var byte: UInt8 = 0
        while unsafe read(STDIN_FILENO, &byte, 1) < 0, errno == EINTR {}
    }

    /// Another loop's stall, which the reporter never handles.
    private func second() {
        startThread { [self] in
            let loop = EventRunLoop.current
            loop.add(EventSource { _ in })
            _ = try? monitor.watch(loop, label: "second")
            loop.perform { sleep(.seconds(600)) }
            loop.run()
        }
    }

    /// Like a server whose main function calls pthread_exit(3). Then the loop stalls for good.
    private func endFirstThread() -> Never {
        startThread { [self] in
            // The process's number leads to its program as long as its first thread lives.
            var byte: CChar = 0
            while unsafe readlink("/proc/self/exe", &byte, 1) > 0 { sched_yield() }
            try? loop.performAndWait { _ = readEmptyPipe() }
        }
        pthread_exit(nil)
    }

    private func takeAllMemory() {
        while true {
            let block = unsafe malloc(1 << 20)
            if let block = unsafe block { unsafe memset(block, 1, 1 << 20) }
        }
    }

    private func becomeAnother() {
        let name = unsafe strdup("sleep")
        let argument = unsafe strdup("600")
        var arguments: [UnsafeMutablePointer<CChar>?] = unsafe [name, argument, nil]
        unsafe execv("/bin/sleep", &arguments)
    }

    /// Leaves a child that continues to live as the same program.
    private func leaveChild() {
        let child = victim_fork()
        if child == 0 { while true { pause() } }
        tell("child \(child)")
        kill(getpid(), SIGKILL)
    }

    /// Closes descriptors like servers that become daemons; then opens other files, which get the same numbers.
    private func closeDescriptors() {
        victim_close_from(3)
        for index in 0..<40 {
            let file = unsafe open("\(directory)/../precious-\(index)", O_RDWR | O_CREAT, 0o600)
            _ = unsafe write(file, "precious", 8)
        }
        tell("closed")
        waitForOrder()
    }
}

/// Whether a report was recorded as promised.
let hasPromised = Atomic(false)

/// Writes the report under another id, and records it as promised once the write has returned.
private func writeAgain(_ report: StallReport, in directory: String) {
    var copy = report
    copy.id = .make()
    guard (try? ReportDirectory(path: directory).write(copy)) != nil else { fail("the report was not written") }
    unsafe write_log_promise(ReportFileName(.stall, copy.id).description)
    hasPromised.store(true, ordering: .relaxed)
}

@inline(never)
private func readEmptyPipe() -> Int {
    var ends: [Int32] = [0, 0]
    guard unsafe pipe(&ends) == 0 else { fail("no pipe") }
    var byte: UInt8 = 0
    let count = unsafe read(ends[0], &byte, 1)
    for end in ends { close(end) }
    return count
}
