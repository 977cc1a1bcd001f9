import Testing

@testable import Symbolication

@Suite("Names")
struct DemanglerTests {
    @Test(
        "names are demangled by their language",
        arguments: [
            ("$s4main3fooyyF", "main.foo() -> ()"),
            ("$s4Shop4PageV6shared_WZ", "one-time initialization function for Shop.Page.shared"),
            ("$s4Shop6prices_WZ", "one-time initialization function for Shop.prices"),
            ("$sbroken_WZ", "$sbroken_WZ"),
            ("_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back(int const&)"),
            ("_ZN4shop4load17h0123456789abcdefE", "shop::load"),
            ("_ZN4shop4load17h0123456789abcdefE.llvm.42", "shop::load"),
            ("_ZN4shop17h0123456789abcdegE", "shop::h0123456789abcdeg"),
            ("clock_nanosleep", "clock_nanosleep"),
            ("$sbroken", "$sbroken"),
            ("_Zbroken", "_Zbroken"),
            ("", ""),
        ]
    )
    func demangled(symbol: String, name: String) {
        #expect(Demangler.demangle(symbol) == name)
    }

    @Test(
        "names of Rust functions lose what a generic function is used with",
        arguments: [
            ("_RNvCs6xxl1lAjzDf_1a1g", "a::g"),
            (
                "_RNvNvNtNtNtCsjrHSEGnQ3l9_3std3sys6thread4unix5sleep9nanosleep",
                "std::sys::thread::unix::sleep::nanosleep"
            ),
            ("_RINvMs_NtCs6xxl1lAjzDf_1a4shopINtB5_4CartmE6decodeKj3_EB7_", "a::shop::Cart::decode"),
            (
                "_RNCNvXNtCs6xxl1lAjzDf_1a4shopINtB4_4CartmENtB4_5Total5total0B6_.llvm.7",
                "<a::shop::Cart as a::shop::Total>::total::{closure#0}"
            ),
            ("_RNCNCNgCs6DXkGYLi8lr_2cc5spawn00B5_", "cc::spawn::{closure#0}::{closure#0}"),
            ("_RNvNCNvC4shop4load03add", "shop::load::{closure#0}::add"),
            (
                "_RNSNvYNCINvNtCsjrHSEGnQ3l9_3std2rt10lang_startuE0INtNtNtCsgEmfK2I1SDS_4core3ops8function6FnOnceuE9call_once"
                    + "6vtableCs6xxl1lAjzDf_1a",
                "<std::rt::lang_start::{closure#0} as core::ops::function::FnOnce>::call_once::{shim:vtable#0}"
            ),
            (
                "_RNvXs0_NtNtNtCsgEmfK2I1SDS_4core3ops8function5implsRDINtB7_2FnuEp6OutputlNtNtBb_6marker4SyncEL_"
                    + "INtB7_6FnOnceuE9call_onceCsjrHSEGnQ3l9_3std",
                "<&dyn core::ops::function::Fn + core::marker::Sync as core::ops::function::FnOnce>::call_once"
            ),
            ("_RNvMCs1_1aTShAyj4_FKCuEuE3sum", "([u8], [u64], fn)::sum"),
            (
                "_ZN57_$LT$a..shop..Cart$LT$T$GT$$u20$as$u20$a..shop..Total$GT$5total28_$u7b$$u7b$closure$u7d$$u7d$"
                    + "17hc33b0892b2d2d70dE",
                "<a::shop::Cart as a::shop::Total>::total::{{closure}}"
            ),
            ("_ZN1a4shop13Cart$LT$T$GT$6decode17h1bb8751e6c39855dE", "a::shop::Cart::decode"),
            ("_ZN1a4shop13gr$uf6$$udf$e17ha184643891b3d417E", "a::shop::größe"),
        ]
    )
    func rust(symbol: String, name: String) {
        #expect(Demangler.demangle(symbol) == name && Demangler.shortName(symbol) == name)
        #expect(Demangler.language(of: symbol) == .rust)
    }

    @Test("A name of Rust may refer to a place far from its beginning")
    func distantRust() {
        let module = String(repeating: "m", count: 60)
        let symbol = "_RNvXNtC1a60\(module)NtB2_4CartNtB17_5Total5total"
        #expect(Demangler.demangle(symbol) == "<a::\(module)::Cart as a::\(module)::Cart::Total>::total")
    }

    @Test("A damaged name of Rust stays as it is, and one that refers to itself ends")
    func damagedRust() {
        let whole = "_RNCNvXNtCs6xxl1lAjzDf_1a4shopINtB4_4CartmENtB4_5Total5total0"
        for length in 2..<whole.count {
            let part = String(whole.prefix(length))
            #expect(Demangler.demangle(part) == part)
        }
        let doubling = "_RYT" + String(repeating: "TB0_B0_", count: 40)
        for symbol in [
            "_RNvB_1a", "_RNvNvB_1a1b", "_RNvCs1_99999999999999999999a", doubling,
        ] {
            #expect(Demangler.demangle(symbol) == symbol)
        }
    }

    @Test(
        "names of Swift functions give their module",
        arguments: [
            ("main.foo() -> ()", "main"),
            ("(extension in app):Swift.Array.sum() -> A", "app"),
            ("static app.Server.run() -> ()", "app"),
            ("closure #1 (Swift.Int) -> Swift.Int in app.Server.run() -> ()", "app"),
            ("closure #2 ((extension in x):y.Z) -> () in closure #1 () -> () in app.run() -> ()", "app"),
            ("helper #1 (Swift.Int) -> () in app.run() -> ()", "app"),
            ("(1) await resume partial function for app.handle() async -> ()", "app"),
            ("generic specialization <Swift.Int> of (extension in Swift):Swift.Sequence.map<A>() -> A", "Swift"),
            ("function signature specialization <Arg[0] = Dead> of app.work() -> ()", "app"),
            ("app.(secret in _0123ABCD)() -> ()", "app"),
            ("default argument 1 of app.open(path: Swift.String) -> ()", "app"),
        ]
    )
    func module(demangled: String, module: String) {
        #expect(Demangler.swiftModule(ofDemangled: demangled) == module)
    }

    @Test(
        "names of compiler-generated functions have no module",
        arguments: [
            "reabstraction thunk helper from @callee_guaranteed () -> () to @escaping () -> ()",
            "protocol witness for Swift.Sequence.next() -> A in conformance app.Items",
            "partial apply forwarder for closure #1 () -> () in app.run() -> ()",
            "dispatch thunk of app.Server.run() -> ()",
            "type metadata accessor for app.Server",
            "outlined copy of Foundation.Data",
            "__C.qos_class_t.init(rawValue: Swift.UInt32) -> __C.qos_class_t",
            "",
            "$sbroken",
        ]
    )
    func noModule(demangled: String) {
        #expect(Demangler.swiftModule(ofDemangled: demangled) == nil)
    }

    @Test(
        "names are cut to what a heading needs",
        arguments: [
            ("$s10RunLoopKit05EventaB0C3runyyF", "EventRunLoop.run()"),
            (
                "$s13stall_monitor13spinInClosure5untils6UInt64V10RunLoopKit16MonotonicInstantV_tYaFA2EXEfU_",
                "closure #1 in spinInClosure(until:)"
            ),
            ("$s10RunLoopKit05EventaB0C3runyyFTm", "merged EventRunLoop.run()"),
            ("$s4Shop4PageV6shared_WZ", "one-time initialization function for Page.shared"),
            (Self.propagated, "apply<A>(_:to:) with closure #1 in spinInClosure(until:)"),
            ("_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector::push_back"),
            ("read", "read"),
            ("$sbroken", "$sbroken"),
        ]
    )
    func short(symbol: String, name: String) {
        #expect(Demangler.shortName(symbol) == name)
    }

    @Test("a symbol longer than those of symbol files stays as it is, however deeply it is nested")
    func tooLong() {
        let count = 300_000
        let symbol =
            "$s1a1fyy" + String(repeating: "Say", count: count) + "Si" + String(repeating: "G", count: count) + "F"
        #expect(Demangler.demangle(symbol) == symbol)
        #expect(Demangler.shortName(symbol) == symbol)
    }

    @Test(
        "accents that a symbol's escapes stand for are cut: each look at a name with thousands of them took seconds",
        arguments: [
            // Punycode: "e", then 3,000 times U+0301 and U+0323.
            "$s1m006009e_xbb" + String(repeating: "a", count: 2999) + "DIBAhba" + String(repeating: "b", count: 2998)
                + "yyF",
            "_ZN4shop" + "906e" + String(repeating: "$u301$", count: 150) + "$u41$17h0123456789abcdefE",
        ]
    )
    func manyAccents(symbol: String) {
        for name in [Demangler.demangle(symbol), Demangler.shortName(symbol)] {
            #expect(name.utf8.contains { $0 >= 0x80 }, "its escapes are read")
            #expect(name.utf8.split { $0 < 0x80 }.allSatisfy { $0.count <= 256 })
        }
    }

    @Test("names with a closure inside give the module, although the runtime leaves their brackets open")
    func propagatedClosure() {
        let demangled = Demangler.demangle(Self.propagated)
        #expect(demangled.count { $0 == "[" } != demangled.count { $0 == "]" })
        #expect(Demangler.swiftModule(ofDemangled: demangled) == "stall_monitor")
    }

    /// A generic function, specialised for a type and for the closure that is passed to it.
    private static let propagated =
        "$s13stall_monitor5apply33_0F517D34901C4DE4913FF7FDDBA7A471LL_2toxxxXE_xtlFs6UInt64V_Tg5040"
        + "$s13stall_monitor13spinInClosure5untils6L45V10RunLoopKit16MonotonicInstantV_tYaFA2EXEfU_"
        + "0rS3Kit0uV0VTf1cn_n"

    @Test(
        "names of C++ functions lose their arguments",
        arguments: [
            ("std::vector<int, std::allocator<int> >::push_back(int const&)", "std::vector::push_back"),
            ("decltype(auto) shop::total<int>(int)", "shop::total"),
            ("decltype ({parm#1}+(1)) shop::price<int>(int)", "shop::price"),
            ("decltype(auto)", "decltype"),
            ("void (*shop::pick<int>(int, void (*)(int)))(int)", "shop::pick"),
            ("void (*(anonymous namespace)::pick<int>(int))(int)", "(anonymous namespace)::pick"),
            ("void (*(*shop::deep<int>(int))(int))(int)", "shop::deep"),
            ("int (&shop::row<int>(int)) [3]", "shop::row"),
            ("void (shop::Cart::*shop::step<int>(int))(int)", "shop::step"),
            ("shop::Cart::operator void (*)(int)()", "shop::Cart::operator void "),
            ("(anonymous namespace)::run()", "(anonymous namespace)::run"),
            ("ns::Call::operator()(int) const", "ns::Call::operator()"),
            ("shop::load()::{lambda(int)#1}::operator()(int) const", "lambda in shop::load"),
            ("shop::load(int)::$_0::operator()(int) const", "lambda in shop::load"),
            ("auto shop::load<int>()::{lambda(auto:1)#2}::operator()<int>(int) const", "lambda in shop::load"),
            ("std::handler<void (), shop::load()::{lambda()#1}>::call(int&)", "std::handler::call"),
            ("bool std::find<int>(int)", "std::find"),
            ("unsigned long (anonymous namespace)::find<int>(int)", "(anonymous namespace)::find"),
            ("bool shop::operator==<int>(int, int)", "shop::operator=="),
        ]
    )
    func shortCPlusPlus(demangled: String, name: String) {
        #expect(ShortName.cPlusPlus(demangled) == name)
    }
}
