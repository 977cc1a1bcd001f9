import Symbolication
import Testing

@testable import StallMonitor

@Suite("Whose code a frame is")
struct OwnCodeTests {
    private static let executable = "/srv/bin/server"

    private func isOwn(
        _ swiftModule: String?,
        symbol: String? = "$s6Server3fooyyF",
        path: String = executable,
        rules: OwnCode = OwnCode()
    ) -> Bool {
        let frame = SymbolicatedFrame(
            address: 1,
            moduleIndex: 0,
            moduleOffset: 1,
            symbol: symbol,
            swiftModule: swiftModule
        )
        return rules.isOwn(
            frame,
            module: LoadedModule(path: path, buildID: nil, loadBase: 0),
            executable: Self.executable
        )
    }

    @Test("Without rules, the executable's own Swift modules are own, known libraries are not")
    func defaults() {
        #expect(isOwn("Server"))
        for library in ["Swift", "FoundationEssentials", "NIOPosix", "Hummingbird", "_Concurrency", "RunLoopKit"] {
            #expect(!isOwn(library), "\(library)")
        }
    }

    @Test("A module beside the executable is own, one of the system is not")
    func path() {
        #expect(isOwn("Plugin", path: "/srv/bin/libPlugin.so"))
        #expect(!isOwn("Plugin", path: "/usr/lib/libPlugin.so"))
    }

    @Test("What is no Swift of somebody's is nobody's own", arguments: ["parse_header", "main", "$sIeg_SgTR", nil])
    func otherLanguages(_ symbol: String?) {
        #expect(!isOwn(nil, symbol: symbol))
    }

    @Test("Own modules, if named, are the only ones")
    func ownModules() {
        let rules = OwnCode(modules: ["Domain"])
        #expect(isOwn("Domain", rules: rules) && !isOwn("Server", rules: rules))
    }

    @Test("Further libraries can be named, with * for the rest of a name")
    func libraries() {
        let rules = OwnCode(libraries: ["Vendored", "Acme*"])
        #expect(!isOwn("Vendored", rules: rules) && !isOwn("AcmeCore", rules: rules) && isOwn("Server", rules: rules))
    }
}
