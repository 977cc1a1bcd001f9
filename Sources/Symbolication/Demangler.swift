import Glibc

/// Names as people write them, from names as linkers know them. All functions may be called from any thread.
public enum Demangler {
    /// - Returns: the demangled name, or the symbol itself if it is not mangled, or not in a way that is known here.
    public static func demangle(_ symbol: String) -> String {
        switch language(of: symbol) {
        case .swift: demangleSwift(symbol) ?? symbol
        case .cPlusPlus: demangleCPlusPlus(symbol) ?? symbol
        case .c: symbol
        }
    }

    static func language(of symbol: String) -> SymbolicatedFrame.Language {
        // The Swift prefixes of today ($s), before 5.0 ($S, _T0), of embedded Swift ($e) and of macro expansions.
        let swift = ["$s", "$S", "$e", "_T0", "_$s", "@__swiftmacro_"]
        if swift.contains(where: symbol.hasPrefix) { return .swift }
        return symbol.hasPrefix("_Z") ? .cPlusPlus : .c
    }

    private static func demangleSwift(_ symbol: String) -> String? {
        var symbol = symbol
        let result = symbol.withUTF8 { utf8 in
            unsafe swiftDemangle(utf8.baseAddress, utf8.count, nil, nil, 0)
        }
        return unsafe owned(result)
    }

    private static func demangleCPlusPlus(_ symbol: String) -> String? {
        var status: CInt = 0
        return unsafe owned(symbol.withCString { unsafe cxaDemangle($0, nil, nil, &status) })
    }

    /// Both demanglers allocate their result with malloc.
    @unsafe private static func owned(_ text: UnsafeMutablePointer<CChar>?) -> String? {
        guard let text = unsafe text else { return nil }
        defer { unsafe free(text) }
        return unsafe String(cString: text)
    }
}

/// The Swift runtime's own demangler, exported for tools: swift/Demangling/Demangle.h.
@_silgen_name("swift_demangle")
private func swiftDemangle(
    _ symbol: UnsafePointer<UInt8>?,
    _ length: Int,
    _ buffer: UnsafeMutablePointer<CChar>?,
    _ size: UnsafeMutablePointer<Int>?,
    _ flags: UInt32
) -> UnsafeMutablePointer<CChar>?

/// The C++ runtime's: Itanium C++ ABI, 3.4.
@_silgen_name("__cxa_demangle")
private func cxaDemangle(
    _ symbol: UnsafePointer<CChar>,
    _ buffer: UnsafeMutablePointer<CChar>?,
    _ size: UnsafeMutablePointer<Int>?,
    _ status: UnsafeMutablePointer<CInt>
) -> UnsafeMutablePointer<CChar>?
