import Symbolication
import Testing

@testable import StallMonitor

@Suite("The owner of a frame's code")
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
        for library in ["Swift", "FoundationEssentials", "NIOPosix", "Hummingbird", "_Concurrency"] {
            #expect(!isOwn(library), "\(library)")
        }
        for library in ["RunLoopKit", "RunLoopPorts", "StallMonitor", "StallMonitorLoops", "StallMonitorService"] {
            #expect(!isOwn(library), "\(library)")
        }
    }

    @Test("The executable's own module is own, also if its name begins like that of a library")
    func mainModule() {
        let executable = "/srv/bin/Vapor-Shop"
        func isOwn(_ swiftModule: String, _ file: String? = nil, rules: OwnCode = OwnCode()) -> Bool {
            var frame = SymbolicatedFrame(
                address: 1,
                moduleIndex: 0,
                moduleOffset: 1,
                symbol: "$s",
                swiftModule: swiftModule
            )
            frame.location = file.map { SourcePosition(file: $0, line: 1) }
            let module = LoadedModule(path: executable, buildID: nil, loadBase: 0)
            return rules.isOwn(frame, module: module, executable: executable)
        }
        #expect(isOwn("Vapor_Shop") && !isOwn("Vapor") && !isOwn("VaporShop"))
        #expect(!isOwn("Vapor_Shop", "/b/.build/checkouts/shop/Sources/Vapor-Shop/main.swift"))
        #expect(!isOwn("Vapor_Shop", rules: OwnCode(libraries: ["Vapor*"])))
    }

    @Test("A module beside the executable is own, a system module is not")
    func path() {
        #expect(isOwn("Plugin", path: "/srv/bin/libPlugin.so"))
        #expect(!isOwn("Plugin", path: "/usr/lib/libPlugin.so"))
    }

    @Test("A function outside Swift modules is not own", arguments: ["parse_header", "main", "$sIeg_SgTR", nil])
    func otherLanguages(_ symbol: String?) {
        #expect(!isOwn(nil, symbol: symbol))
    }

    private func isOwnC(
        _ symbol: String,
        _ file: String?,
        path: String = executable,
        rules: OwnCode = OwnCode()
    ) -> Bool {
        var frame = SymbolicatedFrame(address: 1, moduleIndex: 0, moduleOffset: 1, symbol: symbol, language: .c)
        frame.location = file.map { SourcePosition(file: $0, line: 1) }
        let module = LoadedModule(path: path, buildID: nil, loadBase: 0)
        return rules.isOwn(frame, module: module, executable: Self.executable)
    }

    @Test("C code of the server's package is own by its source file; that of a dependency or the system is not")
    func ownC() {
        #expect(isOwnC("shop_parse", "/src/shop/Sources/CShop/parse.c"))
        #expect(!isOwnC("shop_parse", "/src/shop/Sources/CShop/parse.c", path: "/usr/lib/libshop.so"))
        #expect(!isOwnC("run_loop_port_wait", "/src/stall-monitor/Sources/CRunLoopPorts/messages.c"))
        #expect(!isOwnC("SSL_read", "/src/shop/.build/checkouts/swift-nio-ssl/Sources/CNIOBoringSSL/ssl.cc"))
        #expect(!isOwnC("_ZNSt6vector", "/usr/include/c++/12/bits/vector.tcc"))
        #expect(!isOwnC("read", "../sysdeps/unix/sysv/linux/read.c") && !isOwnC("shop_parse", nil))
    }

    @Test("C code is own by a rule for symbol, source or binary, also without debug information")
    func ownCByRule() {
        #expect(isOwnC("shop_parse", nil, rules: OwnCode(symbols: ["shop_*"])))
        #expect(!isOwnC("zlib_parse", nil, rules: OwnCode(symbols: ["shop_*"])))
        let vendored = "/src/shop/.build/checkouts/ours/Sources/COurs/a.c"
        #expect(isOwnC("a", vendored, rules: OwnCode(sources: ["*/Sources/COurs/*"])))
        let rules = OwnCode(binaries: ["libshop*"])
        #expect(isOwnC("a", "/src/a.c", path: "/opt/lib/libshop.so.1", rules: rules))
        #expect(!isOwnC("a", "/src/a.c", path: "/opt/lib/libother.so", rules: rules))
    }

    private func isOwnOfAnyMake(_ symbol: String?, _ file: String? = nil, path: String? = executable) -> Bool {
        var frame = SymbolicatedFrame(address: 1, moduleIndex: path.map { _ in 0 }, moduleOffset: 1, symbol: symbol)
        frame.location = file.map { SourcePosition(file: $0, line: 1) }
        let module = path.map { LoadedModule(path: $0, buildID: nil, loadBase: 0) }
        return OwnCode().isOwnOfAnyMake(frame, module: module, executable: Self.executable)
    }

    @Test("Of a watched process's code, only the system's, the compilers' and the package managers' is not own")
    func otherMakes() {
        #expect(isOwnOfAnyMake("ngx_epoll_process_events", nil) && isOwnOfAnyMake(nil))
        #expect(isOwnOfAnyMake("load", "src/event/load.c") && isOwnOfAnyMake("load", "/usr/src/app/load.c"))
        #expect(isOwnOfAnyMake("load", "/home/me/registry/src/load.c"))
        #expect(isOwnOfAnyMake("load", path: "/opt/libshop.so") && !isOwnOfAnyMake("read", path: "/lib/libc.so.6"))
        #expect(!isOwnOfAnyMake("deflate", path: "/usr/lib/libz.so") && !isOwnOfAnyMake(nil, path: "/usr/lib/libz.so"))
        #expect(!isOwnOfAnyMake("__gthread_mutex_lock", "/usr/include/c++/12/bits/gthr-default.h"))
        #expect(!isOwnOfAnyMake("_ZNSt6vectorIiSaIiEE9push_backERKi") && isOwnOfAnyMake("_ZN4shop4loadEv"))
        #expect(!isOwnOfAnyMake("_RNvNtCsjrHSEGnQ3l9_3std2rt19lang_start_internal"))
        #expect(!isOwnOfAnyMake("_ZN44_$LT$core..X$u20$as$u20$core..fmt..Debug$GT$3fmt17h892149de59c8bd89E"))
        #expect(!isOwnOfAnyMake("_RNvXCs1_3stdQNtNtB2_2fs4FileNtNtB2_2io5Write9write_fmt"))
        #expect(!isOwnOfAnyMake("_RNvMNtCsgEmfK2I1SDS_4core5sliceSNtCs1_4shop4Cart4sort"))
        #expect(!isOwnOfAnyMake("_ZN50_$LT$T$u20$as$u20$core..convert..Into$LT$U$GT$$GT$4into17h892149de59c8bd89E"))
        #expect(isOwnOfAnyMake("_RNvXCs1_4shopQhNtB2_5Total5total"))
        #expect(isOwnOfAnyMake("_RNvCs6xxl1lAjzDf_1a1g", "/src/a/main.rs"))
        #expect(
            !isOwnOfAnyMake("_RNvCs6xxl1lAjzDf_1a1g", "/root/.cargo/registry/src/index.crates.io-1/a-1.0/src/lib.rs")
        )
    }

    @Test(
        "Methods of Rust's own types belong to the trait's crate",
        arguments: [
            // `<&T as core::fmt::Debug>::fmt`, `<u8 as core::fmt::Display>::fmt`
            "_ZN42_$LT$$RF$T$u20$as$u20$core..fmt..Debug$GT$3fmt17ha61ee6d2db75407cE",
            "_RNvXNtNtNtCsgEmfK2I1SDS_4core3fmt3num3imphNtB6_7Display3fmt",
            // `<dyn core::any::Any + core::marker::Send as core::fmt::Debug>::fmt`
            "_RNvXs0_NtCsgEmfK2I1SDS_4core3anyDNtB5_3AnyNtNtB7_6marker4SendEL_NtNtB7_3fmt5Debug3fmt",
            // `str::trim_start_matches`, `[u8]::copy_within`
            "_RINvMNtCsgEmfK2I1SDS_4core3stre18trim_start_matchesReECsgY6Mt91CT9J_14rustc_demangle",
            "_RINvMNtCsgEmfK2I1SDS_4core5sliceSh11copy_withinINtNtNtB5_3ops5range14RangeInclusivejEECsfEOYDRpO4Ta_11miniz_oxide",
        ]
    )
    func rustTypes(symbol: String) {
        #expect(!isOwnOfAnyMake(symbol))
        // The same with traits and types of the program: `<u64 as shop::Total>::total`, `<&shop::Cart as core::fmt::Debug>::fmt`
        #expect(isOwnOfAnyMake("_ZN35_$LT$u64$u20$as$u20$shop..Total$GT$5total17h892149de59c8bd89E"))
        #expect(isOwnOfAnyMake("_ZN51_$LT$$RF$shop..Cart$u20$as$u20$core..fmt..Debug$GT$3fmt17h892149de59c8bd89E"))
    }

    @Test("What Python's interpreter only makes a call with is not own: it changes while the same call is made again")
    func callsOfPython() {
        let interpreters = ["/opt/python/bin/python3.11", "/opt/python/lib/libpython3.11.so.1.0"]
        for path in interpreters {
            for symbol in ["cfunction_vectorcall_O", "PyObject_Vectorcall", "_PyObject_VectorcallTstate"] {
                #expect(!isOwnOfAnyMake(symbol, path: path), "\(symbol)")
            }
            for symbol in ["pysleep", "time_sleep", "_PyEval_EvalFrameDefault", "task_step"] {
                #expect(isOwnOfAnyMake(symbol, path: path), "\(symbol)")
            }
        }
        #expect(isOwnOfAnyMake("call_function"), "another program's")
    }

    @Test("A script's function is own unless it is the interpreter's or a package's")
    func scripts() {
        func isOwn(_ symbol: String?) -> Bool { isOwnOfAnyMake(symbol, path: nil) }
        #expect(isOwn("JS:serve /usr/src/app/a.js:1:2") && isOwn("py::load:/srv/app.py") && isOwn("com.shop.Cart.add"))
        #expect(!isOwn("JS:readSync node:fs:734:18") && !isOwn("JS:next /srv/node_modules/express/lib/router.js:1:2"))
        #expect(!isOwn("py::loads:/usr/lib/python3.12/json/__init__.py") && !isOwn("py::run:/v/site-packages/a.py"))
        #expect(!isOwn("py::loads:/opt/conda/lib/python3.12/json/__init__.py"))
        #expect(!isOwn("Builtin:JsonParse") && !isOwn("java.lang.Thread.run") && !isOwn(nil))
        #expect(!isOwn("RegExp:a b(c)") && !isOwn("int java.lang.String.hashCode()"))
        #expect(isOwn("java.lang.String com.shop.Cart.name(java.util.List)"))
        #expect(!isOwn("void [System.Private.CoreLib] System.Threading.Thread::Sleep(int32)"))
        #expect(isOwn("class [System.Runtime]System.String [shop] Cart::Name(class System.Object)"))
    }

    @Test("A Swift module from a package checkout is a library, whatever its name")
    func checkout() {
        var frame = SymbolicatedFrame(address: 1, moduleIndex: 0, moduleOffset: 1, symbol: "$s", swiftModule: "Shoplib")
        let module = LoadedModule(path: Self.executable, buildID: nil, loadBase: 0)
        frame.location = SourcePosition(file: "/b/.build/checkouts/shoplib/Sources/Shoplib/A.swift", line: 1)
        #expect(!OwnCode().isOwn(frame, module: module, executable: Self.executable))
        #expect(OwnCode(modules: ["Shoplib"]).isOwn(frame, module: module, executable: Self.executable))
    }

    @Test(
        "A project that is kept in ~/checkouts is no package checkout; its dependencies are",
        arguments: ["/home/ada/", "/Users/ada/", "/root/"]
    )
    func projectInCheckouts(_ home: String) {
        #expect(SourceOrigin("\(home)checkouts/shop/Sources/Shop/A.swift") == .project)
        #expect(SourceOrigin("\(home)checkouts/shop/.build/checkouts/dates/Sources/Dates/A.swift") == .checkout)
        #expect(SourceOrigin("\(home).build/checkouts/dates/Sources/Dates/A.swift") == .checkout)
        #expect(SourceOrigin("\(home)node_modules/dates/a.js") == .checkout)
    }

    @Test(
        "A star matches any text",
        arguments: [
            ("*/a/*", "/x/a/b", true), ("*/a/*", "/x/ab/b", false), ("a*", "abc", true), ("a*c*e", "abcde", true),
            ("a*c*e", "abde", false), ("abc", "abc", true), ("abc", "abcd", false), ("a*a", "a", false),
            ("*", "", true),
        ]
    )
    func wildcards(_ pattern: String, _ text: String, _ matches: Bool) {
        #expect(Wildcard(pattern).matches(text) == matches)
    }

    @Test("Own modules, if named, are the only ones")
    func ownModules() {
        let rules = OwnCode(modules: ["Domain"])
        #expect(isOwn("Domain", rules: rules) && !isOwn("Server", rules: rules))
    }

    @Test("More libraries can be named, with * for any ending")
    func libraries() {
        let rules = OwnCode(libraries: ["Vendored", "Acme*"])
        #expect(!isOwn("Vendored", rules: rules) && !isOwn("AcmeCore", rules: rules) && isOwn("Server", rules: rules))
    }
}
