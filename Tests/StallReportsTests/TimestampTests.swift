import StallReports
import TestSupport
import Testing

@Suite("Timestamp")
struct TimestampTests {
    @Test(
        "it writes RFC 3339 with nine digits, as date(1) does",
        arguments: [
            (0, 0, "1970-01-01T00:00:00.000000000Z"),
            (1_795_000_000, 1, "2026-11-18T11:06:40.000000001Z"),
            (951_782_400, 999_999_999, "2000-02-29T00:00:00.999999999Z"),
            (-1, 500_000_000, "1969-12-31T23:59:59.500000000Z"),
            (-2_203_891_200, 0, "1900-03-01T00:00:00.000000000Z"),
            (253_402_300_799, 0, "9999-12-31T23:59:59.000000000Z"),
            (-62_167_219_200, 0, "0000-01-01T00:00:00.000000000Z"),
        ]
    )
    func writes(seconds: Int64, nanoseconds: Int64, text: String) {
        let time = Timestamp(seconds: seconds, nanoseconds: nanoseconds)
        #expect(time.description == text)
        #expect(Timestamp(rfc3339: text) == time)
    }

    @Test("random times read back as written")
    func roundTrips() {
        var random = SplitMix64.ofThisRun()
        for _ in 0..<2000 {
            let time = Timestamp(
                seconds: .random(in: -62_167_219_200...253_402_300_799, using: &random),
                nanoseconds: .random(in: 0..<1_000_000_000, using: &random)
            )
            #expect(Timestamp(rfc3339: time.description) == time)
        }
    }

    @Test(
        "it reads offsets, short and long fractions, and leap seconds",
        arguments: [
            ("2026-11-18T13:06:40+02:00", 0), ("2026-11-18T05:36:40.5-05:30", 500_000_000),
            ("2026-11-18t11:06:40.1234567899z", 123_456_789), ("2026-11-18 11:06:40Z", 0),
            ("2026-11-18T11:05:60Z", -40_000_000_000),
        ]
    )
    func reads(text: String, offset: Int64) {
        #expect(Timestamp(rfc3339: text) == Timestamp(seconds: 1_795_000_000).advanced(byNanoseconds: offset))
    }

    @Test(
        "it refuses anything that is not a time",
        arguments: [
            "", "2026-11-18", "2026-11-18T11:06:40", "2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z",
            "2026-11-18T24:00:00Z", "2026-11-18T11:60:00Z", "2026-11-18T11:06:61Z", "2026-11-18T11:06:40.Z",
            "2026-11-18T11:06:40Z ", "2026-11-18T11:06:40+2:00", "+026-11-18T11:06:40Z", "2026-11-18T11:06:40.١Z",
        ]
    )
    func refuses(text: String) {
        #expect(Timestamp(rfc3339: text) == nil)
    }

    @Test("differences are exact, and saturate at the ends of Int64")
    func differences() {
        let early = Timestamp(seconds: 10, nanoseconds: 900_000_000)
        let late = Timestamp(seconds: 12, nanoseconds: 100_000_000)
        #expect(late.nanoseconds(since: early) == 1_200_000_000)
        #expect(early.nanoseconds(since: late) == -1_200_000_000)
        #expect(early.advanced(byNanoseconds: 1_200_000_000) == late)
        let (first, last) = (Timestamp(seconds: .min), Timestamp(seconds: .max, nanoseconds: .max))
        #expect(last.nanoseconds(since: first) == .max)
        // The seconds alone still fit.
        let (epoch, year2262) = (Timestamp(seconds: 0), Timestamp(seconds: 9_223_372_036, nanoseconds: 900_000_000))
        #expect(year2262.nanoseconds(since: epoch) == .max && epoch.nanoseconds(since: year2262) == .min)
        #expect(first.nanoseconds(since: last) == .min)
    }
}
