import Foundation
import Synchronization

/// Frame kinds of Swift. `@inline(never)` and used results keep the frames separate in release builds.
extension Scene {
    static var swift: [Scene] {
        [
            running("Swift closures") {
                keep([1, 2, 3, 4].map { number in applyTwice(number) { spin($0) } }.count)
            },
            running("Swift generics") {
                keep(total(of: [1.0, 2.0, 3.0]) + total(of: [1, 2, 3].map(Wrapped.init)))
            },
            running("Swift protocols") {
                keep(
                    ([Leaf(), Branch(parts: [Leaf(), Leaf()])] as [any Piece]).reduce(0) { $0 &+ $1.weight() }
                )
            },
            running("Swift recursion") { keep(descend(300)) },
            running("Swift key paths") {
                keep(sum(of: \Pair.computed) &+ sum(of: \Pair.nested.computed))
            },
            running("Swift large frames") { keep(wide(6)) },
            running("Swift dynamic alloca") { keep(temporary(1000)) },
            running("Swift generic alloca") { keep(swapAll((1, "two", [3.0]), depth: 8)) },
            running("Swift strings") {
                keep(words(in: "The quick brown föx jumps over the lazy dög 🐕 again and again"))
            },
            running("Swift dictionaries") { keep(histogram((0..<200).map { "key \($0 % 31)" })) },
            running("Swift classes") { keep(chain(30)) },
            running("Swift errors") { keep(catching(8)) },
            running("Swift sort") {
                keep((0..<200).map { $0 &* 7919 % 199 }.sorted { compare($0, $1) }.count)
            },
            running("Swift lazy sequences") {
                keep((0..<100).lazy.map { spin($0) }.filter { $0 != 1 }.prefix(50).reduce(0, &+))
            },
            running("Swift reflection") {
                keep(Mirror(reflecting: Pair()).children.reduce(0) { $0 + "\($1)".count })
            },
            running("Swift regex") {
                keep(
                    (try? /(\w+)@(\w+)\.com/.firstMatch(in: "write to someone@example.com")) == nil ? 0 : 1
                )
            },
            running("Swift casts") {
                keep(([1, "two", 3.0, Pair()] as [Any]).count { $0 is any Piece || $0 is String })
            },
        ]
    }

    @inline(never)
    static func keep(_ value: some BinaryInteger) {
        Subject.sink.store(Int(truncatingIfNeeded: value), ordering: .relaxed)
    }

    @inline(never)
    static func keep(_ value: Double) { keep(value.bitPattern) }
}

@inline(never)
private func spin(_ number: Int) -> Int {
    Subject.work(500)
    return number &+ Subject.sink.load(ordering: .relaxed)
}

@inline(never)
private func applyTwice<Value>(_ value: Value, _ body: (Value) -> Value) -> Value {
    body(body(value))
}

private protocol Weighed { var grams: Double { get } }
extension Double: Weighed { fileprivate var grams: Double { Double(spin(Int(self)) & 255) } }
private struct Wrapped: Weighed {
    var value: Int
    var grams: Double { Double(value).grams + 1 }
}
@inline(never)
private func total<Element: Weighed>(of elements: [Element]) -> Double {
    elements.reduce(0) { $0 + $1.grams }
}

private protocol Piece { func weight() -> Int }
private struct Leaf: Piece {
    @inline(never) func weight() -> Int { spin(1) }
}
private struct Branch: Piece {
    var parts: [any Piece]
    @inline(never) func weight() -> Int { parts.reduce(0) { $0 &+ $1.weight() } }
}

@inline(never)
private func descend(_ depth: Int) -> Int {
    depth == 0 ? spin(20) : descend(depth - 1) &+ spin(0) &+ 1
}

private struct Pair {
    struct Nested { var computed: Int { spin(2) } }
    var nested = Nested()
    var text = "text"
    var computed: Int { spin(1) }
}
@inline(never)
private func sum(of path: KeyPath<Pair, Int>) -> Int {
    [Pair(), Pair()].reduce(0) { $0 &+ $1[keyPath: path] }
}

private struct Large {
    var a = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    var b = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
}
@inline(never)
private func wide(_ depth: Int, _ large: Large = Large()) -> Int {
    var (first, second) = (large, large)
    first.a.3 = spin(depth)
    second.b.7 = depth == 0 ? 0 : wide(depth - 1, first)
    return first.a.3 &+ second.b.7
}

@inline(never)
private func temporary(_ count: Int) -> Int {
    unsafe withUnsafeTemporaryAllocation(of: Int.self, capacity: count) { buffer in
        unsafe buffer.initialize(repeating: spin(count))
        return unsafe count < 200 ? buffer[0] : temporary(count - 150) &+ buffer[count - 1]
    }
}

/// Values of a size that is known only at run time: unspecialised generic code keeps them in dynamic frames.
@inline(never) @_optimize(none)
private func swapAll<Value>(_ value: Value, depth: Int) -> Int {
    var (one, other) = (value, value)
    swap(&one, &other)
    return depth == 0 ? spin(1) : swapAll((one, depth), depth: depth - 1) &+ 1
}

@inline(never)
private func words(in text: String) -> Int {
    text.split(separator: " ").map { $0.uppercased() }.reduce(0) { $0 + $1.unicodeScalars.count }
}

@inline(never)
private func histogram(_ keys: [String]) -> Int {
    var counts: [String: Int] = [:]
    for key in keys { counts[key, default: 0] += 1 }
    return counts.values.max() ?? 0
}

private final class Link {
    let next: Link?
    init(next: Link?) { self.next = next }
    deinit { Subject.work(200) }
}
/// Released from the outermost object inwards: each deinit runs in the one before.
@inline(never)
private func chain(_ length: Int) -> Int {
    var first: Link?
    for _ in 0..<length { first = Link(next: first) }
    return first == nil ? 0 : spin(length)
}

private struct Failure: Error {}
@inline(never)
private func failing(_ depth: Int) throws -> Int {
    if depth == 0 { throw Failure() }
    return try failing(depth - 1) &+ spin(depth)
}
@inline(never)
private func catching(_ depth: Int) -> Int { (try? failing(depth)) ?? spin(depth) }

@inline(never)
private func compare(_ a: Int, _ b: Int) -> Bool {
    Subject.work(30)
    return a < b
}
