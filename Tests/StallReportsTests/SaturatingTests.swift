import Testing

@testable import StallReports

@Suite("Arithmetic on untrusted numbers")
struct SaturatingTests {
    private let ends: [Int64] = [.min, .min + 1, -3, -1, 0, 1, 3, .max - 1, .max]

    @Test("it saturates at the ends and is exact between them")
    func exact() {
        func held(_ value: Int128) -> Int64 { Int64(clamping: value) }
        for a in ends {
            for b in ends {
                #expect(a.addingSaturated(b) == held(Int128(a) + Int128(b)))
                #expect(a.subtractingSaturated(b) == held(Int128(a) - Int128(b)))
                #expect(a.multipliedSaturated(by: b) == held(Int128(a) * Int128(b)))
            }
        }
        #expect(UInt64(1).subtractingSaturated(2) == 0 && UInt64.max.addingSaturated(1) == .max)
        #expect([1, 2, 3].saturatingSum(from: 5) == 11 && [Int64.max, .max].saturatingSum() == .max)
        #expect([Int64.min, .min].saturatingSum() == .min)
    }

    @Test("any floating-point number becomes an integer")
    func doubles() {
        let cases: [(Double, Int64)] = [
            (.nan, 0), (.infinity, .max), (-.infinity, .min), (1e300, .max), (-1e300, .min), (2.9, 2), (-2.9, -2),
            (9_223_372_036_854_775_808, .max), (-9_223_372_036_854_775_808, .min), (.leastNonzeroMagnitude, 0),
        ]
        for (number, integer) in cases { #expect(Int64(saturating: number) == integer, "\(number)") }
    }

    @Test("repeats that a file claims add up to the largest number")
    func repeats() {
        let most = StallReport.Repeats(
            count: .max,
            report: nil,
            firstAt: Sample.start,
            lastAt: Sample.start,
            totalNs: .max,
            longestNs: .max
        )
        #expect(most.joined(by: most) == most)
    }
}
