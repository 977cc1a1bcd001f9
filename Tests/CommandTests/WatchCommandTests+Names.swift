import Foundation
import Glibc
import StallReports
import TestSupport
import Testing

/// Owners of locks, the names of functions, and threads that cannot be judged.
extension WatchCommandTests {
    @Test(
        "A report of a mutex wait names the owner and its place",
        .repeatedWhenLate(by: .milliseconds(40))
    )
    func lockOwner() throws {
        let (target, watch) = try watchedLoop()
        _ = try target.stall("lock 500")
        usleep(150_000)
        let report = try #require(try watch.finish().first)
        let lock = try #require(report.cause.lock, "\(report.cause)")
        #expect(lock.kind == .mutex && lock.owner?.name == "holder" && lock.knownBy == .mutexOwner, "\(lock)")
        let owner = try #require(report.stacks.first { $0.role == .lockOwner })
        #expect(owner.thread.id == lock.owner?.id && owner.thread.id != target.pid)
        #expect(owner.frames.contains { $0.function == "hold_lock" }, "\(owner.frames)")
        #expect(report.culprit?.function == "wait_for_lock_until", "\(report.culprit as Any)")
    }

    @Test(
        "Generated code has the name from its perf map, in watch and in sample",
        .repeatedWhenLate(by: .milliseconds(40))
    )
    func madeCode() throws {
        let target = try LoopTarget()
        defer { _ = unsafe unlink("/tmp/perf-\(target.pid).map") }
        let watch = try watch("\(target.pid)")
        try watch.waitForLoops(1)
        // Until it is killed: on a busy machine the command may begin late.
        try target.tell("made 600000")
        try watch.waitForReport { $0.isProvisional != true && $0.stacks.first?.frames.isEmpty == false }
        let sample = try CommandRun("sample", "\(target.pid)")
        target.send(SIGKILL)
        #expect(try watch.status() == 0)
        let report = try #require(try watch.reports().first)
        let frames = report.stacks.first?.frames ?? []
        #expect(frames.contains { $0.function == "JS:made at run time" && $0.own && $0.module == nil }, "\(frames)")
        #expect(sample.output.contains("JS:made at run time"), "\(sample.output)")
    }

    @Test("--name finds processes by their own name and by their program's file")
    func names() throws {
        let name = "named-\(UUID().uuidString.prefix(8))"
        let program = URL(filePath: NSTemporaryDirectory()).appending(path: name + "-by-its-file")
        try FileManager.default.copyItem(at: TargetProcess.executable, to: program)
        defer { try? FileManager.default.removeItem(at: program) }
        let other = try LoopTarget()
        // The kernel keeps 15 bytes of the name: the rest is only in the file's name.
        for pattern in [String(name.prefix(15)) + "*", name + "-by-its-*"] {
            let named = try LoopTarget(executable: program)
            let watch = try WatchRunning(["--name", pattern], directory: "\(fixture.path)-\(pattern.count)")
            try watch.waitForLoops(1)
            // Until it is killed: on a busy machine the command may look late.
            try named.tell("call read_pipe 600000")
            try watch.waitForReport { $0.process.pid == named.pid }
            #expect(try watch.finish().map(\.process.pid) == [named.pid])
            #expect(!watch.notes.contains { $0.contains("process \(other.pid) ") }, "\(watch.notes)")
            try? FileManager.default.removeItem(atPath: watch.directory)
        }
    }

    @Test("Of an interpreter that does not write the names of its script's functions it says which options do that")
    func namelessScript() throws {
        let folder = URL(filePath: NSTemporaryDirectory()).appending(path: UUID().uuidString)
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let program = folder.appending(path: "node")
        try FileManager.default.copyItem(at: TargetProcess.executable, to: program)
        let target = try LoopTarget(executable: program)
        let watch = try watch("\(target.pid)")
        try watch.waitForLoops(1)
        try watch.waitForNote("start it with --perf-basic-prof --interpreted-frames-native-stack")
        #expect(try watch.finish().isEmpty)
    }

    @Test("When a loop is found, threads that may run one but cannot be judged are named")
    func unjudged() throws {
        let target = try LoopTarget()
        _ = try target.stall("urged 50")
        target.waitForCall(ofThread: "poller")
        let watch = try watch("\(target.pid)")
        try watch.waitForLoops(1)
        try watch.waitForNote("not judged")
        #expect(watch.notes.last?.contains(": poller (poll)") == true, "\(watch.notes)")
        #expect(try watch.finish().isEmpty)
    }
}
