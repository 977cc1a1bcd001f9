import CStackCapture
import Foundation
import TestSupport
import Testing

@testable import StackCapture

extension ProcessTests {
    @Suite("Errors say what prevents sampling")
    struct ProcessErrorTests {
        private func code(_ processID: Int32) -> CaptureError.Code? {
            do {
                _ = try ProcessSampler(processID: processID)
                return nil
            } catch {
                return error.code
            }
        }

        @Test("no such process")
        func nobody() {
            #expect(code(Int32.max - 1) == .noSuchProcess)
            #expect(code(0) == .noSuchProcess)
            #expect(code(-1) == .noSuchProcess)
        }

        @Test("a living process, if this one has no descriptor left")
        func withoutDescriptors() async {
            await #expect(processExitsWith: .success) {
                let openFiles = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
                var limit = rlimit(rlim_cur: 0, rlim_max: 0)
                try #require(unsafe setrlimit(openFiles, &limit) == 0)
                #expect(throws: CaptureError(.systemCallFailed, underlying: EMFILE)) {
                    _ = try ProcessSampler(processID: getppid())
                }
            }
        }

        @Test("a living process that was opened before, if this one has no descriptor left since")
        func withoutFurtherDescriptors() async {
            await #expect(processExitsWith: .success) {
                let target = try TargetProcess("threads", "1")
                let sampler = try ProcessSampler(processID: target.processID)
                let openFiles = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
                var limit = rlimit(rlim_cur: 0, rlim_max: 0)
                try #require(unsafe setrlimit(openFiles, &limit) == 0)
                let error = CaptureError(.systemCallFailed, underlying: EMFILE)
                #expect(throws: error) { _ = try sampler.threads() }
                #expect(throws: error) { _ = try sampler.captureAll() }
            }
        }

        @Test(
            "a process that has ended, although its number belongs to another one",
            .enabled(if: chooseNextNumber(), "the number of a new process cannot be chosen")
        )
        func usedAgain() throws {
            for _ in 0..<200 {
                let target = try TargetProcess("threads", "1")
                let (number, sampler) = (target.processID, try ProcessSampler(processID: target.processID))
                target.send(SIGKILL)
                _ = target.rest()
                Self.chooseNextNumber(number)
                let next = try TargetProcess("threads", "1")
                // Another process, or a thread, may have been given the number first.
                guard next.processID == number else { continue }
                #expect(throws: CaptureError(.noSuchProcess)) { try sampler.capture(threadID: number).get() }
                #expect(throws: CaptureError(.noSuchProcess)) { _ = try sampler.threads() }
                #expect(try ProcessSampler(processID: number).threads().count == 2)
                return
            }
            Issue.record("no process was given the number of the one before")
        }

        /// Makes the kernel give this number to the next process: proc(5), `/proc/sys/kernel/ns_last_pid`.
        ///
        /// - Parameter number: Nil: any.
        /// - Returns: Whether that is permitted.
        @discardableResult
        private static func chooseNextNumber(_ number: Int32? = nil) -> Bool {
            let path = "/proc/sys/kernel/ns_last_pid"
            let text = number.map { "\($0 - 1)" } ?? procText(path)
            let file = unsafe open(path, O_WRONLY | O_CLOEXEC)
            guard file >= 0 else { return false }
            defer { close(file) }
            return unsafe write(file, text, text.utf8.count) > 0
        }

        @Test("the calling process")
        func own() { #expect(code(getpid()) == .ownProcess) }

        @Test("a thread id")
        func thread() throws {
            let target = try TargetProcess("threads", "1")
            let second = try #require(try ProcessSampler(processID: target.processID).threads().last?.threadID)
            #expect(code(second) == .notAProcess)
        }

        /// The list of groups has 40 kilobytes, and comes before most other lines.
        @Test("a process of many groups is read completely", .enabled(if: getuid() == 0, "needs root"))
        func groups() throws {
            let groups = (0..<5000).map { String(1_000_000 + $0) }.joined(separator: ",")
            let target = try TargetProcess(
                arguments: ["--groups", groups, TargetProcess.executable.path, "threads", "1"],
                executable: URL(filePath: "/usr/bin/setpriv")
            )
            let status = try #require(ProcessFile("/proc/\(target.processID)/status"))
            #expect(status.words(of: "Groups").count == 5000 && status.number(of: "Threads") == 2)
            var opened: OpaquePointer?
            #expect(unsafe stackcap_process_open(target.processID, false, &opened).status == STACKCAP_OK)
            let process = try unsafe #require(opened)
            defer { unsafe stackcap_process_close(process) }
            var sleeps: UInt64 = 0
            let outcome = unsafe stackcap_process_count_sleeps(process, target.processID, &sleeps)
            #expect(outcome.status == STACKCAP_OK && sleeps > 0)
        }

        @Test("a zombie")
        func zombie() throws {
            let parent = try TargetProcess("zombie")
            let child = try #require(Int32(parent.announced))
            waitUntil { ProcessThread(threadID: child, ofProcess: child).state == "Z" }
            #expect(code(child) == .zombie)
        }

        @Test("a thread of the kernel", .enabled(if: ProcessFile("/proc/2/status")?.words(of: "Name") == ["kthreadd"]))
        func kernel() { #expect(code(2) == .kernelProcess) }

        @Test("a traced process: sleeping threads have a stack, running ones a reason")
        func traced() throws {
            let sleeping = try TargetProcess("traced", "sleeping")
            let asleep = try #require(Int32(sleeping.announced))
            #expect(try ProcessSampler(processID: asleep).capture().get().method == .quiet)
            let computing = try TargetProcess("traced", "computing")
            let running = try #require(Int32(computing.announced))
            let sampler = try ProcessSampler(processID: running, deadline: .seconds(5))
            #expect(throws: CaptureError(.alreadyTraced, underlying: EPERM)) { try sampler.capture().get() }
        }

        @Test(
            "a 32-bit program",
            .enabled(if: with32BitProgram { _ in true } != nil, "this kernel runs no 32-bit programs")
        )
        func otherArchitecture() throws {
            #expect(try #require(Self.with32BitProgram { code($0) }) == .otherArchitecture)
        }

        @Test(
            "a process that has become a 32-bit program, at each capture",
            .enabled(if: with32BitProgram { _ in true } != nil, "this kernel runs no 32-bit programs")
        )
        func becomesOtherArchitecture() throws {
            try Self.with32BitFile { file in
                let script = "echo READY; read line; exec '\(file.path)'"
                let target = try TargetProcess("-c", script, executable: URL(filePath: "/bin/sh"))
                let sampler = try ProcessSampler(processID: target.processID)
                try target.proceed()
                let program = "/proc/\(target.processID)/exe"
                target.wait {
                    let path = try? FileManager.default.destinationOfSymbolicLink(atPath: program)
                    return path?.hasSuffix(file.lastPathComponent) == true && $0.isInCall
                }
                for _ in 0..<2 {
                    #expect(throws: CaptureError(.otherArchitecture)) { try sampler.capture().get() }
                }
                #expect(sampler.programsRun == 1)
            }
        }

        /// The result of `body` for such a process while it runs. Nil if the process does not run.
        private static func with32BitProgram<Result>(_ body: (Int32) -> Result) -> Result? {
            with32BitFile { file -> Result? in
                let process = Process()
                process.executableURL = file
                guard (try? process.run()) != nil, process.isRunning else { return nil }
                defer {
                    process.killIfRunning()
                    process.waitUntilExit()
                }
                return body(process.processIdentifier)
            }
        }

        private static func with32BitFile<Result>(_ body: (URL) throws -> Result) rethrows -> Result {
            let file = FileManager.default.temporaryDirectory.appending(path: "i386-\(UUID())")
            defer { try? FileManager.default.removeItem(at: file) }
            try? Data(program).write(to: file)
            try? FileManager.default.setAttributes([.posixPermissions: 0o700], ofItemAtPath: file.path)
            return try body(file)
        }

        /// An i386 ELF file that waits for signals: `mov $29, %eax; int $0x80; jmp .-9`.
        private static var program: [UInt8] {
            func words(_ values: UInt32...) -> [UInt8] {
                values.flatMap { value in (0..<4).map { UInt8(truncatingIfNeeded: value >> (8 * $0)) } }
            }
            let base: UInt32 = 0x0804_8000
            let code: [UInt8] = [0xb8, 29, 0, 0, 0, 0xcd, 0x80, 0xeb, 0xf7]
            let start: [UInt8] = [0x7f, 0x45, 0x4c, 0x46, 1, 1, 1] + Array(repeating: 0, count: 9) + [2, 0, 3, 0]
            let header = start + words(1, base + 84, 52, 0, 0) + [52, 0, 32, 0, 1, 0, 0, 0, 0, 0, 0, 0]
            return header + words(1, 0, base, base, 93, 93, 5, 4096) + code
        }
    }
}
