import StallReading
import StallReports
import Testing

@Suite("Fingerprints of a fault")
struct FaultNamesTests {
    private func fingerprint(_ number: Int) throws -> Fingerprint {
        let digits = String(number, radix: 16)
        return try #require(Fingerprint(rawValue: "v2:" + String(repeating: "0", count: 16 - digits.count) + digits))
    }

    @Test("Faults that share a fingerprint are one, also through others; what is known of one is found by each")
    func shared() throws {
        let all = try (0..<6).map(fingerprint)
        let names = FaultNames(pairs: [(all[2], [all[1]]), (all[3], [all[1], all[4]]), (all[5], [all[5]])])
        for one in all[1...4] {
            #expect(names.all(of: one) == Set(all[1...4]))
            #expect(names.first(of: one) == all[1])
        }
        for alone in [all[0], all[5]] { #expect(names.all(of: alone) == [alone] && names.first(of: alone) == alone) }
        let table = FaultTable([(all[2], "two"), (all[3], "three"), (all[2], "again"), (all[5], "five")], names)
        #expect(all.map { table[$0] } == [nil, "two", "two", "three", "two", "five"])
    }

    @Test("Of a fault with very many fingerprints each is compared once, not once for each report")
    func many() throws {
        let all = try (0..<2_000).map(fingerprint)
        let names = FaultNames(pairs: all.dropFirst().map { ($0, [all[0]]) })
        var compared = 0
        for one in all {
            let isFound = names.hasName(one, like: "none") { _ in
                compared += 1
                return false
            }
            #expect(!isFound)
        }
        #expect(compared == 2 * all.count)
        for one in all { #expect(names.hasName(one, like: "zero") { $0 == all[0] }) }
    }
}
