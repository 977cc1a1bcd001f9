import Foundation
import StallReports
import TestSupport
import Testing

/// Compares our stacks with gdb's. A thread in a waiting call does not move: there every frame must agree. A running
/// thread has moved on below the culprit: there every frame outside the culprit must agree. Repeated when the machine was late: a thread that
/// got no processor until the first sample has not reached the culprit.
@Suite("Stacks against gdb", .serialized, .timeLimit(.minutes(60)))
struct DebuggerComparisonTests {
    private let fixture: ReportsFixture

    init() throws { fixture = try ReportsFixture() }

    @Test(
        "the same functions in the same order",
        .repeatedWhenLate(by: .milliseconds(50)),
        arguments: [
            ("json", "decodeDocument("), ("lock", "waitForSwiftMutex("), ("pipe", "readFromPipe("),
            ("sleep", "sleepInHandler("), ("fsync", "syncFile("), ("loop", "transformTable("),
        ]
    )
    func sameFrames(_ stall: String, _ function: String) throws {
        let host = try StallHostRun(directory: fixture.path)
        // Longer than three runs of gdb take on a busy machine.
        try host.stall(stall, milliseconds: 240_000)
        defer {
            host.send(SIGKILL)
            _ = host.status()
        }
        let report = try host.report { $0.state == .ongoing }
        let stack = try #require(report.stacks.first)
        let ours = stack.frames.map(\.address.rawValue)
        let stalled = try #require(stack.frames.firstIndex { $0.function?.contains(function) == true })
        #expect(stack.complete)
        if ["lock", "pipe", "sleep"].contains(stall) {
            #expect(try Self.frames(of: host.pid) == ours)
        } else {
            // The stalled function's own frame has moved on within the function.
            let outer = Array(ours[(stalled + 1)...])
            #expect(outer.count > 4)
            // The thread can be interrupted anywhere, and gdb can get lost in code without unwind information: three
            // tries.
            #expect(
                try (1...3).contains { _ in try Self.frames(of: host.pid).suffix(outer.count).elementsEqual(outer)
                }
            )
        }
    }

    /// The main thread's program counters, innermost first, without the debugger's inlined pseudo-frames.
    private static func frames(of pid: Int32) throws -> [UInt64] {
        let script = """
            python
            gdb.selected_inferior().threads()[-1].switch()
            f = gdb.newest_frame()
            while f is not None:
                if f.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME): print("PC %x" % f.pc())
                f = f.older()
            end
            """
        let file = NSTemporaryDirectory() + "stall-frames-\(UUID()).gdb"
        try script.write(toFile: file, atomically: true, encoding: .utf8)
        defer { try? FileManager.default.removeItem(atPath: file) }
        let gdb = try CommandRun(
            tool: "/usr/bin/gdb",
            ["-nx", "-batch", "-p", "\(pid)", "-ex", "set backtrace past-main on", "-x", file]
        )
        return gdb.output.split(separator: "\n").filter { $0.hasPrefix("PC ") }
            .compactMap { UInt64($0.dropFirst(3), radix: 16) }
    }
}
