import Foundation
import Glibc
import RunLoopKit
import StallMonitor
import StallMonitorLoops
import StallReports
import Synchronization

/// A process whose task pool works or starves: `pool-host DIRECTORY SCENE…`. It prints the scene that begins, the begin and end
/// of its jobs in wall clock time, and the monitor's events; the reports are in the directory.
@main
struct PoolHost {
    static func main() {
        var arguments = CommandLine.arguments
        var configuration = StallMonitor.Configuration()
        if arguments.count > 2, arguments[2].hasPrefix("long=") {
            configuration.reportsJobsLongerThan = Int(arguments.remove(at: 2).dropFirst(5)).map { .milliseconds($0) }
        }
        let scenes = arguments.dropFirst(2).compactMap(Scene.init(rawValue:))
        guard !scenes.isEmpty, scenes.count == arguments.count - 2 else {
            say(
                "usage: pool-host DIRECTORY [long=MILLISECONDS] \(Scene.allCases.map(\.rawValue).joined(separator: "|"))…"
            )
            exit(2)
        }
        configuration.directory = arguments[1]
        let executors = Executors()
        let monitor = StallMonitor.start(
            configuration,
            watching: [.taskPool, .pools(executors.all.map(\.heartbeat))],
            onEvent: Self.tell
        )
        for scene in scenes {
            say("scene \(scene.rawValue)")
            scene.play(on: executors)
            Jobs.tell()
            // Before the next scene: the end of a stall is detected at the next sample, and its report is written after that.
            if scene.starves { Events.awaitEnds() }
        }
        monitor.stop()
    }

    private static let tell: @Sendable (StallEvent) -> Void = { event in
        switch event {
        case .began(let report):
            say("began \(report.id) \(report.watched.label)")
            Events.noteBegin()
        case .ended(let report):
            say("ended \(report.id) \(report.cause.summary)")
            Events.noteEnd()
        case .suppressed(let stall):
            // Only counted: for the scene it is a stall like the others.
            say("suppressed \(stall.fingerprint)")
        case .fault(let fault): say("fault \(fault)")
        default: break
        }
    }
}

/// Prints a line immediately: its reader may end this process.
func say(_ line: String) { FileHandle.standardOutput.write(Data((line + "\n").utf8)) }

/// The number of reported stalls.
enum Events {
    private static let counts = Mutex((began: 0, ended: 0))

    static func noteBegin() { counts.withLock { $0.began += 1 } }
    static func noteEnd() { counts.withLock { $0.ended += 1 } }
    static var began: Int { counts.withLock { $0.began } }

    /// Waits for ten seconds at most: the test checks for missing events.
    static func awaitEnds() {
        for _ in 0..<1_000 where counts.withLock({ $0.ended < $0.began }) { usleep(10_000) }
    }
}

/// The begin and end of each job of the scene.
enum Jobs {
    private static let spans = Mutex<[(start: Int64, end: Int64)]>([])
    private static let starts = Mutex(0)
    private static let lockers = Mutex<Set<Int>>([])

    static func note(_ work: () -> Void) {
        let start = wall()
        starts.withLock { $0 += 1 }
        work()
        let end = wall()
        spans.withLock { $0.append((start, end)) }
    }

    /// The number of jobs that have begun.
    static var started: Int { starts.withLock { $0 } }

    /// The number of jobs that hold their first lock, including the caller.
    static func locked(by number: Int) -> Int {
        lockers.withLock { lockers in
            lockers.insert(number)
            return lockers.count
        }
    }

    static func tell() {
        for span in spans.withLock({ $0 }) { say("job \(span.start) \(span.end)") }
        spans.withLock { $0 = [] }
        starts.withLock { $0 = 0 }
    }

    private static func wall() -> Int64 {
        var time = timespec()
        unsafe clock_gettime(CLOCK_REALTIME, &time)
        return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
    }
}

/// The server's own executors.
struct Executors {
    let pair = OwnExecutor("own executor", width: 2)
    let four = OwnExecutor("four workers", width: 4)

    var all: [OwnExecutor] { [pair, four] }
}

/// An executor of the server that names its jobs.
final class OwnExecutor: TaskExecutor {
    let heartbeat: TaskPoolHeartbeat
    private let jobs = Mutex<[UnownedJob]>([])
    private let arrival = DispatchSemaphore(value: 0)

    init(_ label: String, width: Int) {
        heartbeat = TaskPoolHeartbeat(label: label, width: width)
        for _ in 0..<width { Thread.detachNewThread { [self] in work() } }
    }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        heartbeat.didEnqueue()
        jobs.withLock { $0.append(job) }
        arrival.signal()
    }

    private func work() -> Never {
        while true {
            arrival.wait()
            let job = jobs.withLock { $0.isEmpty ? nil : $0.removeFirst() }
            if let job { heartbeat.run { unsafe job.runSynchronously(on: asUnownedTaskExecutor()) } }
        }
    }
}
