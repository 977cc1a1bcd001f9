import StallReports
import Testing

@Suite("Fingerprint")
struct FingerprintTests {
    private typealias Frame = StallReport.Frame
    private typealias Module = StallReport.Module

    private func make(_ frames: [StallReport.Frame], _ modules: [StallReport.Module] = Sample.modules) -> Fingerprint {
        .make(kind: .blocked, frames: frames, modules: modules)
    }

    @Test("is the same for all time: a value computed once by hand")
    func isStable() {
        // FNV-1a of "blocked\0shop\0$s4shop4CartV5totalSiyF\0", by an independent implementation.
        #expect(make(Sample.frames).rawValue == "v1:94695f01cbf9f4f6")
    }

    @Test("addresses, offsets, paths, build ids and library frames do not matter")
    func ignoresWhatVaries() {
        var frames = Sample.frames
        for index in frames.indices {
            frames[index].address = Address(.random(in: .min ... .max))
            frames[index].offset = nil
            frames[index].functionOffset = 0x99
        }
        frames.remove(at: 0)
        var modules = Sample.modules
        modules[0] = Module(path: "/opt/releases/42/shop", buildID: "ffff", loadBase: 0x1000)
        #expect(make(frames, modules) == make(Sample.frames))
    }

    @Test("kind, function and module do matter")
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

    @Test("without a symbol: the build id and the offset, not the address")
    func fallsBackToBuildID() {
        let modules = Sample.modules
        let first = Frame(address: 0x1234, module: 0, offset: 0x34, own: true)
        let moved = Frame(address: 0x9934, module: 0, offset: 0x34, own: true)
        let other = Frame(address: 0x1234, module: 0, offset: 0x35, own: true)
        #expect(make([first], modules) == make([moved], modules))
        #expect(make([first], modules) != make([other], modules))
    }

    @Test("depth of recursion and what lies below eight frames do not matter")
    func boundedDepth() {
        let frames = (0..<20).map { Frame(address: 1, module: 0, symbol: "f\($0)", own: true) }
        #expect(make(Array(frames[..<8])) == make(frames))
        #expect(make(Array(frames[..<7])) != make(frames))
        let recursive = Array(repeating: frames[0], count: 50) + frames[1...]
        #expect(make(recursive) == make(frames))
    }

    @Test("no frames, and frames that name no module, still make one")
    func degenerate() {
        #expect(make([]) == make([]))
        #expect(make([]) != Fingerprint.make(kind: .repeated, frames: [], modules: []))
        #expect(make([Frame(address: 5, module: 99)]) != make([]))
        #expect(make([Frame(address: 5, module: -1)]) == make([Frame(address: 5, module: 99)]))
    }

    @Test(
        "reads only its own form",
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
