import CDeathHost
import Glibc
import RunLoopKit
import StallMonitor
import StallReports
import Synchronization

// A server that is going to die.
//
//   death-host DIRECTORY DEATH            watches a loop that stalls; dies in the way that DEATH names
//   death-host DIRECTORY elsewhere        stalls, changes its working directory, stalls again and stops
//   death-host kills DIRECTORY COUNT      sends SIGKILL to COUNT victims at random moments, and judges the files they left
//   death-host log DIRECTORY LOG MS       reports stalls for MS, and records each call to the disk
//   death-host judge LOG COUNT            cuts the power at COUNT random moments of such a log

/// 250 ms, as in a server.
let rule = StallRule()

@main
struct DeathHost {
    static func main() {
        let arguments = Array(CommandLine.arguments.dropFirst())
        switch (arguments.first, arguments.count) {
        case ("kills", 3): KillSeries(directory: arguments[1], count: Int(arguments[2]) ?? 1).run()
        case ("log", 4): log(directory: arguments[1], to: arguments[2], milliseconds: Int(arguments[3]) ?? 1000)
        case ("judge", 3): PowerCuts(log: arguments[1], count: Int(arguments[2]) ?? 1).run()
        case (_, 2) where arguments[1] == "elsewhere": goElsewhere(from: arguments[0])
        case (_, 2): Victim(directory: arguments[0]).live(until: arguments[1])
        default: fail("death-host: wrong usage")
        }
    }

    /// With a relative path for its reports.
    private static func goElsewhere(from directory: String) {
        let slash = directory.lastIndex(of: "/") ?? directory.startIndex
        guard unsafe chdir(String(directory[..<slash])) == 0 else { fail("no directory") }
        _ = unsafe mkdir("elsewhere", 0o700)
        let victim = Victim(directory: String(directory[directory.index(after: slash)...]))
        victim.stall(for: .seconds(1))
        guard unsafe chdir("elsewhere") == 0 else { fail("no other directory") }
        victim.stall(for: .seconds(1))
        victim.settle()
        victim.monitor.stop()
        tell("done", isLast: true)
    }

    private static func log(directory: String, to log: String, milliseconds: Int) {
        guard unsafe write_log_start(log) == 0 else { fail("no log") }
        let victim = Victim(directory: directory)
        startThread { victim.stallAgainAndAgain() }
        sleep(.milliseconds(milliseconds))
        // On a busy machine the first report can take longer.
        let deadline = MonotonicInstant.now + .seconds(60)
        while !hasPromised.load(ordering: .relaxed), MonotonicInstant.now < deadline { sleep(.milliseconds(20)) }
        victim.monitor.stop()
        // The data that the run log's last fsync was for is safe now.
        tell("done", isLast: true)
    }
}

func fail(_ message: String) -> Never {
    print(message)
    exit(1)
}

func sleep(_ duration: Duration) {
    let (seconds, attoseconds) = duration.components
    var wish = timespec(tv_sec: Int(seconds), tv_nsec: Int(attoseconds / 1_000_000_000))
    var rest = timespec()
    while unsafe nanosleep(&wish, &rest) != 0 { wish = rest }
}

private let hasToldLast = Mutex(false)

/// Prints a line immediately: the process may end soon. After the last line it prints no other: threads that continue
/// until the process has ended cannot add theirs.
func tell(_ line: String, isLast: Bool = false) {
    let bytes = Array((line + "\n").utf8)
    hasToldLast.withLock { hasToldLast in
        guard !hasToldLast else { return }
        hasToldLast = isLast
        _ = unsafe write(STDOUT_FILENO, bytes, bytes.count)
    }
}

func startThread(_ body: @escaping @Sendable () -> Void) {
    final class Box {
        let body: @Sendable () -> Void
        init(_ body: @escaping @Sendable () -> Void) { self.body = body }
    }
    var thread = pthread_t()
    let box = unsafe Unmanaged.passRetained(Box(body)).toOpaque()
    let error = unsafe pthread_create(
        &thread,
        nil,
        { argument in
            unsafe Unmanaged<Box>.fromOpaque(argument!).takeRetainedValue().body()
            return nil
        },
        box
    )
    precondition(error == 0, "the machine has no thread")
    pthread_detach(thread)
}
