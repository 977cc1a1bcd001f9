import Foundation
import TestSupport
import Testing

@testable import Symbolication

@Suite("Symbol files", .timeLimit(.minutes(10)))
struct SymbolFileTests {
    /// A stripped program `program`, its symbol file `program.debug`, and an address with two inlined calls.
    private func stripped(flags: [String] = ["-g", "-O2"]) throws -> (workshop: Workshop, place: UInt, id: String) {
        let workshop = try Workshop()
        try workshop.makeProgram(flags: flags)
        let place = try workshop.innermostPlace(of: "program")
        let id = try #require(try workshop.buildID(of: "program"))
        try workshop.run("objcopy", ["--only-keep-debug", "program", "program.debug"])
        try workshop.run("strip", ["program"])
        return (workshop, place, id)
    }

    private static let chain = ["innermost", "middle", "outer"]

    @Test("without one a stripped module gives module and offset, and a reason")
    func none() throws {
        let (workshop, place, _) = try stripped()
        try FileManager.default.removeItem(atPath: workshop.path("program.debug"))
        let result = try workshop.resolve("program", [place])
        #expect(result.frames[0].symbol == nil && result.frames[0].location == nil)
        #expect(result.frames[0].moduleIndex == 0 && result.frames[0].moduleOffset == place)
        #expect(result.problems.map(\.code) == [.noLines])
    }

    @Test("a symbol file for which no descriptor was left is read the next time")
    func withoutDescriptor() async {
        await #expect(processExitsWith: .success) {
            let (workshop, place, id) = try SymbolFileTests().stripped()
            let search = SymbolSearch(directories: [workshop.folder], systemDirectories: [])
            let symbolicator = Symbolicator(search: search)
            let modules = [LoadedModule(path: workshop.path("program"), buildID: id, loadBase: 0)]
            let places = [ModulePlace(module: 0, offset: place, isReturnAddress: false)]
            var limit = rlimit(rlim_cur: 256, rlim_max: 256)
            try #require(unsafe setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0)
            var hoard: [Int32] = []
            while true {
                let descriptor = unsafe open("/dev/null", O_RDONLY)
                guard descriptor >= 0 else { break }
                hoard.append(descriptor)
            }
            // For the program itself.
            close(hoard.removeLast())
            let before = symbolicator.resolve(places, in: modules, budget: .tool)
            for descriptor in hoard { close(descriptor) }
            #expect(before.problems.contains { $0.code == .outOfDescriptors })
            let after = symbolicator.resolve(places, in: modules, budget: .tool)
            #expect(after.frames[0].callNames == SymbolFileTests.chain)
        }
    }

    @Test("a function without a size ends with its section, so that a linkage table does not get its name")
    func linkageTable() throws {
        let workshop = try Workshop()
        try workshop.makeProgram()
        let file = try ELFFile(path: workshop.path("program"), Allowance(.tool))
        let (first, table) = (try #require(file.section(".init")), try #require(file.section(".plt")))
        try #require(first.address < table.address)
        let result = try workshop.resolve("program", [UInt(first.address), UInt(table.address) + 4])
        #expect(result.frames.map(\.symbol) == ["_init", nil])
    }

    @Test("a function without a size ends where the next one starts, even if that one was stripped of its symbol")
    func withoutSize() throws {
        let workshop = try Workshop()
        let source = """
            .text
            .globl bare
            .type bare, %function
            bare: nop
            ret
            .balign 16
            .type hidden, %function
            hidden: .cfi_startproc
            nop
            ret
            .cfi_endproc
            .size hidden, .-hidden
            .section .note.GNU-stack, "", %progbits

            """
        try workshop.write(source, to: "library.s")
        let flags = ["-shared", "-nostdlib", "-Wl,--build-id=sha1,--eh-frame-hdr"]
        try workshop.run("gcc", flags + ["-o", "library.so", "library.s"])
        let hidden = try #require(try workshop.functions(of: "library.so").first { $0.name == "hidden" }).start
        #expect(try workshop.resolve("library.so", [hidden + 1]).frames[0].symbol == "hidden")
        try workshop.run("strip", ["library.so"])
        let result = try workshop.resolve("library.so", [hidden - 15, hidden + 1])
        #expect(result.frames.map(\.symbol) == ["bare", nil])
        #expect(result.frames[1].functionOffset == 1, "by the unwind table")
    }

    @Test("they are found by build id below a given directory, and where a distribution keeps them")
    func byBuildID() throws {
        let (workshop, place, id) = try stripped()
        let folder = workshop.path("symbols/.build-id/\(id.prefix(2))")
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        try FileManager.default.moveItem(
            atPath: workshop.path("program.debug"),
            toPath: "\(folder)/\(id.dropFirst(2)).debug"
        )
        let root = workshop.path("symbols")
        for search in [
            SymbolSearch(directories: [root], systemDirectories: []), SymbolSearch(systemDirectories: [root]),
        ] {
            let frame = try workshop.resolve("program", [place], search: search).frames[0]
            #expect(frame.callNames == Self.chain)
            #expect(frame.callLines == [2, 5, 8])
        }
    }

    @Test("they are found by the module's name, or given as a file, even if the module itself is missing")
    func byName() throws {
        let (workshop, place, id) = try stripped()
        try FileManager.default.removeItem(atPath: workshop.path("program"))
        for directory in [workshop.folder, workshop.path("program.debug")] {
            let search = SymbolSearch(directories: [directory], systemDirectories: [])
            let result = try workshop.resolve("program", [place], buildID: id, path: "/srv/program", search: search)
            #expect(result.frames[0].callNames == Self.chain)
        }
    }

    @Test("they are found by build id in a directory or below, whatever their names")
    func byAnyName() throws {
        let (workshop, place, id) = try stripped()
        try FileManager.default.removeItem(atPath: workshop.path("program"))
        try FileManager.default.createDirectory(
            atPath: workshop.path("release/42"),
            withIntermediateDirectories: true
        )
        try workshop.run("mv", ["program.debug", "release/42/whatever.bin"])
        try workshop.write("no ELF file", to: "release/42/another")
        for directory in ["", "release", "release/42"] {
            let search = SymbolSearch(directories: [workshop.path(directory)], systemDirectories: [])
            let result = try workshop.resolve("program", [place], buildID: id, path: "/srv/program", search: search)
            #expect(result.frames[0].callNames == Self.chain)
            #expect(result.problems.isEmpty, "\(result.problems)")
        }
    }

    @Test("if one is not found in a directory that was searched in part, that is reported")
    func tooDeep() throws {
        let (workshop, place, id) = try stripped()
        try FileManager.default.removeItem(atPath: workshop.path("program"))
        let (reached, deep) = ("symbols/1/2/3/4/5/6", "symbols/1/2/3/4/5/6/7")
        try FileManager.default.createDirectory(atPath: workshop.path(deep), withIntermediateDirectories: true)
        try workshop.run("mv", ["program.debug", "\(deep)/whatever.bin"])
        let search = { SymbolSearch(directories: [workshop.path("symbols")], systemDirectories: []) }
        let missed = try workshop.resolve("program", [place], buildID: id, path: "/srv/program", search: search())
        #expect(missed.frames[0].symbol == nil)
        #expect(
            missed.problems.contains(SymbolProblem(.tooManyFiles, path: workshop.path("symbols"))),
            "\(missed.problems)"
        )
        try workshop.run("mv", ["\(deep)/whatever.bin", reached])
        let found = try workshop.resolve("program", [place], buildID: id, path: "/srv/program", search: search())
        #expect(found.frames[0].callNames == Self.chain)
        #expect(found.problems.isEmpty, "\(found.problems)")
    }

    @Test("one given for a module does not affect another; a file of another build is reported")
    func givenForAnother() throws {
        let (workshop, place, id) = try stripped()
        try workshop.makeProgram("other", flags: ["-g", "-O1"])
        let files = [workshop.path("program.debug"), workshop.path("other")]
        let symbolicator = Symbolicator(search: .init(directories: files, systemDirectories: []))
        let modules = [
            LoadedModule(path: "/srv/program", buildID: id, loadBase: 0),
            LoadedModule(path: "/srv/library", buildID: "0123456789abcdef", loadBase: 0),
        ]
        let places = [0, 1].map { ModulePlace(module: $0, offset: place, isReturnAddress: false) }
        let result = symbolicator.resolve(places, in: modules, budget: .tool)
        #expect(result.frames[0].callNames == Self.chain && result.frames[1].symbol == nil)
        #expect(result.problems == [SymbolProblem(.missingFile, path: "/srv/library")])
        #expect(result.modules.map(\.lacksNames) == [false, true])
        #expect(symbolicator.unusedFiles() == [SymbolProblem(.otherBuild, path: workshop.path("other"))])
    }

    @Test(
        "they are found by .gnu_debuglink: beside the module, in .debug, and below the system's directory",
        arguments: 0..<3
    )
    func byLink(place folder: Int) throws {
        let (workshop, place, _) = try stripped()
        try workshop.run("objcopy", ["--add-gnu-debuglink=program.debug", "program"])
        let target = ["", ".debug/", "system" + workshop.folder + "/"][folder]
        try FileManager.default.createDirectory(atPath: workshop.path(target), withIntermediateDirectories: true)
        try workshop.run("mv", ["program.debug", target + "moved"])
        try workshop.run("mv", [target + "moved", target + "program.debug"])
        let search = SymbolSearch(systemDirectories: [workshop.path("system")])
        #expect(try workshop.resolve("program", [place], search: search).frames[0].callNames == Self.chain)
    }

    @Test("a file named by .gnu_debuglink with another checksum is refused")
    func checksum() throws {
        let (workshop, place, _) = try stripped()
        try workshop.run("objcopy", ["--add-gnu-debuglink=program.debug", "program"])
        let file = try FileHandle(forWritingTo: URL(filePath: workshop.path("program.debug")))
        try file.seekToEnd()
        try file.write(contentsOf: Data([1]))
        try file.close()
        let result = try workshop.resolve("program", [place])
        #expect(result.frames[0].symbol == nil)
        #expect(result.problems.map(\.code) == [.checksum, .noLines])
    }

    @Test("a module of another build is refused, and that is reported once")
    func otherBuild() throws {
        let (workshop, place, id) = try stripped()
        try workshop.makeProgram("other", flags: ["-g", "-O1"])
        try workshop.run("mv", ["other", "program.debug"])
        try workshop.run("mv", ["program.debug", "program"])
        let search = SymbolSearch(directories: [workshop.path("program")], systemDirectories: [])
        let result = try workshop.resolve("program", [place, place + 1], buildID: id, search: search)
        #expect(result.frames.allSatisfy { $0.symbol == nil && $0.location == nil })
        #expect(result.problems == [SymbolProblem(.otherBuild, path: workshop.path("program"))])
    }

    @Test("they need a build id: without one nothing ties them to the code")
    func noBuildID() {
        let result = Symbolicator().resolve(
            [ModulePlace(module: 0, offset: 1, isReturnAddress: false)],
            in: [LoadedModule(path: "/usr/bin/env", buildID: nil, loadBase: 0)],
            budget: .tool
        )
        #expect(result.problems.map(\.code) == [.noBuildID])
    }

    @Test("over the budget module and offset remain, and a later call may find more")
    func budget() throws {
        let (workshop, place, id) = try stripped()
        let search = SymbolSearch(directories: [workshop.folder], systemDirectories: [])
        let symbolicator = Symbolicator(search: search)
        let module = LoadedModule(path: workshop.path("program"), buildID: id, loadBase: 0)
        let places = [ModulePlace(module: 0, offset: place, isReturnAddress: false)]
        let poor = SymbolicationBudget(time: .seconds(60), memory: 1000, inflates: true)
        let first = symbolicator.resolve(places, in: [module], budget: poor)
        #expect(first.frames[0].symbol == nil && first.frames[0].moduleOffset == place)
        #expect(first.problems.map(\.code) == [.outOfMemory])
        let late = SymbolicationBudget(time: .zero, memory: 1 << 30, inflates: true)
        #expect(symbolicator.resolve(places, in: [module], budget: late).problems.map(\.code) == [.outOfTime])
        #expect(symbolicator.resolve(places, in: [module], budget: .tool).frames[0].callNames == Self.chain)
    }

    @Test("over the budget the module's own symbols remain, and a later call may find more")
    func ownNames() throws {
        let (workshop, place, id) = try stripped(flags: ["-g", "-O2", "-rdynamic"])
        // The table of its loaded pages takes 2 MiB, one byte per page.
        try workshop.run("truncate", ["-s", "8G", "program.debug"])
        let search = SymbolSearch(directories: [workshop.folder], systemDirectories: [])
        let symbolicator = Symbolicator(search: search)
        let module = LoadedModule(path: workshop.path("program"), buildID: id, loadBase: 0)
        let places = [ModulePlace(module: 0, offset: place, isReturnAddress: false)]
        let poor = SymbolicationBudget(time: .seconds(60), memory: 1 << 20, inflates: true)
        for _ in 0..<2 {
            let first = symbolicator.resolve(places, in: [module], budget: poor)
            #expect(first.frames[0].callNames == ["outer"])
            #expect(first.problems == [SymbolProblem(.outOfMemory, path: module.path)])
        }
        let second = symbolicator.resolve(places, in: [module], budget: .tool)
        #expect(second.frames[0].callNames == Self.chain && second.problems.isEmpty)
    }

    @Test("a tool inflates compressed ones; a server has at least the names, and says why")
    func compressed() throws {
        let (workshop, place, id) = try stripped(flags: ["-g", "-O2", "-gz"])
        let search = SymbolSearch(directories: [workshop.folder], systemDirectories: [])
        let symbolicator = Symbolicator(search: search)
        let module = LoadedModule(path: workshop.path("program"), buildID: id, loadBase: 0)
        let places = [ModulePlace(module: 0, offset: place, isReturnAddress: false)]
        for _ in 0..<2 {
            let server = symbolicator.resolve(places, in: [module], budget: .server)
            #expect(server.frames[0].callNames == ["outer"] && server.problems.map(\.code) == [.compressed])
        }
        #expect(symbolicator.resolve(places, in: [module], budget: .tool).frames[0].callNames == Self.chain)
    }

    @Test(
        "for this process: lines of the test itself, within a server's budget",
        .repeatedWhenLate(by: .milliseconds(50))
    )
    func own() throws {
        var addresses = [UInt](repeating: 0, count: 64)
        let (count, line) = (unsafe backtrace(&addresses, 64), #line)
        let wanted = addresses.prefix(Int(count)).map { ResolvableAddress(address: $0, isReturnAddress: true) }
        let result = Symbolicator(cacheLimit: 1 << 30).resolve(wanted)
        let own = result.frames.first { $0.location?.file.hasSuffix("/SymbolFileTests.swift") == true }
        #expect(own?.location?.line == line)
    }
}

/// execinfo.h, backtrace(3).
@_silgen_name("backtrace")
private func backtrace(_ addresses: UnsafeMutablePointer<UInt>, _ count: CInt) -> CInt
