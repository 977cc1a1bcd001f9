import Foundation
import TestSupport
import Testing

@testable import Symbolication

@Suite("Addresses of this process", .timeLimit(.minutes(10)))
struct SymbolicatorTests {
    /// The address at which the dynamic linker has loaded a symbol.
    private func address(of symbol: String) throws -> UInt {
        let found = unsafe UInt(bitPattern: dlsym(nil, symbol))
        try #require(found != 0)
        return found
    }

    private func resolve(_ address: UInt, isReturnAddress: Bool = false) -> (SymbolicatedFrame, LoadedModule?) {
        let result = Symbolicator().resolve([ResolvableAddress(address: address, isReturnAddress: isReturnAddress)])
        return (result.frames[0], result.frames[0].moduleIndex.map { result.modules[$0] })
    }

    @Test("those in the C library have its name, offset, build id and load base")
    func cLibrary() throws {
        let getpid = try address(of: "getpid")
        let (frame, module) = resolve(getpid + 1)
        #expect(frame.symbol?.hasSuffix("getpid") == true)
        #expect(frame.language == .c)
        #expect(frame.functionOffset == 1)
        #expect(frame.swiftModule == nil)
        let found = try #require(module)
        #expect(found.path.contains("libc"))
        #expect(found.buildID?.count == 40)
        #expect(found.loadBase + frame.moduleOffset == getpid + 1)
    }

    @Test("those in the Swift runtime's C++ are demangled")
    func cPlusPlus() throws {
        let terminate = try address(of: "_ZSt9terminatev")
        let (frame, _) = resolve(terminate)
        #expect(frame.language == .cPlusPlus)
        #expect(frame.function == "std::terminate()")
        #expect(frame.swiftModule == nil)
    }

    @Test("those in Swift code have function and module")
    func swift() throws {
        let print = try address(of: "$ss5print_9separator10terminatoryypd_S2StF")
        let (frame, module) = resolve(print)
        #expect(frame.language == .swift)
        #expect(frame.swiftModule == "Swift")
        #expect(frame.function?.hasPrefix("Swift.print(") == true)
        #expect(module?.path.hasSuffix("libswiftCore.so") == true)
    }

    @Test("a return address belongs to the caller, even after its last instruction")
    func returnAddress() throws {
        let start = try address(of: "getpid")
        #expect(resolve(start).0.functionOffset == 0)
        #expect(resolve(start, isReturnAddress: true).0.symbol?.hasSuffix("getpid") != true)
    }

    /// The address of the kernel's page. Nil if there is none.
    private static var kernelPage: UInt? {
        let maps = String(decoding: readWholeFile("/proc/self/maps") ?? [], as: UTF8.self)
        return maps.split(separator: "\n").first { $0.hasSuffix("[vdso]") }.flatMap {
            UInt($0.prefix { $0 != "-" }, radix: 16)
        }
    }

    @Test(
        "those in the kernel's page have its functions",
        .enabled(if: kernelPage != nil, "this kernel maps no page of its own")
    )
    func vdso() throws {
        let base = try #require(Self.kernelPage)
        let addresses = (0..<512).map { ResolvableAddress(address: base + UInt($0 * 16), isReturnAddress: false) }
        let result = Symbolicator().resolve(addresses)
        #expect(result.modules.map(\.path) == ["[vdso]"])
        #expect(result.frames.contains { $0.symbol?.contains("vdso") == true })
    }

    @Test("those outside every module stay numbers", arguments: [0, 1, 4096, UInt.max, UInt.max - 1, 1 << 47])
    func nowhere(address: UInt) {
        for isReturnAddress in [true, false] {
            let (frame, module) = resolve(address, isReturnAddress: isReturnAddress)
            #expect(module == nil)
            #expect(frame.symbol == nil)
            #expect(frame.moduleOffset == address)
        }
    }

    @Test("in a stripped plugin they have module and offset; in another one at its place, no stale name")
    func plugins() throws {
        let folder = try Self.newFolder()
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let symbolicator = Symbolicator()
        for (name, flags, expected) in [
            ("first", [], "first_hidden"), ("second", [], "second_hidden"), ("third", ["-s"], nil),
        ] {
            // Each in the same file, so that only its content distinguishes them.
            let path = try #require(try compile(name, flags, in: folder))
            let opened = unsafe dlopen(path, RTLD_NOW)
            let handle = try unsafe #require(opened)
            defer { unsafe _ = dlclose(handle) }
            typealias Entry = @convention(c) () -> UInt
            let entry = unsafe unsafeBitCast(dlsym(handle, "entry"), to: Entry.self)
            let result = symbolicator.resolve([ResolvableAddress(address: entry(), isReturnAddress: false)])
            #expect(result.frames[0].symbol == expected)
            #expect(result.modules.first?.path == path)
            #expect(result.frames[0].moduleOffset > 0)
        }
    }

    @Test("the source file of C code has its whole path, also below the directory in which the compiler ran")
    func wholePath() throws {
        let folder = try Self.newFolder()
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let path = try #require(try compile("near", ["-g"], in: folder))
        let opened = unsafe dlopen(path, RTLD_NOW)
        let handle = try unsafe #require(opened)
        defer { unsafe _ = dlclose(handle) }
        typealias Entry = @convention(c) () -> UInt
        let entry = unsafe unsafeBitCast(dlsym(handle, "entry"), to: Entry.self)
        let result = Symbolicator().resolve([ResolvableAddress(address: entry(), isReturnAddress: false)])
        #expect(result.frames[0].location?.file == folder + "/plugin.c")
    }

    private static func newFolder() throws -> String {
        let folder = NSTemporaryDirectory() + "symbols-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        return folder
    }

    /// A library with a hidden function, and a function that returns its address.
    private func compile(_ name: String, _ flags: [String], in folder: String) throws -> String? {
        let source = """
            __attribute__((noinline)) static int \(name)_hidden(int x) { return x * 3; }
            unsigned long entry(void) { return (unsigned long)&\(name)_hidden; }
            """
        try? FileManager.default.removeItem(atPath: folder + "/plugin.so")
        try source.write(toFile: folder + "/plugin.c", atomically: true, encoding: .utf8)
        let compiler = Process()
        compiler.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        compiler.currentDirectoryURL = URL(filePath: folder)
        compiler.arguments = ["clang", "-shared", "-fPIC", "-o", folder + "/plugin.so", folder + "/plugin.c"] + flags
        try compiler.run()
        compiler.waitUntilExit()
        return compiler.terminationStatus == 0 ? folder + "/plugin.so" : nil
    }

    @Test("they keep their names if the cache is too small for anything")
    func tinyCache() throws {
        let symbolicator = Symbolicator(cacheLimit: 0)
        let getpid = ResolvableAddress(address: try address(of: "getpid"), isReturnAddress: false)
        for _ in 0..<3 {
            #expect(
                symbolicator.resolve([getpid, getpid]).frames.allSatisfy { $0.symbol?.hasSuffix("getpid") == true }
            )
        }
    }

    @Test("those in one module share it")
    func shared() throws {
        let addresses = try ["getpid", "getppid", "read"].map {
            ResolvableAddress(address: try address(of: $0), isReturnAddress: false)
        }
        let result = Symbolicator().resolve(addresses)
        #expect(result.modules.count == 1)
        #expect(result.frames.allSatisfy { $0.moduleIndex == 0 })
    }
}

@Suite("Addresses of another process", .serialized, .timeLimit(.minutes(10)))
struct OtherProcessTests {
    private static let latestNumber = "/proc/sys/kernel/ns_last_pid"

    private func startSleep() throws -> Process {
        try Process.run(URL(filePath: "/usr/bin/sleep"), arguments: ["600"])
    }

    private func end(_ process: Process) {
        process.killIfRunning()
        process.waitUntilExit()
    }

    /// The start of the executable's code.
    private func code(of process: Process) -> UInt? {
        let map = ModuleMap(of: ProcessDirectory(processID: process.processIdentifier))
        return map.mappings.first { $0.path.hasSuffix("/sleep") && $0.fileOffset > 0 }?.range.lowerBound
    }

    private struct NotReused: Error {}

    /// A symbolicator of a process that has ended, and a later process that has its number.
    private func reuse() throws -> (Symbolicator, Process) {
        // Another process of this machine may get the number first, and keep it: then the next one is tried.
        for _ in 0..<200 {
            let first = try startSleep()
            let number = first.processIdentifier
            let symbolicator = Symbolicator(processID: number)
            end(first)
            for _ in 0..<10 {
                try "\(number - 1)".write(toFile: Self.latestNumber, atomically: false, encoding: .utf8)
                let second = try startSleep()
                if second.processIdentifier == number { return (symbolicator, second) }
                end(second)
            }
        }
        throw NotReused()
    }

    @Test("Of a process that runs another program now, what was remembered of the former one still has its names")
    func replaced() throws {
        let (shell, input) = (Process(), Pipe())
        (shell.executableURL, shell.arguments) = (URL(filePath: "/bin/sh"), ["-c", "read line; exec sleep 600"])
        shell.standardInput = input
        try shell.run()
        defer { end(shell) }
        let number = shell.processIdentifier
        let directory = ProcessDirectory(processID: number)
        waitUntil { directory.executable.map { $0 != ProcessDirectory.own.executable } == true }
        let former = try #require(directory.executable)
        // The kernel maps a program after it has become the process's executable.
        let mapped = { ModuleMap(of: directory).mappings.first { $0.path == former && $0.fileOffset > 0 } }
        waitUntil { mapped() != nil }
        let address = try #require(mapped()?.range.lowerBound)
        let (told, untold) = (Symbolicator(processID: number), Symbolicator(processID: number))
        for symbolicator in [told, untold] { symbolicator.remember([address]) }
        try input.fileHandleForWriting.write(contentsOf: Data("\n".utf8))
        waitUntil { directory.executable.map { $0 != former } == true }
        told.noteReplaced()
        let sought = [ResolvableAddress(address: address, kind: .exact)]
        #expect(told.resolve(sought).modules.map(\.path) == [former])
        #expect(untold.resolve(sought).modules.map(\.path) != [former])
    }

    @Test("Of a process that has ended, functions are named in a module of which others were named while it ran")
    func ended() throws {
        let workshop = try Workshop()
        // Each name is longer than a page of the file, so that it is not read together with another.
        let names = (0..<3).map { "function\($0)_" + String(repeating: "x", count: 5000) }
        let functions = names.map { "void \($0)(void) {}" } + ["int main(void) { for (;;) pause(); }"]
        try workshop.write(functions.joined(separator: "\n"), to: "program.c")
        try workshop.run(
            "gcc",
            ["-include", "unistd.h", "-no-pie", "-Wl,--build-id=sha1", "-o", "program", "program.c"]
        )
        let starts = try workshop.functions(of: "program")
        let addresses = try names.map { name in try #require(starts.first { $0.name == name }).start }
        let process = try Process.run(URL(filePath: workshop.path("program")), arguments: [])
        defer { end(process) }
        let directory = ProcessDirectory(processID: process.processIdentifier)
        waitUntil { addresses.allSatisfy(ModuleMap(of: directory).contains) }
        let symbolicator = Symbolicator(processID: process.processIdentifier)
        symbolicator.remember(addresses)
        let sought = addresses.map { ResolvableAddress(address: $0, kind: .exact) }
        #expect(symbolicator.resolve([sought[0]]).frames.map(\.symbol) == [names[0]])
        end(process)
        #expect(symbolicator.resolve(sought).frames.map(\.symbol) == names)
    }

    @Test(
        "A later process with the same number gives no names",
        .enabled(if: unsafe access(Self.latestNumber, W_OK) == 0, "needs a writable ns_last_pid")
    )
    func reusedNumber() throws {
        let (symbolicator, second) = try reuse()
        defer { end(second) }
        let number = second.processIdentifier
        var address: UInt?
        waitUntil {
            address = code(of: second)
            return address != nil
        }
        let sought = [ResolvableAddress(address: try #require(address), kind: .exact)]
        #expect(symbolicator.resolve(sought).frames[0].moduleIndex == nil)
        #expect(Symbolicator(processID: number).resolve(sought).frames[0].moduleIndex == 0)
    }
}

@Suite("The module map")
struct ModuleMapTests {
    private static let text = """
        00400000-00401000 r--p 00000000 08:01 42    /opt/a server
        00401000-00402000 r-xp 00001000 08:01 42    /opt/a server
        7f0000000000-7f0000001000 r--p 00000000 08:01 43    /lib/x.so (deleted)
        7f0000001000-7f0000002000 r-xp 00001000 08:01 43    /lib/x.so (deleted)
        7f0000003000-7f0000004000 rw-p 00000000 00:00 0
        """

    @Test("it finds the start of the file around an address")
    func header() {
        let map = ModuleMap(parsing: Array(Self.text.utf8))
        #expect(map.headerMapping(around: 0x401fff)?.range.lowerBound == 0x400000)
        #expect(map.headerMapping(around: 0x401fff)?.path == "/opt/a server")
        #expect(map.headerMapping(around: 0x7f00_0000_1000)?.plainPath == "/lib/x.so")
        #expect(map.headerMapping(around: 0x402000) == nil)
        #expect(map.headerMapping(around: 0x7f00_0000_3000) == nil, "no file")
    }

    @Test("it takes no mapping that is far away for the start of the file: all of a process may be of one file")
    func farHeader() {
        let parts = (0...ModuleMap.mostParts + 1).map { part in
            let start = 0x10_0000 + part << 12
            let numbers = [start, start + 0x1000, part << 12].map { String($0, radix: 16) }
            return "\(numbers[0])-\(numbers[1]) r-xp \(numbers[2]) 08:01 42    /opt/parts\n"
        }
        let map = ModuleMap(parsing: Array(parts.joined().utf8))
        func header(ofPart part: Int) -> UInt? {
            map.headerMapping(around: 0x10_0000 + UInt(part) << 12)?.range.lowerBound
        }
        for part in [0, 1, ModuleMap.mostParts] { #expect(header(ofPart: part) == 0x10_0000) }
        #expect(header(ofPart: ModuleMap.mostParts + 1) == nil && map.mappings.count == parts.count)
    }

    @Test("of a file of any length no more than the limit is read")
    func limit() throws {
        let path = NSTemporaryDirectory() + "maps-\(UUID().uuidString)"
        try Data(repeating: 0x61, count: 200_000).write(to: URL(filePath: path))
        defer { try? FileManager.default.removeItem(atPath: path) }
        #expect(readWholeFile(path, limit: 100_000)?.count == 100_000)
        #expect(readWholeFile(path)?.count == 200_000)
    }

    @Test("of a damaged text it finds the start of a file that is mapped at the address, or nothing")
    func garbage() {
        var (generator, found) = (SplitMix64.ofThisRun(), 0)
        for _ in 0..<2000 {
            var bytes = Array(Self.text.utf8)
            for _ in 0..<8 {
                bytes[Int.random(in: bytes.indices, using: &generator)] = .random(in: 0...255, using: &generator)
            }
            let map = ModuleMap(parsing: bytes)
            guard let header = map.headerMapping(around: 0x401000) else { continue }
            found += 1
            #expect(header.fileOffset == 0 && map.contains(0x401000), "\(String(decoding: bytes, as: UTF8.self))")
        }
        #expect(found > 0)
    }
}
