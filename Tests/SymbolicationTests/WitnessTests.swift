import Foundation
import TestSupport
import Testing

@testable import Symbolication

/// Compares lines and inlined calls with binutils' addr2line, which has its own DWARF parser.
@Suite("Compared with addr2line", .timeLimit(.minutes(10)))
struct WitnessTests {
    @Test(
        "C has the same functions, lines and inlined calls",
        arguments: ["gcc", "clang"],
        [["-g", "-O2"], ["-gdwarf-4", "-O2"], ["-g", "-O0"], ["-g", "-O2", "-no-pie"], ["-g", "-O2", "-gz"]]
            .prefix(testsAllForms ? 5 : 1)
    )
    func c(compiler: String, flags: [String]) throws {
        let workshop = try Workshop()
        try workshop.makeProgram(compiler: compiler, flags: flags)
        try compare("program", in: workshop, only: ["main", "outer"])
    }

    @Test(
        "C++ has the same",
        arguments: [["-g", "-O2"], ["-g", "-O1", "-gdwarf-4"], ["-g", "-O2", "-ffunction-sections"]].prefix(
            testsAllForms ? 3 : 1
        )
    )
    func cPlusPlus(flags: [String]) throws {
        let workshop = try Workshop()
        try workshop.write(Self.cart, to: "cart.cpp")
        try workshop.run("g++", flags + ["-Wl,--gc-sections,--build-id", "-o", "cart", "cart.cpp"])
        try compare("cart", in: workshop, only: nil)
        let total = try #require(try workshop.functions(of: "cart").first { $0.name == "_ZN4shop4Cart5totalEv" })
        let frame = try workshop.resolve("cart", [total.start]).frames[0]
        #expect(frame.function == "shop::Cart::total()" && frame.language == .cPlusPlus)
        #expect(frame.location?.file.hasSuffix("cart.cpp") == true)
        let program = try workshop.functions(of: "cart")
        let places = program.flatMap { Array(stride(from: $0.start, to: $0.start + $0.size, by: 3)) }
        let inlined = try workshop.resolve("cart", places).frames.flatMap(\.inlined).compactMap(\.symbol)
        #expect(inlined.contains("lambda in shop::Cart::total") && !inlined.contains("operator()"))
    }

    /// DWARF 4, which the compiler generates by default: addr2line 2.40 does not find inlined calls in its DWARF 5.
    @Test(
        "Swift has the same",
        arguments: [["-g", "-O"], ["-g", "-Onone"], ["-g", "-O", "-wmo"]].prefix(testsAllForms ? 3 : 1)
    )
    func swift(flags: [String]) throws {
        let workshop = try Workshop()
        try workshop.write(Self.shop, to: "shop.swift")
        try workshop.run("swiftc", flags + ["-parse-as-library", "-Xlinker", "--build-id", "-o", "shop", "shop.swift"])
        try compare("shop", in: workshop, only: nil)
    }

    @Test("A `for` of Swift calls its iterator in its own line, also in a debug build, whose call has none")
    func iteration() throws {
        let workshop = try Workshop()
        try workshop.write(Self.loop, to: "loop.swift")
        try workshop.run("swiftc", ["-g", "-Onone", "-Xlinker", "--build-id", "-o", "loop", "loop.swift"])
        let total = try #require(try workshop.functions(of: "loop").first { $0.name.contains("5total") })
        let frames = try workshop.resolve("loop", Array(total.start..<total.start + total.size)).frames
        #expect(frames.allSatisfy { $0.location.map { (2...6).contains($0.line) } ?? false })
    }

    private static let loop = """
        struct Rows: Sequence, IteratorProtocol { mutating func next() -> Int? { nil } }
        func total(_ rows: Rows) -> Int {
            var sum = 0
            for row in rows { sum += row }
            return sum
        }
        print(total(Rows()))
        """

    /// Every third byte of the functions: each address must have a name, and no line may differ. Of Swift, the innermost call may have a line
    /// where addr2line has none.
    private func compare(_ file: String, in workshop: Workshop, only names: Set<String>?) throws {
        let functions = try workshop.functions(of: file).filter { names?.contains($0.name) ?? true }
        let places = functions.flatMap { Array(stride(from: $0.start, to: $0.start + $0.size, by: 3)) }
        try #require(places.count > 5)
        let result = try workshop.resolve(file, places)
        let witness = try addr2line(file, places, in: workshop)
        var lines = 0
        for (frame, place) in zip(result.frames, places) {
            let told = try #require(witness[place])
            let ours = frame.inlined.map { Call($0.symbol, $0.location) } + [Call(frame.symbol, frame.location)]
            let isAdded = frame.language == .swift && told.first?.place == nil
            #expect(
                ours.map(\.place).dropFirst(isAdded ? 1 : 0) == told.map(\.place).dropFirst(isAdded ? 1 : 0),
                "at \(String(place, radix: 16)) in \(frame.symbol ?? "?")"
            )
            // A lambda has no linker name; addr2line then prints the name of the function around it.
            for (mine, other) in zip(ours, told).dropLast() where mine.name?.isMangled == true {
                #expect(mine.name == other.name)
            }
            lines += ours.count { $0.place != nil }
        }
        #expect(lines > places.count / 8)
    }

    private struct Call: Hashable {
        var name: String?
        var place: String?

        init(_ name: String?, _ location: SourcePosition?) {
            (self.name, place) = (name, location.map { "\($0.file.split(separator: "/").last ?? ""):\($0.line)" })
        }

        /// In addr2line's format: `/src/a.c:12 (discriminator 3)`, `??:?`, `/src/a.c:?`.
        init(name: String, place: String) {
            let path = place.split(separator: " (").first.map(String.init) ?? place
            let line = path.split(separator: ":").last.flatMap { Int($0) } ?? 0
            let isSource = line > 0 && !path.contains("<compiler-generated>") && !path.hasPrefix("??")
            (self.name, self.place) = (name, isSource ? path.split(separator: "/").last.map(String.init) : nil)
        }
    }

    private func addr2line(_ file: String, _ places: [UInt], in workshop: Workshop) throws -> [UInt: [Call]] {
        try workshop.write(places.map { String($0, radix: 16) }.joined(separator: "\n"), to: "places")
        let output = try workshop.run("sh", ["-c", "addr2line -a -i -f -e \(file) < places"])
        var calls: [UInt: [Call]] = [:]
        var place: UInt = 0
        var name: Substring?
        for line in output.split(separator: "\n") {
            if line.hasPrefix("0x"), let next = UInt(line.dropFirst(2), radix: 16) {
                (place, name) = (next, nil)
                calls[place] = []
            } else if let function = name {
                calls[place]?.append(Call(name: String(function), place: String(line)))
                name = nil
            } else {
                name = line
            }
        }
        return calls
    }

    private static let cart = """
        #include <vector>
        #include <string>
        #include <algorithm>
        namespace shop {
        struct Item { std::string name; int price; };
        class Cart {
            std::vector<Item> items;
        public:
            void add(const char *name, int price) { items.push_back(Item{name, price}); }
            __attribute__((noinline)) int total();
            template <typename F> __attribute__((noinline)) void each(F f) { for (auto &item : items) f(item); }
        };
        int Cart::total() {
            int sum = 0;
            each([&](Item &item) {
                if (item.price > 3)
                    sum += item.price;
            });
            return sum;
        }
        }
        namespace { __attribute__((noinline)) int unused() { return 7; } }
        int main(int argc, char **argv) {
            shop::Cart cart;
            for (int i = 0; i < argc; i++) cart.add(argv[i], i);
            return cart.total() + (argc > 100 ? unused() : 0);
        }
        """

    private static let shop = """
        struct Item { var name: String; var price: Int }
        final class Cart {
            var items: [Item] = []
            @inline(__always) func price(of item: Item) -> Int { item.price * 3 }
            @inline(never) func total() -> Int {
                items.reduce(0) { sum, item in
                    sum + price(of: item)
                }
            }
        }
        extension Array where Element == Item {
            @inline(never) func cheapest() -> Item? { self.min { $0.price < $1.price } }
        }
        @inline(never) func load() async -> Cart {
            let cart = Cart()
            await Task.yield()
            cart.items = (0..<10).map { Item(name: "item \\($0)", price: $0) }
            return cart
        }
        @main struct Shop {
            static func main() async {
                let cart = await load()
                print(cart.total(), cart.items.cheapest() as Any)
            }
        }
        """
}

extension String {
    fileprivate var isMangled: Bool { hasPrefix("_Z") || hasPrefix("$s") }
}
