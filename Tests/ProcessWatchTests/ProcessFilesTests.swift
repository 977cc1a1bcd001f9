import CProcessWatch
import CRunLoopShims
import Foundation
import Glibc
import StackCapture
import StallMonitor
import StallReports
import Symbolication
import TestSupport
import Testing

@testable import ProcessWatch

@Suite("What /proc says about a process")
struct ProcessFilesTests {
    @Test("A process that ends while it is opened has ended, whichever part of it was gone first")
    func endsMeanwhile() {
        let ends: [CaptureError.Code] = [.noSuchProcess, .zombie, .threadGone]
        #expect(ends.allSatisfy { CaptureError($0).isByProcessEnd })
        let others: [CaptureError.Code] = [.accessRefused, .otherUser, .alreadyTraced]
        #expect(!others.contains { CaptureError($0).isByProcessEnd })
    }

    @Test("A process has ended although its number belongs to another process")
    func usedAgain() throws {
        let child = try StartedCommand(["sleep", "600"].map { Array($0.utf8) })
        let handle = process_watch_open_process(child.processID)
        try #require(handle >= 0)
        defer { close(handle) }
        let (before, own) = (ProcessFiles(processID: child.processID), ProcessFiles(processID: getpid()))
        #expect(!before.hasEnded(by: handle) && !before.hasEnded(by: nil) && !before.isEnding)
        kill(child.processID, SIGKILL)
        // It is ended when nobody has taken its status yet.
        waitUntil { before.hasEnded(by: nil) }
        #expect(before.hasEnded(by: handle) && before.isEnding)
        waitUntil { child.takeStatus() != nil }
        // This process, in place of one that was given the number again.
        #expect(own.hasEnded(by: handle) && !own.hasEnded(by: nil))
    }

    @Test("A thread is killed if SIGKILL is pending for itself, whatever else is, and however many groups it has")
    func killed() throws {
        let file = FileManager.default.temporaryDirectory.appending(path: "status-\(UUID())")
        defer { try? FileManager.default.removeItem(at: file) }
        func isKilled(_ pending: String, groups: Int = 0) throws -> Bool {
            let others = "Name:\tSigPnd: 100\nState:\tR (running)\nShdPnd:\t0000000000000100\nGroups:\t"
            let list = (0..<groups).map { "\($0) " }.joined()
            try Data("\(others)\(list)\nSigPnd:\t\(pending)\n".utf8).write(to: file)
            return ProcessFiles.isKilled(byStatus: file.path)
        }
        #expect(try isKilled("0000000000000100") && isKilled("0000000000004102"))
        #expect(try !isKilled("0000000000000000") && !isKilled("0000000000004000") && !isKilled(""))
        // As many as the kernel allows.
        #expect(try isKilled("0000000000000100", groups: 65_536))
        #expect(!ProcessFiles.isKilled(byStatus: file.path + "-none"))
    }

    /// The flags as the kernel shows them of a thread of a program (PF_RANDOMIZE, PF_FORKNOEXEC), and those that it adds.
    @Test("A thread that has taken the signal that kills it ends, also while a core is dumped")
    func exits() throws {
        let file = FileManager.default.temporaryDirectory.appending(path: "stat-\(UUID())")
        defer { try? FileManager.default.removeItem(at: file) }
        func isExiting(_ flags: Int) throws -> Bool {
            try Data("4711 (a) 0 (1 2) D 1 4711 4711 0 -1 \(flags) 1036 4 1036\n".utf8).write(to: file)
            return ProcessFiles.isExiting(byStat: file.path)
        }
        #expect(try !isExiting(0x40_0040) && !isExiting(0))
        let ends = [0x4, 0x8, 0x200, 0x400]
        for flag in ends { #expect(try isExiting(0x40_0040 | flag)) }
        #expect(!ProcessFiles.isExiting(byStat: file.path + "-none"))
        #expect(!ProcessFiles(processID: getpid()).isEnding)
    }

    @Test("There is no room for further threads some files before the limit: reports need descriptors, too")
    func openFiles() async {
        await #expect(processExitsWith: .success) {
            let openFiles = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
            var limit = rlimit(rlim_cur: 256, rlim_max: 256)
            try #require(unsafe setrlimit(openFiles, &limit) == 0)
            #expect(OpenFiles.exhaustedLimit == nil)
            // Some are left, but fewer than are kept free.
            while unsafe open("/dev/null", O_RDONLY) < 200 {}
            #expect(OpenFiles.exhaustedLimit == 256)
        }
    }

    @Test("An epoll set is closed once there is no such descriptor, or it refers to something else")
    func closedSet() throws {
        let files = try #require(ThreadFiles(threadID: getpid(), ofProcess: getpid()))
        let set = epoll_create1(Int32(EPOLL_CLOEXEC))
        let other = unsafe open("/dev/null", O_RDONLY | O_CLOEXEC)
        try #require(set >= 0 && other >= 0)
        defer { for file in [set, other] { close(file) } }
        #expect(!files.hasClosed(epollSet: set))
        #expect(files.hasClosed(epollSet: other))
        #expect(files.hasClosed(epollSet: .max))
    }

    @Test("A process runs the same program after the program's file was renamed and deleted, as an update does")
    func updated() throws {
        let directory = FileManager.default.temporaryDirectory.appending(path: "updated-\(UUID())").path
        let (file, old) = ("\(directory)/sleep", "\(directory)/sleep.old")
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: false)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        try FileManager.default.copyItem(atPath: "/bin/sleep", toPath: file)
        let child = try StartedCommand([file, "600"].map { Array($0.utf8) })
        defer { end(child) }
        let files = try filesOnceAsleep(child)
        let (program, path) = (try #require(files.program), try #require(files.executable))
        try FileManager.default.moveItem(atPath: file, toPath: old)
        #expect(files.executable == path + ".old" && files.program == program)
        try FileManager.default.removeItem(atPath: old)
        // Without the kernel's mark: it is compared with the paths of modules, and with --name.
        #expect(files.executable == path + ".old" && files.program == program)
    }

    @Test("A program keeps a name that ends like the kernel's mark of a deleted file, until it is deleted")
    func namedAsDeleted() throws {
        let file = "\(FileManager.default.temporaryDirectory.path)/\(UUID()) (deleted)"
        try FileManager.default.copyItem(atPath: "/bin/sleep", toPath: file)
        let child = try StartedCommand([file, "600"].map { Array($0.utf8) })
        defer { end(child) }
        let files = try filesOnceAsleep(child)
        let path = try #require(files.executable)
        #expect(fileName(ofPath: path) == fileName(ofPath: file))
        try FileManager.default.removeItem(atPath: file)
        #expect(files.executable == path)
    }

    /// The files of a child that runs `sleep`, once it sleeps: before, another program may be in its place.
    private func filesOnceAsleep(_ child: StartedCommand) throws -> ProcessFiles {
        let thread = try #require(ThreadFiles(threadID: child.processID, ofProcess: child.processID))
        waitUntil { thread.readCall()?.name?.hasSuffix("nanosleep") == true }
        return ProcessFiles(processID: child.processID)
    }

    private func end(_ child: StartedCommand) {
        kill(child.processID, SIGKILL)
        waitUntil { child.takeStatus() != nil }
    }

    private static let loader = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"].first {
        FileManager.default.fileExists(atPath: $0)
    }

    @Test(
        "The program of a process that was started as an argument of the dynamic loader is the argument, from the time at which it is loaded",
        .enabled(if: loader != nil)
    )
    func startedByLoader() throws {
        let child = try StartedCommand([#require(Self.loader), "/bin/sleep", "600"].map { Array($0.utf8) })
        defer { end(child) }
        let files = try filesOnceAsleep(child)
        let program = try #require(files.program)
        #expect(files.executable == URL(filePath: "/bin/sleep").resolvingSymlinksInPath().path && program.loaded)
        #expect(files.program == program)
        let process = OutsideProcess(
            processID: child.processID,
            sampler: try ProcessSampler(processID: child.processID),
            search: SymbolSearch()
        )
        #expect(process.service.name == "sleep")
        #expect(try !#require(ProcessFiles(processID: getpid()).program).loaded)
    }

    /// As a tracer's thread holds it for a moment, to copy its stack.
    @Test("A command that a thread of this process has stopped has not ended")
    func held() throws {
        let child = try StartedCommand(["sleep", "600"].map { Array($0.utf8) })
        var status: Int32?
        defer { if status == nil { kill(child.processID, SIGKILL) } }
        let files = try #require(ThreadFiles(threadID: child.processID, ofProcess: child.processID))
        let (seize, interrupt, detach): (Int32, Int32, Int32) = (0x4206, 0x4207, 17)
        try #require(trace(seize, child.processID) == 0)
        try #require(trace(interrupt, child.processID) == 0)
        waitUntil { files.isStopped() }
        status = child.takeStatus()
        #expect(status == nil)
        #expect(trace(detach, child.processID) == 0)
        kill(child.processID, SIGKILL)
        waitUntil {
            status = child.takeStatus()
            return status != nil
        }
        #expect(status == 128 + SIGKILL)
    }

    /// ptrace(2), which the C library's module lacks. Negative if it fails.
    private func trace(_ request: Int32, _ process: Int32) -> Int {
        typealias Trace = @convention(c) (Int32, pid_t, Int, Int) -> Int
        guard let function = unsafe dlsym(nil, "ptrace") else { return -1 }
        return unsafe unsafeBitCast(function, to: Trace.self)(request, process, 0, 0)
    }
}
