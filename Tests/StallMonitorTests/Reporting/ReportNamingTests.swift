import Foundation
import StallReading
import StallReports
import Symbolication
import TestSupport
import Testing

@testable import StallMonitor

/// Reports of a stripped program, named later from its symbol file.
@Suite("Adding names to a report without names", .timeLimit(.minutes(10)))
struct ReportNamingTests {
    private let program: StrippedProgram
    private let naming: ReportNaming

    init() throws {
        program = try StrippedProgram()
        naming = ReportNaming(
            symbolicator: Symbolicator(search: .init(directories: [program.folder.path], systemDirectories: []))
        )
    }

    /// `read` called by `outer`, with two calls inlined at the call; the culprit is `outer` or nobody.
    private func report(hasCulprit: Bool = true, state: StallState = .recovered) -> StallReport {
        let frames = [
            StallReport.Frame(address: 0x9000, module: 1, offset: 0x10, function: "read", symbol: "read", line: 3),
            StallReport.Frame(
                address: Address(0x5000_0000 + program.place),
                module: 0,
                offset: Address(program.place + 1),
                own: true,
                foundBy: .unwindTable
            ),
            StallReport.Frame(address: 0x7777),
        ]
        let awaiting = StallReport.Frame(
            kind: .awaiting,
            address: Address(0x5000_0000 + program.start),
            module: 0,
            offset: Address(program.start),
            foundBy: .asyncContext
        )
        var report = StallReport.minimal(state)
        report.process.executable = "/srv/no such/program"
        report.stacks = [
            .init(
                thread: report.thread,
                capturedAt: .now(),
                method: .quiet,
                frames: frames,
                leftOut: .init(after: 2, count: 9),
                async: .init(from: 1, frames: [awaiting], ends: .task, task: 5)
            )
        ]
        report.culprit = hasCulprit ? .init(stack: 0, frame: 1) : nil
        report.modules = [
            .init(path: "/srv/no such/program", buildID: program.buildID, loadBase: 0x5000_0000),
            .init(path: "/srv/no such/libc.so.6", buildID: "0123456789abcdef", loadBase: 0),
        ]
        report.fingerprint = .make(kind: .blocked, frames: frames, modules: [])
        return report
    }

    @Test("it has functions, lines, inlined calls as frames, and the culprit that these show")
    func named() throws {
        let old = report()
        let new = naming.findings(for: old).amendment.applied(to: old)
        let frames = new.stacks[0].frames
        #expect(frames.map(\.function) == ["read", "innermost", "middle", "outer", nil])
        #expect(frames.map(\.line) == [3, 2, 5, 8, nil])
        #expect(frames.map(\.kind) == [nil, .inlined, .inlined, nil, nil])
        #expect(Set(frames[1...3].map(\.address)).count == 1 && Set(frames[1...3].map(\.offset)).count == 1)
        #expect(frames[3].own && frames[3].functionOffset != nil)
        let culprit = try #require(new.culprit)
        #expect(culprit.frame == 1 && culprit.function == "innermost" && culprit.line == 2)
        #expect(new.aliases == [old.fingerprint] && new.isProvisional == nil)
        #expect(
            new.fingerprint
                == .make(
                    kind: .blocked,
                    fault: new.stacks[0].callers(from: 1),
                    modules: new.modules,
                    executable: new.process.executable
                )
        )
    }

    @Test("it has functions and lines of awaiting functions, after the same frame as before")
    func awaiting() throws {
        let old = report()
        let stack = naming.findings(for: old).amendment.applied(to: old).stacks[0]
        let async = try #require(stack.async)
        #expect(async.frames.last?.function == "outer" && async.frames.last?.kind == .awaiting)
        #expect(async.frames.last?.line != nil)
        #expect(async.from == 3 && stack.frames[async.from].offset == old.stacks[0].frames[1].offset)
        #expect(stack.leftOut == .init(after: 4, count: 9))
        #expect(async.ends == .task && async.task == 5)
    }

    @Test("it has a culprit if names were missing for one")
    func culprit() {
        let old = report(hasCulprit: false)
        #expect(naming.findings(for: old).amendment.applied(to: old).culprit?.function == "innermost")
    }

    @Test("it blames what most samples show, however many a report claims")
    func countlessSamples() {
        var old = report(hasCulprit: false)
        old.stacks[0].count = .max
        old.stacks.append(old.stacks[0])
        #expect(naming.findings(for: old).amendment.applied(to: old).culprit?.function == "innermost")
    }

    @Test("it is the same after a second time")
    func twice() {
        let once = naming.findings(for: report()).amendment.applied(to: report())
        #expect(naming.findings(for: once).amendment.applied(to: once).stacks == once.stacks)
    }

    @Test("it says why other frames have no names, once per module")
    func problems() {
        let problems = naming.findings(for: report()).problems
        #expect(problems.isEmpty, "libc's frame lacked nothing")
        var lacking = report()
        lacking.stacks[0].frames[0].line = nil
        lacking.stacks.append(lacking.stacks[0])
        #expect(naming.findings(for: lacking).problems.map(\.code) == [.missingFile])
    }

    @Test("unknown keys on disk are kept, and it is written once")
    func written() throws {
        let folder = TemporaryDirectory()
        let directory = ReportDirectory(path: folder.path)
        let report = report()
        try directory.write(report)
        let file = folder.path + "/\(ReportFileName(.stall, report.id))"
        let text = try String(contentsOfFile: file, encoding: .utf8)
            .replacing(
                "\"symbol\":\"read\"",
                with: "\"novel\":[1.5,{\"big\":18446744073709551615}],\"symbol\":\"read\""
            )
            .replacing("\"kind\":\"blocked\"", with: "\"future\":null,\"kind\":\"blocked\"")
        try text.write(toFile: file, atomically: false, encoding: .utf8)
        #expect(try directory.amend(report.id) { naming.findings(for: $0).amendment } == .written)
        let written = try String(contentsOfFile: file, encoding: .utf8)
        #expect(written.contains("\"novel\":[1.5,{\"big\":18446744073709551615}]"))
        #expect(written.contains("\"future\":null"))
        let read = try ReportReader(path: folder.path).report(report.id)
        #expect(read.stacks == naming.findings(for: report).amendment.applied(to: report).stacks)
        #expect(read.stacks[0].frames.count == 5 && read.stacks[0].async?.from == 3)
        #expect(try directory.amend(report.id) { naming.findings(for: $0).amendment } == .unchanged)
        #expect(try String(contentsOfFile: file, encoding: .utf8) == written)
        #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path).count == 1)
    }

    @Test("on disk an unnamed culprit gets its name, whether its code counted as own or not")
    func culpritOnDisk() throws {
        let folder = TemporaryDirectory()
        let directory = ReportDirectory(path: folder.path)
        for isOwn in [true, false] {
            var report = report()
            report.stacks[0].frames[1].own = isOwn
            #expect(report.culprit?.function == nil && report.culprit?.symbol == nil)
            try directory.write(report)
            #expect(try directory.amend(report.id) { naming.findings(for: $0).amendment } == .written)
            let culprit = try #require(try ReportReader(path: folder.path).report(report.id).culprit)
            #expect(culprit.function == "innermost" || culprit.function == "outer", "\(culprit)")
            #expect(culprit.line != nil)
        }
    }

    @Test("it is not changed during the stall, nor if its process writes it meanwhile")
    func untouched() throws {
        let folder = TemporaryDirectory()
        let directory = ReportDirectory(path: folder.path)
        let ongoing = report(state: .ongoing)
        try directory.write(ongoing)
        #expect(try directory.amend(ongoing.id) { naming.findings(for: $0).amendment } == .ongoing)
        #expect(try ReportReader(path: folder.path).report(ongoing.id) == ongoing)
        var report = report()
        try directory.write(report)
        report.suppressed = 7
        let outcome = try directory.amend(report.id) { old in
            _ = try? directory.write(report)
            return naming.findings(for: old).amendment
        }
        #expect(outcome == .overtaken)
        #expect(try ReportReader(path: folder.path).report(report.id) == report)
    }
}

/// A program without symbols, its symbol file `program.debug`, and a place in it with two inlined calls.
private struct StrippedProgram {
    let folder = TemporaryDirectory()
    let buildID: String
    let place: UInt64
    /// Of `outer`.
    let start: UInt64

    init() throws {
        let source = """
            static inline __attribute__((always_inline)) int innermost(volatile int *x) {
                return *x * 3;
            }
            static inline __attribute__((always_inline)) int middle(volatile int *x) {
                return innermost(x) + 1;
            }
            __attribute__((noinline)) int outer(volatile int *x) {
                return middle(x) + 2;
            }
            int main(void) { volatile int x = 1; return outer(&x); }
            """
        try source.write(toFile: folder.path + "/program.c", atomically: true, encoding: .utf8)
        let script = """
            gcc -g -O2 -Wl,--build-id=0x0123456789abcdef0123 -o whole "$PWD/program.c" && nm whole | grep ' outer$' | cut -d' ' -f1 \
            && objcopy --only-keep-debug whole program.debug && rm whole program.c
            """
        let shell = Process()
        shell.executableURL = URL(filePath: "/bin/sh")
        shell.arguments = ["-c", script]
        shell.currentDirectoryURL = URL(filePath: folder.path)
        let output = folder.path + "/output"
        _ = FileManager.default.createFile(atPath: output, contents: nil)
        shell.standardOutput = try FileHandle(forWritingTo: URL(filePath: output))
        try shell.run()
        shell.waitUntilExit()
        let text = try String(contentsOfFile: output, encoding: .utf8).trimmingCharacters(in: .whitespacesAndNewlines)
        let start = try #require(UInt64(text, radix: 16))
        self.start = start
        buildID = "0123456789abcdef0123"
        let id = buildID
        let symbolicator = Symbolicator(search: .init(directories: [folder.path], systemDirectories: []))
        let offsets = (0..<64).map { start + $0 }
        let result = symbolicator.resolve(
            offsets.map { ModulePlace(module: 0, offset: UInt($0), isReturnAddress: false) },
            in: [LoadedModule(path: "/nowhere/program", buildID: id, loadBase: 0)],
            budget: .tool
        )
        place = UInt64(try #require(result.frames.first { $0.inlined.count == 2 }).moduleOffset)
    }
}
