import StallReports
import TestSupport
import Testing

@Suite("Text for people")
struct TextTests {
    @Test(
        "characters that a terminal obeys or hides become visible",
        arguments: [
            ("\u{1B}[31mred\u{7}", #"\u{1B}[31mred\u{7}"#), ("a\nb\r\tc\u{7F}", #"a\u{A}b\u{D}\u{9}c\u{7F}"#),
            ("\u{9B}2J", #"\u{9B}2J"#), ("user\u{202E}txt.exe", #"user\u{202E}txt.exe"#),
            ("a\u{200B}b", #"a\u{200B}b"#),
            ("\u{2028}\u{A0}\u{E0041}\u{E000}\u{FFFE}\u{3164}", #"\u{2028}\u{A0}\u{E0041}\u{E000}\u{FFFE}\u{3164}"#),
            ("e\u{301}\u{301}\u{301}", "e\u{301}\u{301}\\u{301}"),
        ]
    )
    func visible(text: String, expected: String) {
        #expect(VisibleText.of(text) == expected)
    }

    @Test("letters of any script stay as they are")
    func plain() {
        for text in ["shop.Cart.total() -> Swift.Int", "größe", "данные", "数据", "e\u{301}", "→ 🙂 λ"] {
            #expect(VisibleText.of(text) == text)
        }
    }

    @Test("of all existing scalars no control passes")
    func everyScalar() {
        for value in 0...0x10_FFFF as ClosedRange<UInt32> {
            guard let scalar = Unicode.Scalar(value) else { continue }
            let category = scalar.properties.generalCategory
            guard [.control, .format, .lineSeparator, .paragraphSeparator].contains(category) else { continue }
            #expect(VisibleText.of(String(Character(scalar))) == "\\u{\(String(value, radix: 16, uppercase: true))}")
        }
    }

    @Test("long text is cut, and its length is bounded before it is copied")
    func bounded() {
        #expect(VisibleText.of("abcdef", limit: 6) == "abcdef")
        #expect(VisibleText.of("abcdefg", limit: 6) == "abcde…")
        #expect(VisibleText.of(String(repeating: "\u{1B}", count: 1_000_000), limit: 20).count == 20)
        // Names are compared in this form, and may have been made visible before.
        let accents = VisibleText.of(String(repeating: "\u{301}", count: 100), limit: 20)
        #expect(accents.unicodeScalars.count == 20 && VisibleText.of(accents, limit: 20) == accents)
    }

    @Test(
        "durations are parsed",
        arguments: [
            ("0", 0), ("500ms", 500_000_000), ("1.5s", 1_500_000_000), ("2m", 120_000_000_000), ("10us", 10_000),
            ("10µs", 10_000), ("7ns", 7), ("1h30m", 5_400_000_000_000), ("1d", 86_400_000_000_000),
            ("0.1m", 6_000_000_000),
            ("1.5d", 129_600_000_000_000), ("0.0000000019s", 1), ("00.50s", 500_000_000),
        ]
    )
    func readsDurations(text: String, nanoseconds: Int64) {
        #expect(DurationText(text)?.nanoseconds == nanoseconds)
    }

    @Test(
        "everything else is refused",
        arguments: [
            "", "5", "ms", "-1s", "1 s", "1.s", ".5s", "1..5s", "1s ", "1S", "1sec", "٣s", "1e3s", "9999999999d", "+1s",
            "1s2",
            "300d300d9999999h",
        ]
    )
    func refusesDurations(text: String) {
        #expect(DurationText(text) == nil)
    }

    @Test(
        "durations are written in full, and short",
        arguments: [
            (0, "0s", "0s"), (7, "7ns", "7ns"), (1500, "1.5µs", "1.5µs"), (81_234, "81.234µs", "81.2µs"),
            (612_345_678, "612.345678ms", "612ms"), (999_600_000, "999.6ms", "1s"), (1_534_000_000, "1.534s", "1.53s"),
            (59_940_000_000, "59.94s", "59.9s"), (59_960_000_000, "59.96s", "1m"), (60_250_000_000, "1m0.25s", "1m"),
            (125_400_000_000, "2m5.4s", "2m5s"), (3_725_000_000_000, "1h2m5s", "1h2m"),
            (90_000_000_000_000, "1d1h", "1d1h"), (.max, "106751d23h47m16.854775807s", "106751d23h47m"),
        ] as [(Int64, String, String)]
    )
    func writesDurations(nanoseconds: Int64, full: String, short: String) {
        #expect(DurationText(nanoseconds: nanoseconds).description == full)
        #expect(DurationText(nanoseconds: nanoseconds).short == short)
    }

    @Test("a duration written in full reads back, for random lengths of every size")
    func roundTrips() {
        var random = SplitMix64.ofThisRun()
        for _ in 0..<5000 {
            let most = Int64.max >> Int64.random(in: 0..<63, using: &random)
            let length = DurationText(nanoseconds: .random(in: 0...most, using: &random))
            #expect(DurationText(length.description) == length)
            #expect(DurationText(length.short) != nil)
        }
    }
}

@Suite("Misspelt names")
struct NearestNameTests {
    @Test(
        "the name that may be meant begins with the word, ends with it after a dot, or differs in few characters",
        arguments: [
            ("limits.reprots", "limits.reports"), ("reports", "limits.reports"), ("tick", "tickMilliseconds"),
            ("tick_milliseconds", "tickMilliseconds"), ("limits.raports", "limits.reports"),
            ("frobnicate", nil), ("", nil), (String(repeating: "x", count: 100_000), nil),
        ] as [(String, String?)]
    )
    func nearest(word: String, name: String?) {
        #expect(nearestName(to: word, among: ["limits.reports", "tickMilliseconds", "captureSignal"]) == name)
    }
}
