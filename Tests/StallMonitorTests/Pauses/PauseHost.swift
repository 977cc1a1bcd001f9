import Foundation
import Glibc
import RunLoopKit
import StallReading
import StallReports
import Synchronization
import TestSupport
import Testing

@testable import StallDiagnosis
@testable import StallMonitor

/// A running `pause-host`. It ends with this value. Waiting for it blocks no thread.
final class PauseHost: Sendable {
    let directory = TemporaryDirectory(inMemory: true)
    private let process = Process()
    private let input = Pipe()
    private let lines = Lines()
    /// Control groups that it or its threads are in: they can be removed after it has ended.
    let groups: Mutex<[TestGroup]>

    static let executable = URL.built("pause-host")

    /// - Parameters:
    ///   - ticks: of 50 ms, that make a stall.
    ///   - group: where it runs.
    ///   - onOneProcessor: and on the first CPU that it may use, alone.
    init(
        ticks: Int,
        environment: [String: String] = [:],
        in group: TestGroup? = nil,
        onOneProcessor: Bool = false
    ) throws {
        groups = Mutex(group.map { [$0] } ?? [])
        let output = Pipe()
        process.executableURL = URL(filePath: "/bin/sh")
        // The shell moves itself, so that the monitor is in the group from the start.
        var move = group.map { "echo $$ > \($0.path)/cgroup.procs && " } ?? ""
        if onOneProcessor { move += "taskset -p -c $(taskset -p -c $$ | sed 's/.*: \\([0-9]*\\).*/\\1/') $$ >&2 && " }
        process.arguments = ["-c", "\(move)exec \"$@\"", "sh", Self.executable.path, reports, "\(ticks)"]
        process.environment = ProcessInfo.processInfo.environment.merging(environment) { $1 }
        (process.standardInput, process.standardOutput) = (input, output)
        try process.run()
        startThread { [lines] in lines.collect(output.fileHandleForReading) }
    }

    private var reports: String { directory.path + "/reports" }
    var processID: Int32 { process.processIdentifier }

    func send(_ command: String) throws {
        try input.fileHandleForWriting.write(contentsOf: Data((command + "\n").utf8))
    }

    /// Waits for a line with this beginning, and takes it and all lines before it. Returns the rest of the line.
    @discardableResult
    func expect(_ word: String, _ location: SourceLocation = #_sourceLocation) async throws -> String {
        var found: String?
        try await until(location) {
            found = self.lines.withLock { lines in
                guard let index = lines.firstIndex(where: { $0.hasPrefix(word) }) else { return nil }
                defer { lines.removeFirst(index + 1) }
                return lines[index]
            }
            return found != nil
        }
        return String(try #require(found).dropFirst(word.count).drop { $0 == " " })
    }

    /// Waits until a condition holds, at most five minutes: a busy machine needs long to make a report.
    func until(_ location: SourceLocation = #_sourceLocation, _ condition: () throws -> Bool) async throws {
        let end = ContinuousClock.now + .seconds(300)
        while !(try condition()) {
            try #require(ContinuousClock.now < end, "waited in vain", sourceLocation: location)
            try await Task.sleep(for: .milliseconds(5))
        }
    }

    /// Keeps the loop busy with the process stopped meanwhile, for `time`. On a separate thread: the time in which
    /// the loop is busy and not stopped must stay short, however busy the tests' thread pool is.
    func stand(
        for time: Duration,
        _ stop: @escaping @Sendable () -> Void,
        until isStopped: @escaping @Sendable () -> Bool,
        _ goOn: @escaping @Sendable () -> Void
    ) async throws {
        let start = ContinuousClock.now
        try send("block")
        let lateness = await withCheckedContinuation { continuation in
            startThread { [self] in
                let end = start + .seconds(60)
                while !lines.withLock({ $0.contains { $0.hasPrefix("block") } }), ContinuousClock.now < end {
                    usleep(2_000)
                }
                stop()
                while !isStopped(), ContinuousClock.now < end { usleep(2_000) }
                let lateness = ContinuousClock.now - start
                _ = stallInSleep(Int(time / .milliseconds(1)))
                goOn()
                // Time for a look, which sees that the loop has been at a standstill all along.
                _ = stallInSleep(300)
                try? send("release")
                continuation.resume(returning: lateness)
            }
        }
        LatenessWitness.note(lateness)
    }

    func signal(_ number: Int32) { kill(processID, number) }

    /// The kernel's state letter for a thread, by default the main thread.
    func state(_ threadID: Int32? = nil) -> Character? {
        let path = "/proc/\(processID)/task/\(threadID ?? processID)/status"
        return readSmallFile(path).flatMap(ThreadStatus.init(status:))?.state
    }

    /// Whether SIGSTOP has reached every thread: it reaches one after the other.
    var isStopped: Bool {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/\(processID)/task")) ?? []
        return !names.isEmpty && names.compactMap { Int32($0) }.allSatisfy { state($0) == "T" }
    }

    var tracer: Int32? { readSmallFile("/proc/\(processID)/status").flatMap(ThreadStatus.init(status:))?.tracer }

    /// Ends the monitor cleanly.
    func stop() async throws {
        try send("stop")
        try await expect("stopped")
    }

    func contents(child: Bool = false) throws -> ReportReader.Contents {
        try ReportReader(path: reports + (child ? "-child" : "")).contents()
    }

    /// The record of the only run.
    func run() throws -> RunRecord {
        let runs = try contents().runs
        try #require(runs.count == 1)
        return runs[0]
    }

    deinit { process.killIfRunning() }
}

/// When the machine itself did not run, for example a virtual one whose CPUs are used elsewhere: what the monitor's
/// own check finds in a process that nobody stops or throttles, on each CPU.
final class MachineGaps: Sendable {
    struct Gaps: Sendable {
        var count: Int64 = 0
        var length = Duration.zero
    }

    private let gaps = Mutex<[Gaps]>([])
    private let isOver = Atomic(false)
    private let running = DispatchGroup()

    init() {
        for processor in 0..<ProcessInfo.processInfo.processorCount {
            running.enter()
            startThread { [self] in
                watch(processor)
                running.leave()
            }
        }
    }

    /// The gaps since the beginning, for the CPU that was away longest.
    func end() -> Gaps {
        isOver.store(true, ordering: .relaxed)
        running.wait()
        return gaps.withLock { $0.max { $0.length < $1.length } } ?? Gaps()
    }

    private func watch(_ processor: Int) {
        confine(to: processor)
        let tick = Duration.milliseconds(50)
        var (selfCheck, found) = (SelfCheck(at: .now), Gaps())
        while !isOver.load(ordering: .relaxed) {
            let due = MonotonicInstant.now + tick
            usleep(50_000)
            for absence in selfCheck.wake(due: due, at: .now, tick: tick) where absence.kind == .stopped {
                found.count += 1
                found.length += absence.length
            }
            selfCheck.rest(at: .now)
        }
        gaps.withLock { [found] in $0.append(found) }
    }
}

/// Makes the calling thread run on one CPU, if permitted. The C library's module lacks this function.
private func confine(to processor: Int) {
    typealias SetAffinity = @convention(c) (pid_t, Int, UnsafeRawPointer) -> Int32
    guard let function = unsafe dlsym(nil, "sched_setaffinity") else { return }
    let mask = [UInt64(1) << UInt64(processor % 64)]
    _ = unsafe unsafeBitCast(function, to: SetAffinity.self)(0, MemoryLayout<UInt64>.size, mask)
}

/// A control group of the test's own. Nil if the machine does not let tests create one.
final class TestGroup: Sendable {
    let path: String

    enum Hierarchy: String {
        case unified, freezer, cpu
    }

    static func canBeMade(_ hierarchy: Hierarchy) -> Bool { TestGroup(hierarchy) != nil }

    init?(_ hierarchy: Hierarchy) {
        let roots: [Hierarchy: [String]] = [
            .unified: ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"],
            .freezer: ["/sys/fs/cgroup/freezer"],
            .cpu: ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"],
        ]
        let marks: [Hierarchy: String] = [
            .unified: "cgroup.freeze", .freezer: "freezer.state", .cpu: "cpu.cfs_quota_us",
        ]
        for root in roots[hierarchy] ?? [] {
            let path = "\(root)/pause-test-\(UUID().uuidString.prefix(8))"
            guard unsafe mkdir(path, 0o755) == 0 else { continue }
            if unsafe access("\(path)/\(marks[hierarchy] ?? "")", W_OK) == 0 {
                self.path = path
                return
            }
            unsafe rmdir(path)
        }
        return nil
    }

    /// False if the kernel refuses.
    @discardableResult
    func write(_ text: String, to file: String) -> Bool {
        let descriptor = unsafe open("\(path)/\(file)", O_WRONLY)
        guard descriptor >= 0 else { return false }
        defer { close(descriptor) }
        return unsafe Glibc.write(descriptor, text, text.utf8.count) == text.utf8.count
    }

    func read(_ file: String) -> String { readSmallFile("\(path)/\(file)") ?? "" }

    deinit {
        write("0", to: "cgroup.freeze")
        write("THAWED", to: "freezer.state")
        write("1", to: "cgroup.kill")
        // Killed processes leave soon; an empty group that stays does no harm.
        for _ in 0..<200 {
            guard unsafe rmdir(path) != 0 else { return }
            usleep(5_000)
        }
    }
}

/// What a process has printed. It does not keep the process alive.
private final class Lines: Sendable {
    private let list = Mutex<[String]>([])

    func withLock<Result>(_ body: (inout sending [String]) -> sending Result) -> sending Result { list.withLock(body) }

    func collect(_ file: FileHandle) {
        var text = ""
        while case let data = file.availableData, !data.isEmpty {
            text += String(decoding: data, as: UTF8.self)
            while let end = text.firstIndex(of: "\n") {
                let line = String(text[..<end])
                withLock { $0.append(line) }
                text.removeSubrange(...end)
            }
        }
    }
}
