import Foundation
import TestSupport
import Testing

@testable import Symbolication

@Suite("Awaiting functions", .timeLimit(.minutes(10)))
struct AwaitTests {
    /// Each await is on a separate line, with other work on the lines around it: the code after it begins on another line.
    private static let source = """
        @inline(never) func pause() async { await Task.yield() }
        @inline(never) func work(_ n: Int) -> Int { print(n); return n }
        @inline(never)
        func outer(_ n: Int) async -> Int {
            let start = work(n)
            await
                pause()
            let next = work(start &+ 1)
            await
                pause()
            return work(next &* start)
        }
        @main struct Program {
            static func main() async { print(await outer(CommandLine.argc == 1 ? 2 : 3)) }
        }
        """

    /// The adapter between `pause` and the type that `outer` takes is inlined
    /// around the awaits, and the preceding lines are different ones.
    private static let adapted = """
        @inline(never) func pause(_ n: Int) async -> Int { await Task.yield(); return n }
        @inline(never) func work(_ n: Int) -> Int { print(n); return n }
        @inline(never)
        func outer(_ n: Int, _ body: (Int) async throws -> Int) async rethrows -> Int {
            let start = work(n)
            let first = try await body(start)
            let next = work(first)
            let second = try await body(next)
            return work(second)
        }
        @main struct Program {
            static func main() async { print(await outer(CommandLine.argc == 1 ? 2 : 3, pause)) }
        }
        """

    private struct Built {
        let workshop: Workshop
        /// The addresses at which `outer` resumes, in the order of its awaits.
        let resumptions: [UInt]
        let id: String

        init(_ flags: [String], source: String = AwaitTests.source, part: String = "5outeryS2iYaF") throws {
            workshop = try Workshop()
            try workshop.write(source, to: "program.swift")
            let link = ["-parse-as-library", "-Xlinker", "--build-id", "-o", "program", "program.swift"]
            try workshop.run("swiftc", flags + ["-g"] + link)
            id = try #require(try workshop.buildID(of: "program"))
            let parts = try workshop.functions(of: "program").filter {
                $0.name.contains(part) && $0.name.wholeMatch(of: /.*TQ\d_/) != nil
            }
            resumptions = parts.sorted { $0.name < $1.name }.map(\.start)
        }

        func resolve(symbols: [String] = []) -> Resolution {
            Symbolicator(search: SymbolSearch(directories: symbols, systemDirectories: [])).resolve(
                resumptions.map { ModulePlace(module: 0, offset: $0, kind: .resumption) },
                in: [LoadedModule(path: workshop.path("program"), buildID: id, loadBase: 0)],
                budget: .tool
            )
        }
    }

    @Test(
        "They are named with the line of the await, optimised or not",
        arguments: testsAllForms ? ["-Onone", "-O"] : ["-O"]
    )
    func lines(optimisation: String) throws {
        let built = try Built([optimisation])
        let frames = built.resolve().frames
        #expect(frames.compactMap(\.symbol).map(Demangler.shortName) == ["outer(_:)", "outer(_:)"])
        #expect(frames.map(\.swiftModule) == ["program", "program"])
        #expect(frames.map(\.functionOffset) == [0, 0])
        #if arch(x86_64)
            #expect(frames.map(\.location?.line) == [7, 10])
        #endif
        let exact = try built.workshop.resolve("program", built.resumptions)
        #expect(exact.frames.map(\.symbol) == frames.map(\.symbol))
    }

    @Test(
        "In a stripped program with its symbol file they are, too; without the program, with a line nearby"
    )
    func stripped() throws {
        let built = try Built(["-O"])
        let workshop = built.workshop
        try workshop.run("objcopy", ["--only-keep-debug", "program", "program.debug"])
        try workshop.run("strip", ["program"])
        #if arch(x86_64)
            #expect(built.resolve(symbols: [workshop.folder]).frames.map(\.location?.line) == [7, 10])
        #endif
        try FileManager.default.removeItem(atPath: workshop.path("program"))
        let frames = built.resolve(symbols: [workshop.folder]).frames
        #expect(frames.compactMap(\.symbol).map(Demangler.shortName) == ["outer(_:)", "outer(_:)"])
        #expect(frames.allSatisfy { $0.location?.line != nil })
    }

    #if arch(x86_64)
        @Test("They are named with that line also if a compiler's adapter is inlined at the await")
        func adapter() throws {
            let frames = try Built(["-O"], source: Self.adapted, part: "5outer").resolve().frames
                .filter { $0.symbol?.contains("_TR") == true }
            #expect(!frames.isEmpty)
            #expect(Set(frames.map(\.location?.line)) == [6, 8])
            #expect(frames.flatMap(\.inlined).isEmpty)
        }
    #endif

    @Test("An address within a function, marked as a resumption, is looked up unchanged")
    func elsewhere() throws {
        let workshop = try Workshop()
        try workshop.makeProgram()
        let place = try workshop.innermostPlace(of: "program")
        let result = Symbolicator(search: SymbolSearch(systemDirectories: [])).resolve(
            [ModulePlace(module: 0, offset: place, kind: .resumption)],
            in: [
                LoadedModule(path: workshop.path("program"), buildID: try workshop.buildID(of: "program"), loadBase: 0)
            ],
            budget: .tool
        )
        #expect(result.frames == (try workshop.resolve("program", [place]).frames))
    }
}
