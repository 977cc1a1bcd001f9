import CEventLoops
import Dispatch
import Foundation
import Glibc
import RunLoopKit
import Synchronization

/// A loop in C, on a separate thread.
@safe struct Loop: @unchecked Sendable {
    // Any thread may use it.
    private let loop: OpaquePointer

    init(_ name: String, _ wait: event_wait = EVENT_EPOLL) { unsafe loop = event_loop_start(name, wait) }

    /// A loop whose epoll set has the number of the other's, which is closed. The other one is in a job, and ends after it.
    init(_ name: String, inPlaceOf other: Loop) {
        unsafe loop = event_loop_start_in_place(name, other.loop)
    }

    /// The loop that was created before the program started: in the scene `early`.
    static var early: Loop? { unsafe event_early_loop().map { unsafe Loop($0) } }

    private init(_ loop: OpaquePointer) { unsafe self.loop = unsafe loop }

    /// Makes the loop call `job`. One at a time: a job that was not called yet is replaced.
    func run(_ job: @escaping @Sendable () -> Void) {
        let box = unsafe Unmanaged.passRetained(Job(job)).toOpaque()
        unsafe event_loop_run(loop, { unsafe Unmanaged<Job>.fromOpaque($0!).takeRetainedValue().body() }, box)
    }

    /// Waits until the loop has taken its pending job, which it does before it works.
    func awaitJob() { while unsafe event_loop_has_job(loop) { usleep(1_000) } }

    /// Makes the loop call `job` after its present one, and waits until it is done.
    func runToEnd(_ job: @escaping @Sendable () -> Void) {
        awaitJob()
        let done = DispatchSemaphore(value: 0)
        run {
            job()
            done.signal()
        }
        done.wait()
    }

    /// Connects clients to the socket that the loop listens on; they wait to be accepted. Any thread.
    func connectClients(_ count: Int32) { unsafe event_connect(event_loop_listener(loop), count) }

    func end() { unsafe event_loop_end(loop) }
}

/// A run loop of the package, with loops in its first callouts. Then it rests.
func runLoopWithNestedLoops() -> WorkerThread? {
    guard let worker = try? WorkerThread(name: "run-loop") else { return nil }
    for _ in 0..<3 { try? worker.loop.performAndWait { event_nested_loop(3, 5) } }
    return worker
}

/// Lets a queue's thread wait for a child in Foundation's loop. Then the thread waits for other work.
func waitForChildOnQueue() {
    let done = DispatchSemaphore(value: 0)
    DispatchQueue.global().async {
        let child = Process()
        child.executableURL = URL(filePath: "/bin/sleep")
        child.arguments = ["0.4"]
        try? child.run()
        child.waitUntilExit()
        done.signal()
    }
    done.wait()
}

private final class Job {
    let body: @Sendable () -> Void

    init(_ body: @escaping @Sendable () -> Void) { self.body = body }
}

/// How many sleeps have ended.
let slept = Count()

final class Count: Sendable {
    private let count = Atomic(0)

    func add(_ number: Int) { count.add(number, ordering: .relaxed) }
}

/// How often threads other than the caller have woken from a sleep.
enum Wakes {
    /// Waits for a second in which no thread wakes, for at most ten. Returns the number of wake-ups in the last one.
    static func untilRest() -> Int {
        var wakes = -1
        for _ in 0..<10 where wakes != 0 {
            usleep(300_000)
            let before = ofOthers
            sleep(1)
            wakes = ofOthers - before
        }
        return wakes
    }

    static var ofOthers: Int {
        threads.filter { $0 != getpid() }.reduce(0) { $0 + wakes(of: $1) }
    }

    private static var threads: [Int32] {
        guard let directory = unsafe opendir("/proc/self/task") else { return [] }
        defer { unsafe closedir(directory) }
        var found: [Int32] = []
        while let entry = unsafe readdir(directory) {
            let name = unsafe withUnsafePointer(to: entry.pointee.d_name) {
                unsafe $0.withMemoryRebound(to: CChar.self, capacity: 256) { unsafe String(cString: $0) }
            }
            if let number = Int32(name) { found.append(number) }
        }
        return found
    }

    private static func wakes(of thread: Int32) -> Int {
        guard let file = unsafe fopen("/proc/self/task/\(thread)/status", "r") else { return 0 }
        defer { unsafe fclose(file) }
        var bytes = [CChar](repeating: 0, count: 4_096)
        let count = unsafe fread(&bytes, 1, bytes.count, file)
        let text = String(decoding: bytes.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self)
        let line = text.split(separator: "\n").first { $0.hasPrefix("voluntary_ctxt_switches:") }
        return line.flatMap { Int($0.split(whereSeparator: \.isWhitespace).last ?? "") } ?? 0
    }
}
