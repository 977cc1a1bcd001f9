import Foundation
import TestSupport
import Testing

@testable import Symbolication

@Suite("Names of generated code", .serialized, .timeLimit(.minutes(10)))
struct PerfMapTests {
    private func map(_ text: String) -> PerfMap { PerfMap(parsing: Array(text.utf8)) }

    @Test("An address gets the name of the function around it; the function's end is outside")
    func lookup() {
        let map = map("1000 10 first\n0x2000 0x8 py::second:/srv/app.py\n1010 1 third\n")
        #expect(map.function(at: 0x1000)?.name == "first" && map.function(at: 0x100f)?.start == 0x1000)
        #expect(map.function(at: 0x1010)?.name == "third" && map.function(at: 0x1011) == nil)
        #expect(map.function(at: 0x2007)?.name == "py::second:/srv/app.py" && map.function(at: 0x2008) == nil)
        #expect(map.function(at: 0) == nil && map.function(at: .max) == nil)
    }

    @Test("Of several entries that cover an address the last written one applies")
    func overwritten() {
        let map = map("1000 100 old\n1080 10 other\n1000 20 new\n")
        #expect(map.function(at: 0x1010)?.name == "new" && map.function(at: 0x1050)?.name == "old")
        #expect(map.function(at: 0x1085)?.name == "other")
    }

    @Test("V8's optimisation level is not part of a function's name")
    func tiers() {
        let map = map("10 1 JS:*serve /a.js:1:2\n20 1 LazyCompile:~serve /a.js\n30 1 Stub:*x\n40 1 *x\n50 1 JS:\n")
        #expect(
            map.function(at: 0x10)?.name == "JS:serve /a.js:1:2"
                && map.function(at: 0x20)?.name == "LazyCompile:serve /a.js"
        )
        #expect(map.function(at: 0x30)?.name == "Stub:*x" && map.function(at: 0x40)?.name == "*x")
        #expect(map.function(at: 0x50)?.name == "JS:")
    }

    @Test(
        "A script's function is named without its tag, and with its file",
        arguments: [
            ("JS:serve /srv/a.js:12:34", "serve", "/srv/a.js", 12),
            ("LazyCompile:get size /srv/my shop/a.js:1:2", "get size", "/srv/my shop/a.js", 1),
            ("JS: file:///srv/a.mjs:8:1", "(anonymous at a.mjs:8)", "/srv/a.mjs", 8),
            ("Eval: /srv/a.js:1:1", "(anonymous at a.js:1)", "/srv/a.js", 1),
            ("JS:readSync node:fs:734:18", "readSync", "node:fs", 734),
            ("JS:run [eval]:1:9", "run", "[eval]", 1),
            ("py::Shop.load:/srv/app.py", "Shop.load", "/srv/app.py", nil),
        ]
    )
    func scripts(name: String, function: String, file: String, line: Int?) {
        let script = GeneratedName(name)
        #expect(script?.function == function && script?.file == file && script?.line == line)
        #expect(Demangler.shortName(name) == function)
    }

    @Test(
        "Other generated code keeps its name",
        arguments: ["JS:made at run time", "JS:", "py::", "java.lang.Thread.run", ""]
    )
    func notScripts(name: String) {
        #expect(GeneratedName(name) == nil && Demangler.shortName(name) == name)
    }

    @Test("The tier of .NET is not part of a method's name")
    func tiersOfNET() {
        let map = map("10 1 void [shop] Cart::Add(int32[])[Tier0]\n20 1 void [shop] Cart::Add(int32[])\n30 1 list[0]\n")
        for place: UInt in [0x10, 0x20] { #expect(map.function(at: place)?.name == "void [shop] Cart::Add(int32[])") }
        #expect(map.function(at: 0x30)?.name == "list[0]")
    }

    @Test(
        "Invalid lines are left out, and the others apply",
        arguments: [
            "", "\n\n", "1000", "1000 ", "1000 10", "1000 10 ", "1000 0 empty", "x 10 y", "1000 y z", " 1000 10 blank",
            "-1000 10 minus", "ffffffffffffffff 2 over", "11111111111111111 1 long", "1000\t10\ttabs", "0x 1 x",
            "\u{0}\u{0}\u{0}",
        ]
    )
    func malformed(_ line: String) {
        #expect(map(line).isEmpty)
        #expect(map("\(line)\n2000 10 good").function(at: 0x2001)?.name == "good")
    }

    @Test("A name is cut and contains nothing that a terminal obeys")
    func names() {
        let map = map("10 1 \u{1B}[2Jevil\u{7F}\r\n20 1 " + String(repeating: "n", count: 5000) + "\n")
        #expect(map.function(at: 0x10)?.name == "?[2Jevil??")
        #expect(map.function(at: 0x20)?.name.count == PerfMap.limits.name)
    }

    @Test("For random files each address gets the same name as by a search through all lines")
    func fuzz() {
        var random = SplitMix64.ofThisRun()
        for _ in 0..<200 {
            var lines: [(start: UInt, size: UInt, text: String)] = []
            for number in 0..<Int.random(in: 0...60, using: &random) {
                let (start, size) = (UInt.random(in: 0...400, using: &random), UInt.random(in: 0...40, using: &random))
                lines.append((start, size, "\(String(start, radix: 16)) \(String(size, radix: 16)) f\(number)"))
            }
            let map = map(lines.map(\.text).joined(separator: "\n"))
            for address in UInt(0)...450 {
                let truth = lines.lastIndex { $0.start <= address && address - $0.start < $0.size }
                #expect(map.function(at: address)?.name == truth.map { "f\($0)" })
            }
        }
        for _ in 0..<300 {
            let alphabet = Array("0123456789abcdefxX \n\n  JS:*~\u{0}\u{1B}zé".utf8)
            let bytes = (0..<Int.random(in: 0...400, using: &random)).map { _ in
                Bool.random(using: &random)
                    ? alphabet.randomElement(using: &random)! : .random(in: 0...255, using: &random)
            }
            let map = PerfMap(parsing: bytes)
            for address in [0, 1, 15, 255, 4096, UInt.max] { _ = map.function(at: address) }
        }
    }

    @Test("Of too many entries the last ones are kept: their names are valid, those of the first ones may not be")
    func tooMany() {
        let text = "1000 10 old\n2000 10 first\n1000 10 new\n3000 10 last\n"
        let map = PerfMap(parsing: Array(text.utf8), limit: 2)
        #expect(map.function(at: 0x1001)?.name == "new" && map.function(at: 0x3001)?.name == "last")
        #expect(map.function(at: 0x2001) == nil && map.sizeIfCut == text.utf8.count)
        #expect(PerfMap(parsing: Array(text.utf8), limit: 4).sizeIfCut == nil)
    }

    @Test("Of very many entries that begin before an address only the nearest thousand are tried")
    func overlapping() {
        let all = map((0..<20_000).map { "\(String($0, radix: 16)) ffffff f\($0)\n" }.joined())
        // It does not matter which of them is returned.
        for address in UInt(30_000)..<32_000 { #expect(all.function(at: address) != nil) }
        // The one around the address comes first, the others end before it.
        let limit = PerfMap.limits.steps
        for (others, name) in [(limit - 1, "around"), (limit, nil)] as [(Int, String?)] {
            let text = (1...others).map { "\(String($0 * 2, radix: 16)) 1 before\n" }.joined()
            #expect(map("0 ffffff around\n" + text).function(at: 0xffff)?.name == name)
        }
    }
}

@Suite("Which files names are taken from", .serialized, .timeLimit(.minutes(10)))
struct PerfMapFileTests {
    private let path = "/tmp/perf-\(getpid()).map"
    private let text = "1000 10 made\n"

    /// The name of address 0x1001 of this process, treated as another process. It is in no module.
    private func name() -> String? {
        let symbolicator = Symbolicator(processID: getpid())
        return symbolicator.resolve([.init(address: 0x1001, kind: .exact)]).frames.first?.function
    }

    private func with(_ make: () throws -> Void) rethrows -> String? {
        unsafe unlink(path)
        defer { unsafe unlink(path) }
        try make()
        return name()
    }

    private func write(_ mode: mode_t = 0o644, to path: String? = nil) {
        let file = unsafe open(path ?? self.path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        _ = unsafe Glibc.write(file, text, text.utf8.count)
        fchmod(file, mode)
        close(file)
    }

    @Test("The process's own file is accepted")
    func own() { #expect(with { write() } == "made" && name() == nil) }

    @Test("A link, a pipe, a directory, a file with two names or one that others can write to is not accepted")
    func hostile() throws {
        let other = "/tmp/other-\(getpid()).map"
        defer { unsafe unlink(other) }
        write(to: other)
        #expect(with { unsafe symlink(other, path) } == nil)
        #expect(with { unsafe link(other, path) } == nil)
        #expect(with { unsafe mkfifo(path, 0o600) } == nil)
        #expect(with { write(0o666) } == nil)
        unsafe mkdir(path, 0o700)
        #expect(name() == nil)
        unsafe rmdir(path)
    }

    @Test("A process that has ended keeps the names that were read")
    func ended() throws {
        let child = Process()
        child.executableURL = URL(filePath: "/bin/sleep")
        child.arguments = ["600"]
        try child.run()
        // Foundation's child has the signals of a Dispatch thread, which blocks SIGTERM.
        defer { if child.isRunning { kill(child.processIdentifier, SIGKILL) } }
        let path = "/tmp/perf-\(child.processIdentifier).map"
        unsafe unlink(path)
        write(to: path)
        defer { unsafe unlink(path) }
        let symbolicator = Symbolicator(processID: child.processIdentifier)
        let place = ResolvableAddress(address: 0x1001, kind: .exact)
        try #require(symbolicator.resolve([place]).frames.first?.function == "made")
        kill(child.processIdentifier, SIGKILL)
        child.waitUntilExit()
        // Until then the file is not looked at again.
        Thread.sleep(forTimeInterval: 0.1)
        #expect(symbolicator.resolve([place]).frames.first?.function == "made")
    }

    @Test("A function that is generated soon after the file was read has its name by the next stall")
    func generatedLater() {
        unsafe unlink(path)
        defer { unsafe unlink(path) }
        write()
        let process = ProcessDirectory(processID: getpid())
        var cache = PerfMapCache()
        let began = ContinuousClock.now
        #expect(cache.map(of: process, at: began)?.function(at: 0x2001) == nil)
        let read = ContinuousClock.now
        let file = unsafe open(path, O_WRONLY | O_APPEND | O_CLOEXEC)
        _ = unsafe Glibc.write(file, "\n2000 10 later\n", 15)
        close(file)
        let next = read + max(PerfMapCache.leastValidity, (read - began) * 19)
        #expect(cache.map(of: process, at: next)?.function(at: 0x2001)?.name == "later")
    }

    @Test("Time without a processor while the file was read does not put off the next reading")
    func stoodStill() {
        unsafe unlink(path)
        defer { unsafe unlink(path) }
        write()
        let process = ProcessDirectory(processID: getpid())
        var cache = PerfMapCache()
        #expect(cache.map(of: process, at: .now - .seconds(3600))?.function(at: 0x1001)?.name == "made")
        let file = unsafe open(path, O_WRONLY | O_APPEND | O_CLOEXEC)
        _ = unsafe Glibc.write(file, "\n2000 10 later\n", 15)
        close(file)
        #expect(cache.map(of: process, at: .now + .seconds(1))?.function(at: 0x2001)?.name == "later")
    }

    @Test("While this process has no descriptor left, functions keep their names; without the file they have none")
    func withoutDescriptors() async {
        await #expect(processExitsWith: .success) {
            let path = "/tmp/perf-\(getpid()).map"
            defer { unsafe unlink(path) }
            try Data("1000 10 made\n".utf8).write(to: URL(filePath: path))
            try #require(unsafe chmod(path, 0o600) == 0)
            let process = ProcessDirectory(processID: getpid())
            var cache = PerfMapCache()
            try #require(cache.map(of: process)?.function(at: 0x1001)?.name == "made")
            let openFiles = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
            var usual = rlimit()
            try #require(unsafe getrlimit(openFiles, &usual) == 0)
            var none = rlimit(rlim_cur: 0, rlim_max: usual.rlim_max)
            try #require(unsafe setrlimit(openFiles, &none) == 0)
            let later = ContinuousClock.now + .seconds(31)
            #expect(cache.map(of: process, at: later)?.function(at: 0x1001)?.name == "made")
            try #require(unsafe setrlimit(openFiles, &usual) == 0)
            unsafe unlink(path)
            #expect(cache.map(of: process, at: later) == nil)
        }
    }

    @Test("Another user's file is not accepted", .enabled(if: getuid() == 0, "needs root"))
    func othersFile() {
        let name = with {
            write()
            unsafe chown(path, 65534, 65534)
        }
        #expect(name == nil)
    }

    @Test("Of a file that is too large the end is read: the latest entries")
    func large() {
        unsafe unlink(path)
        defer { unsafe unlink(path) }
        let file = unsafe open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
        let lines = "1000 10 old\n2000 10 cut in two\n" + text
        _ = unsafe Glibc.write(file, lines, lines.utf8.count)
        close(file)
        let map = PerfMap.Source(of: ProcessDirectory(processID: getpid()))?.read(limit: text.utf8.count + 4)
        #expect(map?.function(at: 0x1001)?.name == "made" && map?.function(at: 0x2001) == nil)
        #expect(map?.sizeIfCut == lines.utf8.count)
    }

    @Test("Of a file of 50 MB only the end is read; that is said once, if a name is missing")
    func huge() {
        unsafe unlink(path)
        defer { unsafe unlink(path) }
        let file = unsafe open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
        let lines = "3000 10 old\n" + text
        _ = unsafe pwrite(file, lines, lines.utf8.count, 0)
        _ = unsafe pwrite(file, "\n" + text, text.utf8.count + 1, 50 << 20)
        close(file)
        let symbolicator = Symbolicator(processID: getpid())
        let known = symbolicator.resolve([.init(address: 0x1001, kind: .exact)])
        #expect(known.frames.first?.function == "made" && known.problems.isEmpty)
        let unknown = symbolicator.resolve([0x1001, 0x3001, 0x3002].map { .init(address: $0, kind: .exact) })
        #expect(unknown.frames.map(\.function) == ["made", nil, nil])
        #expect(unknown.problems.map(\.code) == [.outOfMemory])
        #expect(unknown.problems.first?.description.contains("only the end of its 50 MiB is used") == true)
    }
}
