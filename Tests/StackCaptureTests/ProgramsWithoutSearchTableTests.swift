import CStalls
import Foundation
import TestSupport
import Testing

@testable import StackCapture

extension ProcessTests {
    /// Programs whose unwind tables no program header refers to, compared with gdb.
    @Suite("Programs without a search table", .enabled(if: Compiler.isInstalled && Debugger.isInstalled))
    struct ProgramsWithoutSearchTableTests {
        private static let program = #"""
            static long call(long n) {
                long r;
                __asm__ volatile("syscall" : "=a"(r) : "0"(n) : "rcx", "r11", "memory");
                return r;
            }
            __attribute__((noinline)) void inner(int n) {
                volatile char room[64];
                room[0] = (char)n;
                if (n < 0) for (;;) room[1]++; else call(34);
                room[2] = room[0];
            }
            __attribute__((noinline)) void middle(int n) { volatile char room[200]; room[0] = 1; inner(n); room[1] = room[0]; }
            __attribute__((noinline)) void outer(int n) { volatile char room[32]; room[0] = 1; middle(n); room[1] = room[0]; }
            void begin(long *stack) { outer(stack[0] > 1 ? -1 : 1); }
            __asm__(".globl _start\n.type _start, @function\n_start:\n .cfi_startproc\n .cfi_undefined rip\n mov %rsp, %rdi\n and $-16, %rsp\n"
                    " call begin\n hlt\n .cfi_endproc");
            """#
        private static let threaded = """
            #include <pthread.h>
            #include <unistd.h>
            __attribute__((noinline)) void deep(int n) { if (n) deep(n - 1); else pause(); __asm__ volatile("" ::: "memory"); }
            void *work(void *a) { deep(5); return a; }
            int main(void) {
                pthread_t t;
                for (int i = 0; i < 20; i++) pthread_create(&t, 0, work, 0);
                deep(3);
                return 0;
            }
            """
        private static let plain = [
            "-O2", "-fomit-frame-pointer", "-fno-asynchronous-unwind-tables", "-g", "-nostdlib",
        ]

        /// The second kind has a search table, for comparison.
        @Test(
            "linked statically by GNU ld: every thread, every frame",
            arguments: [["-static"], ["-static-pie"]]
        )
        func linkedStatically(_ flags: [String]) throws {
            let workshop = try Compiler()
            let target = try Started(try workshop.compile(Self.threaded, ["-O2"] + flags), threads: 21)
            let sampler = try ProcessSampler(processID: target.processID, deadline: .seconds(60))
            for capture in try sampler.captureAll() {
                let stack = try capture.result.get()
                #expect(stack.isComplete)
                let theirs = try Debugger.frames(of: target.processID, thread: "\(capture.thread.threadID)")
                #expect(stack.frames.map { String($0.address, radix: 16) } == theirs.map(\.address))
                let depth = capture.thread.threadID == target.processID ? 4 : 6
                #expect(sampler.names(of: stack).count { $0 == "deep" } == depth)
            }
        }

        @Test(
            "with debug tables only, plain or compressed, at any address, asleep or stopped",
            arguments: [["-static"], ["-static", "-gz=zlib"], ["-static-pie", "-fPIE"]],
            [[], ["computing"]]
        )
        func debuggersTable(_ flags: [String], _ arguments: [String]) throws {
            let workshop = try Compiler()
            let target = try Started(try workshop.compile(Self.program, Self.plain + flags), arguments)
            if !arguments.isEmpty { target.stop() }
            let sampler = try ProcessSampler(processID: target.processID, deadline: .seconds(60))
            let stack = try sampler.capture().get()
            let theirs = try Debugger.frames(of: target.processID, thread: "\(target.processID)")
            #expect(stack.frames.map { String($0.address, radix: 16) } == theirs.map(\.address))
            #expect(sampler.names(of: stack) == ["inner", "middle", "outer", "_start"])
            #expect(stack.isComplete)
        }

        @Test("deleted, or replaced by another file")
        func replaced() throws {
            let workshop = try Compiler()
            for replacement in ["", "#!/bin/sh\n"] {
                let program = try workshop.compile(Self.program, Self.plain + ["-static"])
                let target = try Started(program)
                try FileManager.default.removeItem(at: program)
                if !replacement.isEmpty { try replacement.write(to: program, atomically: true, encoding: .utf8) }
                let stack = try ProcessSampler(processID: target.processID, deadline: .seconds(60)).capture().get()
                #expect(stack.isComplete)
                #expect(stack.frames.count == 4)
            }
        }

        /// Without any table the walk has to guess. An address that is not executable is not a return address.
        @Test("without any table: no frame lies outside of code")
        func noTable() throws {
            let workshop = try Compiler()
            let program = try workshop.compile(Self.threaded, ["-O2", "-fomit-frame-pointer", "-static"])
            try workshop.run("/usr/bin/objcopy", ["--remove-section", ".eh_frame", program.path])
            let target = try Started(program, threads: 21)
            let sampler = try ProcessSampler(processID: target.processID, deadline: .seconds(60))
            for capture in try sampler.captureAll() {
                let frames = try capture.result.get().frames
                #expect(frames.allSatisfy { target.isCode($0.address) }, "\(frames)")
            }
        }

        /// Its position follows no call, and its caller calls it through a pointer.
        @Test("asleep in a function without a table: that function's instructions lead to its caller")
        func asleepWithoutTable() throws {
            let source = #"""
                int sleep_long(void);
                __asm__(".text\n.type sleep_long, @function\nsleep_long:\n push %rbx\n sub $40, %rsp\n mov $34, %eax\n syscall\n"
                        " add $40, %rsp\n pop %rbx\n ret");
                int (*volatile sleeps)(void) = sleep_long;
                __attribute__((noinline)) int middle(void) { return sleeps() + 1; }
                int main(void) { return middle() + 1; }
                """#
            let workshop = try Compiler()
            let target = try Started(try workshop.compile(source, ["-O2"]))
            let sampler = try ProcessSampler(processID: target.processID, deadline: .seconds(60))
            let stack = try sampler.capture().get()
            #expect(sampler.names(of: stack).prefix(3) == ["sleep_long", "middle", "main"])
            #expect(stack.frames[1].found == .instructions && stack.isComplete, "\(stack.frames)")
        }

        /// Each takes a read of 60 MiB before it turns out that it cannot be unpacked.
        @Test("with thousands of tables that cannot be unpacked: only the first one takes time")
        func thousandsOfTables() throws {
            let workshop = try Compiler()
            let program = try workshop.compile(Self.program, Self.plain + ["-static"])
            try workshop.repeatSection(".debug_frame", 4000, length: 60 << 20, in: program)
            let target = try Started(program)
            let sampler = try ProcessSampler(processID: target.processID, deadline: .seconds(60))
            let clock = ContinuousClock()
            let time = try clock.measure {
                let frames = try sampler.capture().get().frames
                #expect(frames.allSatisfy { target.isCode($0.address) }, "\(frames)")
            }
            #expect(time < .seconds(10))
        }

        @Test("with damaged tables: no harm, and no frame lies outside of code", arguments: 0..<40)
        func damaged(_ seed: UInt64) throws {
            let workshop = try Compiler()
            let flags = Self.plain + ["-static"] + (seed % 2 == 0 ? [] : ["-gz=zlib"])
            let program = try workshop.compile(Self.program, flags)
            let place = try #require(try workshop.section(".debug_frame", of: program))
            var bytes = try Data(contentsOf: program)
            var random = SplitMix64(seed: seed)
            for _ in 0..<(1 + seed % 8) {
                let at = place.lowerBound + Int(random.next() % UInt64(place.count))
                bytes[at] = [0, 1, 0x7f, 0x80, 0xff].randomElement(using: &random)!
            }
            try bytes.write(to: program)
            try FileManager.default.setAttributes([.posixPermissions: 0o700], ofItemAtPath: program.path)
            let target = try Started(program)
            let frames = try ProcessSampler(processID: target.processID, deadline: .seconds(60)).capture().get().frames
            #expect(frames.allSatisfy { target.isCode($0.address) }, "seed \(seed): \(frames)")
        }
    }
}

/// A C compiler, and a directory for its output, which is removed with this object.
private final class Compiler {
    static let isInstalled = FileManager.default.isExecutableFile(atPath: "/usr/bin/gcc")
    private let directory = FileManager.default.temporaryDirectory.appending(path: "programs-\(UUID())")

    init() throws { try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true) }

    deinit { try? FileManager.default.removeItem(at: directory) }

    func compile(_ source: String, _ flags: [String]) throws -> URL {
        let file = directory.appending(path: "program.c")
        let program = directory.appending(path: "program-\(UUID())")
        try (source + "\n").write(to: file, atomically: true, encoding: .utf8)
        try run("/usr/bin/gcc", ["-fno-stack-protector", "-o", program.path, file.path] + flags)
        return program
    }

    @discardableResult
    func run(_ tool: String, _ arguments: [String]) throws -> String {
        let process = Process()
        let output = Pipe()
        process.executableURL = URL(filePath: tool)
        process.arguments = arguments
        process.standardOutput = output
        try process.run()
        let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        process.waitUntilExit()
        try #require(process.terminationStatus == 0)
        return text
    }

    /// Puts many sections of that name into the program's file, all with the same contents: zeros, said to be compressed.
    func repeatSection(_ name: String, _ count: Int, length: Int, in program: URL) throws {
        let (entry, sectionOffset, sectionCount) = (64, 0x28, 0x3c)
        let place = try #require(try section(name, of: program))
        var bytes = try Data(contentsOf: program)
        let start = bytes.word(at: sectionOffset)
        var sections = Data(bytes[start..<start + entry * Int(bytes[sectionCount])])
        let offsets = stride(from: 0, to: sections.count, by: entry)
        let header = try #require(offsets.first { sections.word(at: $0 + 24) == place.lowerBound })
        sections[header + 9] |= 0x08  // SHF_COMPRESSED
        sections.setWord(bytes.count, at: header + 24)
        sections.setWord(length, at: header + 32)
        let repeated = Data(sections[header..<header + entry])
        for _ in 0..<count { sections.append(repeated) }
        bytes.setWord(bytes.count + length, at: sectionOffset)
        let total = sections.count / entry
        bytes[sectionCount] = UInt8(truncatingIfNeeded: total)
        bytes[sectionCount + 1] = UInt8(truncatingIfNeeded: total >> 8)
        bytes.append(1)  // ELFCOMPRESS_ZLIB
        bytes.append(Data(count: length - 1))
        try (bytes + sections).write(to: program)
        try FileManager.default.setAttributes([.posixPermissions: 0o700], ofItemAtPath: program.path)
    }

    /// - Returns: The section's range in the file.
    func section(_ name: String, of program: URL) throws -> Range<Int>? {
        for line in try run("/usr/bin/readelf", ["-SW", program.path]).split(separator: "\n") {
            let fields = line.split(whereSeparator: { " []".contains($0) })
            guard let at = fields.firstIndex(of: Substring(name)), fields.count > at + 4,
                let start = Int(fields[at + 3], radix: 16), let length = Int(fields[at + 4], radix: 16)
            else { continue }
            return start..<start + length
        }
        return nil
    }
}

extension Data {
    /// The number of eight bytes at an index, least significant byte first.
    fileprivate func word(at index: Int) -> Int {
        self[index..<index + 8].reversed().reduce(0) { $0 << 8 | Int($1) }
    }

    fileprivate mutating func setWord(_ word: Int, at index: Int) {
        for byte in 0..<8 { self[index + byte] = UInt8(truncatingIfNeeded: word >> (8 * byte)) }
    }
}

/// A compiled program that runs until this object is released.
private final class Started {
    private let process = Process()

    /// Waits until it has this number of threads, all asleep or computing.
    init(_ program: URL, _ arguments: [String] = [], threads: Int = 1) throws {
        process.executableURL = program
        process.arguments = arguments
        try process.run()
        let wanted: Character = arguments.isEmpty ? "S" : "R"
        waitUntil { !process.isRunning || isReady(threads, wanted) }
    }

    var processID: Int32 { process.processIdentifier }

    func stop() {
        kill(processID, SIGSTOP)
        waitUntil { ProcessThread(threadID: processID, ofProcess: processID).state == "T" }
    }

    /// Whether the address is mapped as executable.
    func isCode(_ address: UInt) -> Bool {
        procText("/proc/\(processID)/maps").split(separator: "\n").contains { line in
            let bounds = line.prefix { $0 != " " }.split(separator: "-").compactMap { UInt($0, radix: 16) }
            let permissions = line.drop { $0 != " " }.dropFirst()
            return bounds.count == 2 && permissions.dropFirst(2).first == "x"
                && (bounds[0]..<bounds[1]).contains(address)
        }
    }

    /// In the program itself: the loader and the C library do not wait by pause(2).
    private func isReady(_ threads: Int, _ state: Character) -> Bool {
        let numbers = (try? ProcessThread.numbers(in: "/proc/\(processID)")) ?? []
        guard numbers.count == threads else { return false }
        return numbers.allSatisfy { number in
            let file = state == "S" ? "syscall" : "schedstat"
            let text = procText("/proc/\(processID)/task/\(number)/\(file)")
            // Its start takes less than 50 ms of CPU time.
            return state == "S"
                ? text.hasPrefix("34 ") : text.split(separator: " ").first.flatMap { UInt64($0) } ?? 0 > 50_000_000
        }
    }

    deinit {
        process.killIfRunning()
        process.waitUntilExit()
    }
}
