import Foundation
import TestSupport
import Testing

@testable import Symbolication

/// Any content in place of a symbol file must give a reason, and neither a crash nor a wait.
@Suite("Hostile symbol files", .timeLimit(.minutes(10)))
struct HostileFileTests {
    private func problems(_ workshop: Workshop, _ id: String) throws -> [SymbolProblem.Code] {
        let search = SymbolSearch(directories: [workshop.path("file")], systemDirectories: [])
        let result = try workshop.resolve("file", [0x1139], buildID: id, path: "/nowhere/program", search: search)
        #expect(result.frames[0].symbol == nil && result.frames[0].location == nil)
        return result.problems.map(\.code)
    }

    private static let id = String(repeating: "ab", count: 20)

    @Test("A build id that is no hexadecimal number of a fitting length is not searched: it would become part of paths")
    func buildIDs() {
        func isSearchable(_ id: String) -> Bool { SoughtModule(path: "/p", buildID: id, candidates: []).isSearchable }
        #expect(isSearchable(Self.id) && isSearchable("0123abcd"))
        let others = [
            "../../../etc/passwd", "abcd/../abcd", "0123ABCD", "0123 bcd", "ab\u{0}cd0123", "012", "0123abcdé",
        ]
        for id in others { #expect(!isSearchable(id), "\(id)") }
    }

    @Test("A build id is found after a note whose name has another length than a multiple of four")
    func paddedName() {
        func word(_ number: Int) -> [UInt8] { [UInt8(number), 0, 0, 0] }
        func padded(_ bytes: [UInt8]) -> [UInt8] { bytes + [UInt8](repeating: 0, count: -bytes.count & 3) }
        func note(_ name: String, _ value: [UInt8]) -> [UInt8] {
            word(name.utf8.count) + word(value.count) + word(3) + padded(Array(name.utf8)) + padded(value)
        }
        let (other, own) = (note("stap\0", [1]), note("GNU\0", [0xab, 0x0c]))
        #expect(buildID(inNotes: other + own) == "ab0c" && buildID(inNotes: own + other) == "ab0c")
    }

    @Test("A pipe, a directory, a device, nothing")
    func noFile() throws {
        let workshop = try Workshop()
        #expect(try problems(workshop, Self.id) == [.missingFile])
        try workshop.run("mkfifo", ["file"])
        #expect(try problems(workshop, Self.id) == [.missingFile], "it is passed over like a directory")
        #expect(throws: SymbolProblem(.notAFile, path: workshop.path("file"))) {
            try FileImage(path: workshop.path("file"), Allowance(.tool))
        }
        #expect(throws: SymbolProblem(.notAFile, path: "/dev/zero")) {
            try FileImage(path: "/dev/zero", Allowance(.tool))
        }
        #expect(throws: SymbolProblem(.notAFile, path: "/tmp")) { try FileImage(path: "/tmp", Allowance(.tool)) }
    }

    @Test("Empty, text, and sparse as a thousand gigabytes")
    func notELF() throws {
        let workshop = try Workshop()
        for content in ["", "#!/bin/sh\n", "\u{7f}ELF"] {
            try workshop.write(content, to: "file")
            #expect(try problems(workshop, Self.id) == [.notELF])
        }
        try workshop.run("truncate", ["-s", "1T", "file"])
        #expect(try problems(workshop, Self.id) == [.notELF])
        try workshop.run("truncate", ["-s", "8G", "file"])
        #expect(try problems(workshop, Self.id) == [.notELF])
        // Refused by its length alone: no memory is reserved for it.
        try workshop.run("truncate", ["-s", "\(FileImage.sizeLimit + 1)", "file"])
        #expect(throws: SymbolProblem(.notELF, path: workshop.path("file"))) {
            try FileImage(path: workshop.path("file"), Allowance(.tool))
        }
    }

    @Test("Too large for the available memory: over the budget, which includes the map of loaded pages")
    func noMemory() throws {
        let workshop = try Workshop()
        try workshop.run("truncate", ["-s", "8G", "file"])
        let poor = SymbolicationBudget(time: .seconds(60), memory: 1 << 20, inflates: true)
        #expect(throws: SymbolProblem(.outOfMemory)) { try FileImage(path: workshop.path("file"), Allowance(poor)) }
        let output = try workshop.run(
            "prlimit",
            ["--as=\(6 << 30)", Workshop.benchmark, "\(workshop.path("file")),\(Self.id),1139"]
        )
        #expect(output.contains("its symbols need more memory than permitted"), "\(output)")
    }

    @Test(
        "Line tables with any claimed length leave functions and calls",
        arguments: [0x7fff_ffff, Int.max >> 1]
    )
    func lineTableLength(claimed: Int) throws {
        let workshop = try Workshop()
        try workshop.makeProgram()
        let place = try workshop.innermostPlace(of: "program")
        let file = try ELFFile(path: workshop.path("program"), Allowance(.tool))
        let start = try #require(file.section(".debug_line")).range.lowerBound
        var bytes = try Data(contentsOf: URL(filePath: workshop.path("program")))
        // DWARF 5, 7.4: a 64-bit length begins with a mark.
        let mark = claimed > Int(UInt32.max) ? [UInt8](repeating: 0xff, count: 4) : []
        let length = mark + (0..<(mark.isEmpty ? 4 : 8)).map { UInt8(truncatingIfNeeded: claimed >> ($0 * 8)) }
        bytes.replaceSubrange(start..<start + length.count, with: length)
        try bytes.write(to: URL(filePath: workshop.path("mutant")))
        let result = try workshop.resolve("mutant", [place], buildID: file.buildID, budget: .server)
        #expect(result.frames[0].callNames == ["innermost", "middle", "outer"])
        #expect(!result.problems.contains { $0.isOfBudget })
    }

    @Test("A symbol table of any claimed length reserves no more memory than the budget permits")
    func symbolTableLength() async {
        await #expect(processExitsWith: .success) {
            let workshop = try Workshop()
            try workshop.makeProgram()
            let path = workshop.path("program")
            let symbolTable: UInt32 = 2  // SHT_SYMTAB
            let sections = try ELFFile(path: path, Allowance(.tool)).sections
            let index = try #require(sections.firstIndex { $0.type == symbolTable })
            var bytes = try Data(contentsOf: URL(filePath: path))
            // elf(5): where the section headers are; 64 bytes each, with the size at 32.
            let headers = (0..<8).reduce(0) { $0 | Int(bytes[40 + $1]) << (8 * $1) }
            let (place, claimed) = (headers + 64 * index + 32, 15 << 30)
            bytes.replaceSubrange(
                place..<place + 8,
                with: (0..<8).map { UInt8(truncatingIfNeeded: claimed >> (8 * $0)) }
            )
            try bytes.write(to: URL(filePath: path))
            try workshop.run("truncate", ["-s", "15G", "program"])
            // Enough for the file's image, and not for ten more.
            let pages = try String(contentsOfFile: "/proc/self/statm", encoding: .utf8).split(separator: " ")[0]
            let room = rlim_t(pages)! * 4096 + 16 << 30
            var limit = rlimit(rlim_cur: room, rlim_max: room)
            try #require(unsafe setrlimit(__rlimit_resource_t(RLIMIT_AS.rawValue), &limit) == 0)
            let file = try ELFFile(path: path, Allowance(.server))
            let brief = SymbolicationBudget(time: .milliseconds(20), memory: 1 << 20, inflates: false)
            #expect(throws: SymbolProblem(.outOfTime)) { try SymbolIndex(file, Allowance(brief)) }
        }
    }

    /// A file whose sections all have the same 64 KiB as name and as content.
    ///
    /// - Parameter claimed: The number that the file claims to have, if it is not `count`.
    private static func file(
        withSections count: Int,
        claiming claimed: Int? = nil,
        type: UInt8 = 1,
        filledWith byte: UInt8
    ) throws -> FileImage {
        let content = 65_536
        func little(_ value: Int, _ size: Int) -> [UInt8] {
            (0..<size).map { UInt8(truncatingIfNeeded: value >> (8 * $0)) }
        }
        // elf(5): the header of the file and those of sections have 64 bytes.
        var bytes: [UInt8] = [0x7f, 0x45, 0x4c, 0x46, 2, 1, 1] + [UInt8](repeating: 0, count: 9)
        bytes += little(3, 2) + little(62, 2) + little(1, 4) + little(0, 16) + little(64 + content, 8) + little(0, 10)
        bytes += little(64, 2) + little(claimed == nil ? count : 0, 2) + little(0, 2)
        try #require(bytes.count == 64)
        bytes += [UInt8](repeating: byte, count: content)
        // The first section's size is the number of sections if the header has none.
        let size = claimed ?? content
        let section = little(0, 4) + [type] + little(0, 19) + little(64, 8) + little(size, 8) + little(0, 24)
        try #require(section.count == 64)
        for _ in 0..<count { bytes += section }
        return try #require(FileImage(bytes: bytes, name: "file"))
    }

    @Test("The names of sections are part of the budget, and none is longer than needed")
    func sectionNames() throws {
        let image = try Self.file(withSections: 20_000, type: 1, filledWith: 0x61)
        let poor = SymbolicationBudget(time: .seconds(60), memory: 1 << 20, inflates: true)
        #expect(throws: SymbolProblem(.outOfMemory)) { try ELFFile(image, Allowance(poor)) }
        let sections = try ELFFile(image, Allowance(.tool)).sections
        #expect(sections.count == 20_000 && sections.allSatisfy { (1..<100).contains($0.name.utf8.count) })
    }

    @Test("A file that claims millions of sections is damaged")
    func sectionNumber() throws {
        let image = try Self.file(withSections: 2, claiming: 2, filledWith: 0x61)
        #expect(try ELFFile(image, Allowance(.tool)).sections.count == 2)
        for claimed in [1 << 20 | 1, 250_000_000, Int.max] {
            let image = try Self.file(withSections: 2, claiming: claimed, filledWith: 0x61)
            #expect(throws: SymbolProblem(.notELF, path: "file")) { try ELFFile(image, Allowance(.tool)) }
        }
    }

    @Test("The search for a build id in many notes without one ends when the time is over")
    func notes() throws {
        // Fewer than those between two looks at the clock, and all of it is in memory.
        let image = try Self.file(withSections: 100, type: 7, filledWith: 0)
        let brief = SymbolicationBudget(time: .zero, memory: 1 << 30, inflates: true)
        #expect(throws: SymbolProblem(.outOfTime)) { try ELFFile(image, Allowance(brief)) }
        #expect(try ELFFile(image, Allowance(.tool)).buildID == nil)
    }

    @Test("Sections that claim the largest possible size when inflated exceed the budget")
    func inflatedSizes() throws {
        let workshop = try Workshop()
        try workshop.makeProgram(flags: ["-g", "-O2", "-gz=zlib"])
        let file = try ELFFile(path: workshop.path("program"), Allowance(.tool))
        let compressed = file.sections.filter { $0.name.hasPrefix(".debug") && $0.isCompressed }
        try #require(compressed.count > 1)
        var bytes = try Data(contentsOf: URL(filePath: workshop.path("program")))
        for section in compressed {
            // elf(5): the size is stored after the type and four unused bytes.
            let place = section.range.lowerBound + 8
            bytes.replaceSubrange(place..<place + 8, with: [UInt8](repeating: 0xff, count: 7) + [0x7f])
        }
        try bytes.write(to: URL(filePath: workshop.path("mutant")))
        let place = try workshop.innermostPlace(of: "program")
        let result = try workshop.resolve("mutant", [place], buildID: file.buildID, budget: .tool)
        #expect(result.frames.count == 1)
        #expect(result.problems.contains { $0.isOfBudget }, "\(result.problems)")
    }

    /// DWARF 4: an abbreviation for a unit with a list of ranges only; units that consist of nothing else; their list.
    private static let unitsWithOneList = """
        .section .debug_abbrev, "", @progbits
        .Labbreviation: .byte 1, 0x11, 0, 0x55, 0x17, 0, 0, 0
        .section .debug_info, "", @progbits
        .rept 5000
        .long 12
        .short 4
        .long .Labbreviation
        .byte 8, 1
        .long .Lranges
        .endr
        .section .debug_ranges, "", @progbits
        .Lranges:
        .rept 20000
        .quad main, main + 1
        .endr
        .quad 0, 0
        """

    @Test("Units that all have the same long list of ranges take no more memory than the budget permits")
    func sharedRanges() async {
        await #expect(processExitsWith: .success) {
            let workshop = try Workshop()
            try workshop.write(HostileFileTests.unitsWithOneList, to: "units.s")
            try workshop.makeProgram(flags: ["-O2", "units.s"])
            let file = try ELFFile(path: workshop.path("program"), Allowance(.tool))
            try #require(file.hasDebugInformation)
            // All of them together are 2.4 GB.
            let pages = try String(contentsOfFile: "/proc/self/statm", encoding: .utf8).split(separator: " ")[0]
            let room = rlim_t(pages)! * 4096 + (1 << 30)
            var limit = rlimit(rlim_cur: room, rlim_max: room)
            try #require(unsafe setrlimit(__rlimit_resource_t(RLIMIT_AS.rawValue), &limit) == 0)
            let budget = SymbolicationBudget(time: .seconds(60), memory: 8 << 20, inflates: true)
            #expect(throws: SymbolProblem(.outOfMemory)) { try DebugInformation(file, Allowance(budget)) }
        }
    }

    @Test("A function whose name is a letter with thousands of accents gets a short one: each look at it took seconds")
    func manyAccents() throws {
        let workshop = try Workshop()
        let name = "e" + String(repeating: "\u{301}\u{323}", count: 5000)
        try workshop.write("int accents(void) __asm__(\"\(name)\"); int accents(void) { return 1; }", to: "accents.c")
        try workshop.makeProgram(flags: ["-O2", "accents.c"])
        let start = try #require(workshop.functions(of: "program").first { $0.name.utf8.count > 1000 }?.start)
        let symbol = try #require(try workshop.resolve("program", [start]).frames[0].symbol)
        #expect(symbol.utf8.elementsEqual(name.utf8.prefix(257)))
    }

    @Test("A modification time that is too large for nanoseconds")
    func modifiedInCenturies() throws {
        let workshop = try Workshop()
        try workshop.makeProgram()
        try workshop.run("touch", ["-d", "@9300000000", "program"])
        let place = try workshop.innermostPlace(of: "program")
        let result = try workshop.resolve("program", [place], buildID: try workshop.buildID(of: "program"))
        #expect(result.frames[0].callNames == ["innermost", "middle", "outer"])
    }

    @Test("Truncated anywhere")
    func truncated() throws {
        let workshop = try Workshop()
        try workshop.makeProgram()
        let whole = try Data(contentsOf: URL(filePath: workshop.path("program")))
        let places = (0..<64).map { UInt(0x1000 + $0 * 16) }
        let id = try workshop.buildID(of: "program")
        for count in stride(from: 0, to: whole.count, by: whole.count / 60) {
            try whole.prefix(count).write(to: URL(filePath: workshop.path("cut")))
            let result = try workshop.resolve("cut", places, buildID: id)
            #expect(result.frames.count == places.count)
            #expect(!result.problems.isEmpty)
        }
    }

    @Test("Truncated or removed while it is read")
    func changedMeanwhile() throws {
        let workshop = try Workshop()
        try workshop.makeProgram()
        let allowance = Allowance(.tool)
        let image = try FileImage(path: workshop.path("program"), allowance)
        try image.load(0..<100, allowance)
        try workshop.run("truncate", ["-s", "4096", "program"])
        #expect(throws: SymbolProblem(.changed, path: image.path)) { try image.load(8192..<8200, allowance) }
        image.release()
        #expect(throws: SymbolProblem(.changed, path: image.path)) { try image.load(8192..<8200, allowance) }
        try workshop.run("rm", ["program"])
        #expect(throws: SymbolProblem(.missingFile, path: image.path)) { try image.load(8192..<8200, allowance) }
        #expect(throws: Never.self) { try image.load(0..<100, allowance) }
    }

    @Test(
        "An image gets no huge pages, which would make each page that is read cost 2 MiB",
        .enabled(if: unsafe access("/sys/kernel/mm/transparent_hugepage", F_OK) == 0)
    )
    func noHugePages() throws {
        let workshop = try Workshop()
        try workshop.makeProgram()
        let image = try FileImage(path: workshop.path("program"), Allowance(.tool))
        let place = unsafe UInt(bitPattern: image.base)
        var isItsMapping = false
        var flags: [Substring] = []
        // smaps: each mapping begins with its addresses, and ends with its flags (proc_pid_smaps(5)).
        for line in procText("/proc/self/smaps").split(separator: "\n") {
            let bounds = line.prefix { $0 != " " }.split(separator: "-").compactMap { UInt($0, radix: 16) }
            if bounds.count == 2 { isItsMapping = (bounds[0]..<bounds[1]).contains(place) }
            if isItsMapping, line.hasPrefix("VmFlags:") { flags = line.split(separator: " ") }
        }
        withExtendedLifetime(image) {}
        #expect(flags.contains("nh"), "\(flags)")
    }

    /// The build id is not changed, so that the damaged file is read and not rejected.
    @Test(
        "Random byte changes, anywhere and in the debug information",
        arguments: testsAllForms ? ["gcc", "clang"] : ["gcc"]
    )
    func mutated(compiler: String) throws {
        let workshop = try Workshop()
        try workshop.makeProgram(compiler: compiler)
        let whole = try Data(contentsOf: URL(filePath: workshop.path("program")))
        let file = try ELFFile(path: workshop.path("program"), Allowance(.tool))
        let sections = file.sections.filter { $0.name.hasPrefix(".debug") || $0.name.hasPrefix(".symtab") }.map(\.range)
        let functions = try workshop.functions(of: "program")
        let places = functions.flatMap { Array(stride(from: $0.start, to: $0.start + $0.size, by: 5)) }
        let budget = SymbolicationBudget(time: .seconds(20), memory: 1 << 28, inflates: true)
        var random = SplitMix64(seed: 0x5eed)
        for round in 0..<(Int(ProcessInfo.processInfo.environment["FUZZ_ROUNDS"] ?? "") ?? 150) {
            var bytes = whole
            for _ in 0..<Int.random(in: 1...12, using: &random) {
                let range = round % 3 == 0 ? 0..<bytes.count : sections.randomElement(using: &random) ?? 0..<bytes.count
                guard !range.isEmpty else { continue }
                bytes[Int.random(in: range, using: &random)] = .random(in: 0...255, using: &random)
            }
            try bytes.write(to: URL(filePath: workshop.path("mutant")))
            let result = try workshop.resolve("mutant", places, buildID: file.buildID, budget: budget)
            #expect(result.frames.count == places.count)
        }
    }

    @Test("A build id from a report leads to no other file")
    func hostileBuildID() throws {
        let workshop = try Workshop()
        try workshop.makeProgram()
        for id in ["../../../../etc/passwd", "zz", "", String(repeating: "a", count: 5000)] {
            let search = SymbolSearch(directories: ["/"], systemDirectories: ["/"])
            let result = try workshop.resolve("program", [0x1139], buildID: id, search: search)
            #expect(result.frames[0].symbol == nil)
            #expect(result.problems.map(\.code).first == .otherBuild)
        }
    }
}
