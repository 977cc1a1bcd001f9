// Swift gives texts that are canonically equivalent the same hash, and finds them equal. For that it sorts the marks after a letter, in a
// time that grows with the square of their number. A name in a hostile file, or what a demangler makes of a symbol, may be a letter with
// thirty thousand accents: each look at it took seconds.

import Glibc

extension String {
    /// In bytes. A path's component has at most 255, and no program's names have so many in a row without a digit, a blank or punctuation.
    private static let longestRun = 256

    /// The text of a file, whose series of characters outside of ASCII, which may all be marks, are cut after 256 bytes.
    init(boundedUTF8 bytes: some Collection<UInt8>) {
        let text = String(decoding: bytes, as: UTF8.self)
        self = bytes.count > Self.longestRun && text.hasLongRun ? text.withoutLongRuns : text
    }

    /// The same of a text that ends with a zero byte.
    @unsafe init(boundedCString text: UnsafePointer<CChar>) {
        unsafe self.init(boundedUTF8: UnsafeRawBufferPointer(start: text, count: strlen(text)))
    }

    private var hasLongRun: Bool {
        var run = 0
        return utf8.contains { byte in
            run = UTF8.isASCII(byte) ? 0 : run + 1
            return run > Self.longestRun
        }
    }

    private var withoutLongRuns: String {
        var (run, kept) = (0, UnicodeScalarView())
        for scalar in unicodeScalars {
            run = scalar.isASCII ? 0 : run + UTF8.width(scalar)
            if run <= Self.longestRun { kept.append(scalar) }
        }
        return String(kept)
    }
}
