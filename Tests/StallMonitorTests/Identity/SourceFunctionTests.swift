import Symbolication
import Testing

/// Symbols as compilers wrote them.
@Suite("A function as in its source")
struct SourceFunctionTests {
    @Test(
        "Outlined parts, copies and specialisations count as the function",
        arguments: [
            // Resumed after an await, awaited, called by a forwarder.
            ("$s4Shop10fetchLaterSiyYaF", ["$s4Shop10fetchLaterSiyYaFTY1_", "$s4Shop10fetchLaterSiyYaFTQ0_"]),
            ("$s4Shop9inClosureSiyYaFSiyYaXEfU_", ["$s4Shop9inClosureSiyYaFSiyYaXEfU_TY1_"]),
            ("$s4Shop7inGroupSiyYaFSiScGySiGzYaXEfU_", ["$s4Shop7inGroupSiyYaFSiScGySiGzYaXEfU_TATQ0_"]),
            // Specialised for one type, merged with others, split by the back end.
            ("$s4Shop11measureSomeySixAA5ShapeRzlF", ["$s4Shop11measureSomeySixAA5ShapeRzlFAA6SquareV_Tg5"]),
            ("$s4Shop3CatC5speakSiyF", ["$s4Shop3CatC5speakSiyFTm", "$s4Shop3CatC5speakSiyF.cold.1"]),
            (
                "wait_for_disk",
                [
                    "wait_for_disk.constprop.0", "wait_for_disk.part.0.isra.0", "wait_for_disk.cold",
                    "wait_for_disk.cold.1",
                    "wait_for_disk.llvm.42", "wait_for_disk.7", "wait_for_disk.constprop.0.cold",
                    "wait_for_disk.localalias.0", "wait_for_disk.specialized.1", "wait_for_disk._omp_fn.0",
                    "wait_for_disk.omp_outlined", "wait_for_disk.omp_outlined.1",
                ]
            ),
            // Moved in its file.
            ("JS:serve /srv/v1.2/app.js:1:2", ["JS:serve /srv/v1.2/app.js:34:5"]),
            ("LazyCompile:serve /srv/v1.2/app.js:1:2", ["JS:serve /srv/v1.2/app.js:34:5"]),
            ("JS: /srv/v1.2/app.js:1:2", ["JS: /srv/v1.3/app.js:1:2"]),
            ("py::load:/srv/v1.2/app.py", ["py::load:/srv/v1.3/app.py"]),
            // Both constructors of C++; one template's.
            ("_ZN9warehouse5ShelfC1Ei", ["_ZN9warehouse5ShelfC2Ei"]),
            ("_ZN9warehouse5Shelf5placeIdEEiT_i", ["_ZN9warehouse5Shelf5placeIiEEiT_i"]),
            ("_ZN4shop5totalIiEEDcT_", ["_ZN4shop5totalIdEEDcT_"]),
            // Rust's, of another build.
            (
                "_ZN4shop4load17h0123456789abcdefE",
                ["_ZN4shop4load17hfedcba9876543210E", "_ZN4shop4load17hfedcba9876543210E.llvm.42"]
            ),
        ]
    )
    func same(symbol: String, others: [String]) {
        for other in others { #expect(SourceFunction(symbol: other).name == SourceFunction(symbol: symbol).name) }
    }

    @Test("The initial value of a global or static variable is the code of the variable's module")
    func initialValue() {
        for symbol in ["$s4Shop4PageV6shared_WZ", "$s4Shop6prices_WZ"] {
            let function = SourceFunction(symbol: symbol)
            #expect(function.swiftModule == "Shop" && !function.isMadeUp && !function.isMerged)
        }
        #expect(
            SourceFunction(symbol: "$s4Shop4PageV6shared_WZ").name
                != SourceFunction(symbol: "$s4Shop4CartV6shared_WZ").name
        )
    }

    @Test("Overloads, accessors, closures and methods of other types are different functions")
    func different() {
        let symbols = [
            "$s4Shop4loadyS2iF", "$s4Shop4loadySiSSF", "$s4Shop4PageV8renderedSivg", "$s4Shop3CatC5speakSiyF",
            "$s4Shop3DogC5speakSiyF", "$s4Shop9inClosureSiyYaF", "$s4Shop9inClosureSiyYaFSiyYaXEfU_",
            "_ZN9warehouse5Shelf7restockEi", "_ZN9warehouse5ShelfC1Ei", ".hidden", ".other",
            // Templates whose result is deduced.
            "_ZN4shop5totalIiEEDcT_", "_ZN4shop5priceIiEEDTplfp_Li1EET_",
            // Rust's, for two types.
            "_ZN44_$LT$t..Cart$u20$as$u20$core..fmt..Debug$GT$3fmt17h892149de59c8bd89E",
            "_ZN44_$LT$t..Page$u20$as$u20$core..fmt..Debug$GT$3fmt17h892149de59c8bd89E",
            // Go, the JVM, V8.
            "main.(*Server).handle", "main.(*Server).load", "main.main.func1", "main.main.func1.1",
            "void shop.Cart.total()", "void shop.Cart.load()", "JS:next /srv/.pnpm/a.js:1:2",
            "JS:next /srv/.pnpm/b.js:1:2", "JS: /srv/app.js:1:10", "JS: /srv/app.js:7:21", "JS: /srv/app.js:7:10",
            "JS: /srv/other.js:1:10",
        ]
        #expect(Set(symbols.map { SourceFunction(symbol: $0).name }).count == symbols.count)
    }

    @Test("A closure has an enclosing function; a function has none")
    func enclosing() {
        let closure = SourceFunction(symbol: "$s4Shop9inClosureSiyYaFSiyYaXEfU_")
        #expect(closure.name == "closure #1 () async -> Swift.Int in Shop.inClosure() async -> Swift.Int")
        #expect(closure.enclosing == ["Shop.inClosure() async -> Swift.Int"])
        #expect(closure.swiftModule == "Shop" && !closure.isMadeUp)
        let nested = SourceFunction(symbol: "$s4Shop14nestedClosuresSiyFS2iXEfU_S2iXEfU_")
        #expect(nested.enclosing.count == 2 && nested.enclosing.last == "Shop.nestedClosures() -> Swift.Int")
        #expect(SourceFunction(symbol: "$s4Shop9inClosureSiyYaF").enclosing.isEmpty)
    }

    @Test("Thunks, witnesses and forwarders count as compiler-generated")
    func madeUp() {
        for symbol in ["$sSis5Error_pIegdzo_SisAA_pIegrzo_TR", "$s4Shop6CircleVAA5ShapeA2aDP4areaSiyFTW"] {
            #expect(SourceFunction(symbol: symbol).isMadeUp)
        }
        #expect(!SourceFunction(symbol: "wait_for_disk").isMadeUp)
    }
}
