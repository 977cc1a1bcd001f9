import CStallCorpus
import Foundation
import Glibc
import RunLoopKit
import Synchronization

// Work that keeps a CPU busy, each in a separate function that the report must name. Each function does some work after its long
// call: a tail call would remove it from the stack.

@inline(never)
func computeInOwnCode(until end: MonotonicInstant) -> Int {
    var sum = 1
    while MonotonicInstant.now < end {
        for step in 0..<2_000 { sum = sum &* 31 &+ step }
    }
    return sum
}

struct Row: Codable, Comparable, Sendable {
    var id: Int
    var name: String
    var tags: [String]
    var scores: [String: Double]

    static func < (a: Row, b: Row) -> Bool { a.name < b.name }

    static func table(_ count: Int) -> [Row] {
        (0..<count).map { Row(id: $0, name: "row \(($0 &* 7_919) % count)", tags: ["a", "b"], scores: ["x": 1.5]) }
    }
}

/// Decodes into types of the library: with a type of the server, that type could be blamed as well.
@inline(never)
func decodeDocument(_ json: Data, until end: MonotonicInstant) -> Int {
    var rows = 0
    repeat {
        rows += (try? JSONDecoder().decode([[String: Double]].self, from: json))?.count ?? 0
    } while MonotonicInstant.now < end
    return rows
}

@inline(never)
func encodeDocument(_ rows: [Row], until end: MonotonicInstant) -> Int {
    var bytes = 0
    repeat {
        bytes += (try? JSONEncoder().encode(rows))?.count ?? 0
    } while MonotonicInstant.now < end
    return bytes
}

/// Matches a pattern that tries all ways to divide a text between two loops.
@inline(never)
func matchPattern(_ text: String, until end: MonotonicInstant) -> Int {
    guard let pattern = try? Regex("(a+)+b") else { return 0 }
    var matches = 0
    repeat {
        matches += (try? pattern.firstMatch(in: text)) == nil ? 0 : 1
    } while MonotonicInstant.now < end
    return matches
}

@inline(never)
func matchExpression(_ text: String, until end: MonotonicInstant) -> Int {
    guard let expression = try? NSRegularExpression(pattern: "(a+)+b") else { return 0 }
    let range = NSRange(text.startIndex..., in: text)
    var matches = 0
    repeat {
        matches += expression.numberOfMatches(in: text, range: range)
    } while MonotonicInstant.now < end
    return matches
}

@inline(never)
func sortTable(_ rows: [Row], until end: MonotonicInstant) -> Int {
    var first = 0
    repeat {
        first &+= rows.sorted { $0.name > $1.name }.first?.id ?? 0
    } while MonotonicInstant.now < end
    return first
}

/// The number of recursive calls that `descend` makes before it computes.
private let recursionDepth = 500

@inline(never)
func descend(_ depth: Int = recursionDepth, until end: MonotonicInstant) -> Int {
    var sum = depth
    if depth > 0 { sum ^= descend(depth - 1, until: end) }
    while MonotonicInstant.now < end {
        for step in 0..<2_000 { sum = sum &* 31 &+ step }
    }
    return sum
}

/// Spends CPU time in the kernel.
@inline(never)
func readZeroes(until end: MonotonicInstant) -> Int {
    let descriptor = unsafe open("/dev/zero", O_RDONLY | O_CLOEXEC)
    defer { close(descriptor) }
    var buffer = [UInt8](repeating: 0, count: 1 << 20)
    var total = 0
    repeat {
        total += unsafe read(descriptor, &buffer, buffer.count)
    } while MonotonicInstant.now < end
    return total
}

/// The C function passes no context to its callback: this is the time until
/// which the callback computes, in nanoseconds of the monotonic clock.
private let visitEnd = Atomic<UInt64>(0)

/// The C library walks over files, and calls back for each file.
@inline(never)
func walkFiles(in directory: String, until end: MonotonicInstant) -> Int {
    visitEnd.store(end.nanoseconds, ordering: .relaxed)
    let result = unsafe corpus_walk_files(directory) { visitFile() }
    return Int(result) + 1
}

@inline(never)
func visitFile() -> Int32 {
    let end = MonotonicInstant(nanoseconds: visitEnd.load(ordering: .relaxed))
    var sum: Int32 = 1
    while MonotonicInstant.now < end {
        for step in 0..<2_000 as Range<Int32> { sum = sum &* 31 &+ step }
    }
    return sum == 0 ? 1 : 0
}

/// Computes in a closure that a generic function calls.
@inline(never)
func transformTable(until end: MonotonicInstant) -> Int {
    let sums = apply(to: [1, 2, 3]) { value in
        var sum = value
        while MonotonicInstant.now < end {
            for step in 0..<2_000 { sum = sum &* 31 &+ step }
        }
        return sum
    }
    return sums.reduce(0, &+)
}

@inline(never)
private func apply<Value>(to values: [Value], _ transform: (Value) -> Value) -> [Value] {
    var results: [Value] = []
    for value in values { results.append(transform(value)) }
    return results
}

/// Computes in the server's own code until another thread tells it to end.
@inline(never)
func computeUntilTold(_ isDone: StopFlag) -> Int {
    var sum = 1
    while !isDone.isStopped {
        for step in 0..<2_000 { sum = sum &* 31 &+ step }
    }
    return sum
}
