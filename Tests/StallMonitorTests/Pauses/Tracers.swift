import Foundation
import Glibc
import TestSupport
import Testing

/// gdb, attached to a process that it lets run.
final class Debugger {
    private let process = Process()

    static var isThere: Bool { unsafe access("/usr/bin/gdb", X_OK) == 0 }

    func attach(to processID: Int32) throws {
        process.executableURL = URL(filePath: "/usr/bin/gdb")
        process.arguments = [
            "-nx", "-q", "-batch", "-readnever", "-iex", "set debuginfod enabled off", "-iex",
            "set auto-solib-add off",
            "-p", "\(processID)", "-ex", "continue",
        ]
        (process.standardInput, process.standardOutput) = (FileHandle.nullDevice, FileHandle.nullDevice)
        process.standardError = FileHandle.nullDevice
        try process.runWithSignals()
    }

    /// The kernel detaches it from everything (ptrace(2)).
    func end() { process.killIfRunning() }

    deinit { end() }
}

/// Halts a single thread by ptrace(2) and leaves the others alone.
final class Tracer {
    private let process = Process()
    private let input = Pipe()
    private let output = Pipe()

    private static let script = """
        import ctypes, os, sys
        libc = ctypes.CDLL(None, use_errno=True)
        libc.ptrace.argtypes = [ctypes.c_long] * 4
        thread = int(sys.argv[1])
        for request in (0x4206, 0x4207):  # PTRACE_SEIZE, PTRACE_INTERRUPT
            if libc.ptrace(request, thread, 0, 0) != 0: sys.exit(os.strerror(ctypes.get_errno()))
            if request == 0x4207: os.waitpid(thread, 0x40000000)  # __WALL
            print("done", flush=True)
            sys.stdin.readline()
        """

    /// Attached, and the thread continues.
    init(thread: String) throws {
        process.executableURL = URL(filePath: "/usr/bin/python3")
        process.arguments = ["-c", Self.script, thread]
        (process.standardInput, process.standardOutput) = (input, output)
        try process.run()
        try expectDone()
    }

    func halt() throws {
        try input.fileHandleForWriting.write(contentsOf: Data("\n".utf8))
        try expectDone()
    }

    private func expectDone() throws {
        let answer = try output.fileHandleForReading.read(upToCount: 5) ?? Data()
        try #require(String(decoding: answer, as: UTF8.self) == "done\n")
    }

    func end() { process.killIfRunning() }

    deinit { end() }
}
