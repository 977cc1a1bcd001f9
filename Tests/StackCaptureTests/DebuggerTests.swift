import CStalls
import Foundation
import TestSupport
import Testing

/// gdb's result for the same thread at the same place: compares the unwinder and the symbol tables with another implementation
/// of both.
@Suite(
    "A captured stack is gdb's stack",
    .serialized,
    .timeLimit(.minutes(60)),
    .enabled(if: Debugger.isInstalled, "gdb is not installed")
)
struct DebuggerTests {
    @Test(
        "for a thread blocked in a system call",
        arguments: testsAllForms ? ["sleep", "read", "lock", "poll", "semaphore"] : ["read"]
    )
    func blocked(scenario: String) throws {
        let host = try Host(scenario: scenario)
        defer { host.end() }
        #expect(host.summary.hasPrefix("quiet complete "))
        try expectEqual(host)
    }

    /// Frozen in a signal handler, so that gdb finds the thread where the capture did. The code below the handler was
    /// interrupted at an arbitrary instruction.
    @Test(
        "for a running thread, interrupted anywhere",
        arguments: testsAllForms ? ["loop", "json", "json", "json", "json", "json", "mainActor"] : ["json"]
    )
    func running(scenario: String) throws {
        for _ in 1...5 {
            let host = try Host(scenario: scenario)
            defer { host.end() }
            #expect(host.summary == "signal complete -")
            // At an arbitrary instruction gdb may also fail. A result that does not reach the thread's beginning is not used.
            let theirs = try Debugger.frames(of: host.processID, thread: host.threadID)
            guard let last = theirs.last?.name, last == "_start" || last.hasSuffix("clone3") else { continue }
            // Nor is a result that lacks the caller of code without a table, or of the interrupted function: if that has no
            // table and is about to leave by a jump, gdb skips its caller.
            let missed = Set(host.frames.dropFirst().map(\.address)).subtracting(theirs.map(\.address))
            let skipsCaller = missed == Set(host.frames.dropFirst(3).prefix(1).map(\.address))
            if skipsCaller || host.untabled > 0 && !missed.isEmpty { continue }
            return try expectEqual(host)
        }
        Issue.record("gdb lost its way five times")
    }

    /// Compares the addresses; the innermost one of a thread that spins in its handler may be one instruction further.
    private func expectEqual(_ host: Host) throws {
        let theirs = try Debugger.frames(of: host.processID, thread: host.threadID)
        let ours = host.frames
        print("gdb: \(host.scenario): \(ours.count) frames of ours, \(theirs.count) of gdb's")
        #expect(theirs.count > 3)
        // Code without an unwind table, interrupted before it has set up its frame, hides its caller; the frame's mark says so.
        // gdb decodes the instructions there.
        let hidden = Set(theirs.dropFirst().map(\.address)).subtracting(ours.map(\.address))
        #expect(hidden.count <= host.untabled, "\(ours)\n\(theirs)")
        let visible = theirs.dropFirst().map(\.address).filter { !hidden.contains($0) }
        #expect(ours.dropFirst().map(\.address) == visible, "\(ours)\n\(theirs)")
        #expect(ours.first?.name == theirs.first?.name || ours.first?.address == theirs.first?.address)
        let named = zip(ours, theirs).filter { $0.name != "?" && $1.name != "None" }
        let same = named.count { $0.name == $1.name }
        print(
            "gdb: \(host.scenario): \(same) of \(named.count) names equal, the others: \(named.filter { $0.name != $1.name })"
        )
    }
}

struct DebuggerFrame: Equatable, CustomStringConvertible {
    var address: String
    var name: String
    var description: String { "\(address) \(name)" }

    /// Parses a line `TAG address name`.
    init?(line: Substring, tag: String) {
        let fields = line.split(separator: " ", maxSplits: 2)
        guard fields.count == 3, fields[0] == tag else { return nil }
        address = String(fields[1])
        name = String(fields[2])
    }
}

/// A `capture-host` that has captured itself and waits.
final class Host {
    let scenario: String
    private let process = Process()
    private(set) var frames: [DebuggerFrame] = []
    private(set) var summary = ""
    /// The number of frames found by the frame pointer, past code without an unwind table.
    private(set) var untabled = 0
    private(set) var threadID = ""

    init(scenario: String) throws {
        self.scenario = scenario
        let pipe = Pipe()
        process.executableURL = .built("capture-host")
        process.arguments = [scenario]
        process.standardOutput = pipe
        try process.runWithSignals()
        var output = ""
        while !output.contains("READY ") || !output.hasSuffix("\n") {
            let data = pipe.fileHandleForReading.availableData
            if data.isEmpty { break }
            output += String(decoding: data, as: UTF8.self)
        }
        for line in output.split(separator: "\n") {
            if let frame = DebuggerFrame(line: line, tag: "FRAME") { frames.append(frame) }
            if line.hasPrefix("STACK ") { summary = String(line.dropFirst(6)) }
            if line.hasPrefix("UNTABLED ") { untabled = Int(line.dropFirst(9)) ?? 0 }
            if line.hasPrefix("READY ") { threadID = String(line.dropFirst(6)) }
        }
    }

    var processID: Int32 { process.processIdentifier }

    func end() {
        process.killIfRunning()
        process.waitUntilExit()
    }
}

enum Debugger {
    static let path = "/usr/bin/gdb"
    static let isInstalled = FileManager.default.isExecutableFile(atPath: path)

    /// The real frames: calls that were inlined, or replaced by a tail call, have none.
    private static let script = """
        import gdb
        thread = next(t for t in gdb.selected_inferior().threads() if t.ptid[1] == THREAD)
        thread.switch()
        frame = gdb.newest_frame()
        while frame is not None:
            if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
                function = frame.function()
                name = (function.symtab and function.linkage_name if function else None) or frame.name()
                print("GDB %x %s" % (frame.pc(), name))
            frame = frame.older()
        """

    static func frames(of process: Int32, thread: String) throws -> [DebuggerFrame] {
        let file = NSTemporaryDirectory() + "frames-\(process).py"
        try script.replacingOccurrences(of: "THREAD", with: thread).write(
            toFile: file,
            atomically: true,
            encoding: .utf8
        )
        defer { try? FileManager.default.removeItem(atPath: file) }
        let debugger = Process()
        let pipe = Pipe()
        debugger.executableURL = URL(fileURLWithPath: path)
        debugger.arguments = [
            "-p", String(process), "-batch", "-nx", "-ex", "set backtrace past-main on", "-ex", "source \(file)",
        ]
        debugger.environment = ProcessInfo.processInfo.environment.merging(["DEBUGINFOD_URLS": ""]) { $1 }
        debugger.standardInput = FileHandle.nullDevice
        debugger.standardOutput = pipe
        debugger.standardError = FileHandle.nullDevice
        try debugger.runWithSignals()
        let output = String(decoding: pipe.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        debugger.waitUntilExit()
        return output.split(separator: "\n").compactMap { DebuggerFrame(line: $0, tag: "GDB") }
    }
}
