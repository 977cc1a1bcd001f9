import TestSupport
import Testing

@testable import StallReports

@Suite("Fingerprint")
struct FingerprintTests {
    private typealias Frame = StallReport.Frame
    private typealias Module = StallReport.Module

    private func make(_ frames: [StallReport.Frame], _ modules: [StallReport.Module] = Sample.modules) -> Fingerprint {
        .make(kind: .blocked, frames: frames, modules: modules)
    }

    @Test("it never changes: a value computed once by hand")
    func isStable() {
        // FNV-1a of "blocked\0shop $s4shop4CartV5totalSiyF\0", by an independent implementation.
        #expect(make(Sample.frames).rawValue == "v2:f84de0a6bf35c456")
    }

    @Test("it has sixteen digits, with zeros before a small number")
    func padding() {
        #expect(Fingerprint(digest: 0xabc).rawValue == "v2:0000000000000abc")
        #expect(Fingerprint(digest: .max).rawValue == "v2:ffffffffffffffff")
    }

    @Test("addresses, offsets, paths, build ids and library frames do not matter")
    func ignoresWhatVaries() {
        var frames = Sample.frames
        var random = SplitMix64.ofThisRun()
        for index in frames.indices {
            frames[index].address = Address(random.next())
            frames[index].offset = nil
            frames[index].functionOffset = 0x99
        }
        frames.remove(at: 0)
        var modules = Sample.modules
        modules[0] = Module(path: "/opt/releases/42/shop", buildID: "ffff", loadBase: 0x1000)
        #expect(make(frames, modules) == make(Sample.frames))
    }

    @Test("kind, function and module matter")
    func tellsApart() {
        let base = make(Sample.frames)
        #expect(Fingerprint.make(kind: .congested, frames: Sample.frames, modules: Sample.modules) != base)
        var frames = Sample.frames
        frames[1].symbol = "$s4shop4CartV6refundSiyF"
        #expect(make(frames) != base)
        var modules = Sample.modules
        modules[0].path = "/srv/shop/bin/backoffice"
        #expect(make(Sample.frames, modules) != base)
    }

    @Test("a library's version does not matter")
    func ignoresLibraryVersion() {
        let frame = Frame(address: 1, module: 0, symbol: "f", own: true)
        let old = [Module(path: "/usr/lib/libshop.so.6.1.0", loadBase: 0)]
        let new = [Module(path: "/opt/libshop.so.7", loadBase: 0)]
        #expect(make([frame], old) == make([frame], new))
    }

    @Test("without a symbol: the build id and the offset, in the function if its start is known; not the address")
    func fallsBackToBuildID() {
        let modules = Sample.modules
        let first = Frame(address: 0x1234, module: 0, offset: 0x34, own: true)
        let moved = Frame(address: 0x9934, module: 0, offset: 0x34, own: true)
        let other = Frame(address: 0x1234, module: 0, offset: 0x35, own: true)
        #expect(make([first], modules) == make([moved], modules))
        #expect(make([first], modules) != make([other], modules))
        let function = Frame(address: 0x1234, module: 0, offset: 0x34, functionOffset: 0x4, own: true)
        let further = Frame(address: 0x1235, module: 0, offset: 0x35, functionOffset: 0x5, own: true)
        #expect(make([function], modules) == make([further], modules))
        #expect(make([function], modules) != make([first], modules))
    }

    @Test("the depth of recursion and frames beyond four functions do not matter")
    func boundedDepth() {
        let frames = functions((0..<20).map { "f\($0)" })
        #expect(make(Array(frames[..<4])) == make(frames))
        #expect(make(Array(frames[..<3])) != make(frames))
        let recursive = Array(repeating: frames[0], count: 50) + frames[1...]
        #expect(make(recursive) == make(frames))
    }

    @Test("the innermost function of a recursion does not matter; its first caller does")
    func mutualRecursion() {
        func path(_ names: String) -> Fingerprint { make(functions(names.map(String.init))) }
        #expect(path("abababm") == path("bababm"))
        #expect(path("abababm") == path("abababababm"))
        #expect(path("abababm") != path("abababn"))
        #expect(path("abababm") != path("acacacm"))
        // A function that occurs again far out does not count as recursion: the path to it matters.
        #expect(path("wabcdew") == path("wabcdw"))
        #expect(path("wabcdew") != path("wacdbew"))
    }

    @Test("a closure counts as the function it runs in, unless a library calls it later")
    func closures() {
        func make(_ names: [String]) -> Fingerprint {
            .make(
                kind: .blocked,
                frames: names.map { Frame(address: 1, module: 0, symbol: $0, own: !$0.hasPrefix("lib")) },
                modules: Sample.modules
            ) { symbol in
                let outer = symbol.split(separator: ">").dropFirst().map(String.init)
                let enclosing = outer.indices.map { outer[$0...].joined(separator: ">") }
                return .init(symbol, enclosing: enclosing, isQualified: true, isTransparent: symbol == "lib.map")
            }
        }
        #expect(make(["c1>load", "lib.map", "load", "main"]) == make(["load", "main"]))
        #expect(make(["c1>c1>load", "lib.map", "c1>load", "lib.map", "load", "main"]) == make(["load", "main"]))
        #expect(make(["c1>load", "timed", "load", "main"]) == make(["load", "main"]))
        #expect(make(["c1>main", "lib.loop", "main"]) != make(["c2>main", "lib.loop", "main"]))
        #expect(make(["c1>main", "lib.loop", "main"]) != make(["main"]))
    }

    @Test("if no frame is own, the executable's frames count")
    func executable() {
        let calls = ["write", "flush", "save", "start"].map { name in
            Frame(address: 1, module: name == "write" ? 1 : 0, symbol: name)
        }
        func make(_ frames: [Frame]) -> Fingerprint {
            .make(kind: .blocked, frames: frames, modules: Sample.modules, executable: Sample.modules[0].path)
        }
        #expect(make(calls) == make(Array(calls.dropFirst())))
        #expect(make(calls) != make(Array(calls.dropFirst(2))))
        #expect(make([calls[0]]) != make([]))
    }

    private func functions(_ names: [String]) -> [Frame] {
        names.map { Frame(address: 1, module: 0, symbol: $0, own: true) }
    }

    @Test("no frames, or frames without a module, still give a fingerprint")
    func degenerate() {
        #expect(make([]) == make([]))
        #expect(make([]) != Fingerprint.make(kind: .repeated, frames: [], modules: []))
        #expect(make([Frame(address: 5, module: 99)]) != make([]))
        #expect(make([Frame(address: 5, module: -1)]) == make([Frame(address: 5, module: 99)]))
    }

    @Test(
        "only its own form is accepted",
        arguments: [
            "", "v1", "v1:", "v1:0123", "1:0123456789abcdef", "v1:0123456789ABCDEF", "v1:0123456789abcdeg",
            "vx:0123456789abcdef", "v1:0123456789abcdef0",
        ]
    )
    func refuses(text: String) {
        #expect(Fingerprint(rawValue: text) == nil)
        #expect(Fingerprint(rawValue: "v12:0123456789abcdef") != nil)
    }
}
