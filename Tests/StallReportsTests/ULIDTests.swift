import StallReports
import Synchronization
import Testing

@Suite("ULID")
struct ULIDTests {
    @Test("the specification's example: text, time and number are the same value")
    func specificationExample() throws {
        let id = try #require(ULID("01ARZ3NDEKTSV4RRFFQ69G5FAV"))
        #expect(id.description == "01ARZ3NDEKTSV4RRFFQ69G5FAV")
        #expect(id.timestamp == Timestamp(seconds: 1_469_922_850, nanoseconds: 259_000_000))
        #expect(ULID("01arz3ndektsv4rrffq69g5fav") == id)
        #expect(ULID("7ZZZZZZZZZZZZZZZZZZZZZZZZZ")?.rawValue == .max)
    }

    @Test(
        "other lengths, letters outside the alphabet, and values above 128 bits are refused",
        arguments: [
            "", "01ARZ3NDEKTSV4RRFFQ69G5FA", "01ARZ3NDEKTSV4RRFFQ69G5FAVV", "01ARZ3NDEKTSV4RRFFQ69G5FAU",
            "01ARZ3NDEKTSV4RRFFQ69G5FAé", "80000000000000000000000000", "../../../../etc/passwd....",
        ]
    )
    func refuses(text: String) {
        #expect(ULID(text) == nil)
    }

    @Test("ids grow within a millisecond and when the clock is set back; text sorts like the values")
    func monotonic() {
        var generator = ULID.Generator()
        let now = Timestamp(seconds: 1_795_000_000)
        var ids = (0..<1000).map { _ in generator.next(at: now) }
        ids.append(generator.next(at: now.advanced(byNanoseconds: -5_000_000_000)))
        ids.append(generator.next(at: now.advanced(byNanoseconds: 1_000_000)))
        #expect(zip(ids, ids.dropFirst()).allSatisfy { $0 < $1 })
        #expect(zip(ids, ids.dropFirst()).allSatisfy { $0.description < $1.description })
        #expect(ids.first?.timestamp == now)
    }

    @Test("a copy, such as a forked child has, makes different ids, also within a millisecond")
    func copies() {
        var generator = ULID.Generator()
        let now = Timestamp(seconds: 1_795_000_000)
        _ = generator.next(at: now)
        var copy = generator
        let ids = [generator.next(at: now), copy.next(at: now)]
        #expect(ids[0] != ids[1])
    }

    @Test("even the largest random part leaves room to grow in its millisecond")
    func randomPartLeavesRoom() {
        struct Ones: RandomNumberGenerator { mutating func next() -> UInt64 { .max } }
        var generator = ULID.Generator(randomness: Ones())
        let now = Timestamp(seconds: 1_795_000_000)
        let first = generator.next(at: now)
        #expect((first.rawValue << 48) >> 48 == UInt128(1) << 79 - 1)
        #expect(generator.next(at: now).timestamp == now)
    }

    @Test("ids created on many threads at once are all different")
    func uniqueAcrossThreads() async {
        let ids = await withTaskGroup(of: [ULID].self) { group in
            for _ in 0..<8 { group.addTask { (0..<1000).map { _ in ULID.make() } } }
            return await group.reduce(into: Set<ULID>()) { $0.formUnion($1) }
        }
        #expect(ids.count == 8000)
    }
}
