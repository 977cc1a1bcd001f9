/// A value that is no container: the standard library's numbers, `Bool` and `String`.
protocol JSONScalar: Codable {
    static var kind: ParsedJSON.Kind { get }

    /// The value that a text of this kind represents. Nil if it is not one of this type: out of range, or a fraction.
    init?(_ json: ParsedJSON, at node: Int)

    /// - Throws: `EncodingError`, if JSON has no such value.
    func write(to text: inout [UInt8]) throws
}

extension Bool: JSONScalar {
    static var kind: ParsedJSON.Kind { .bool }

    init?(_ json: ParsedJSON, at node: Int) { self = json.bytes(of: node).first == UInt8(ascii: "t") }

    func write(to text: inout [UInt8]) { text += (self ? "true" : "false").utf8 }
}

extension String: JSONScalar {
    static var kind: ParsedJSON.Kind { .text }

    init?(_ json: ParsedJSON, at node: Int) {
        guard let text = json.text(of: node) else { return nil }
        self = text
    }

    func write(to text: inout [UInt8]) {
        text.append(UInt8(ascii: "\""))
        if utf8.contains(where: Self.isEscaped) {
            for byte in utf8 { Self.isEscaped(byte) ? Self.escape(byte, to: &text) : text.append(byte) }
        } else {
            text += utf8
        }
        text.append(UInt8(ascii: "\""))
    }

    private static func isEscaped(_ byte: UInt8) -> Bool {
        byte < 0x20 || byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\")
    }

    private static func escape(_ byte: UInt8, to text: inout [UInt8]) {
        text.append(UInt8(ascii: "\\"))
        switch byte {
        case 0x08: text.append(UInt8(ascii: "b"))
        case 0x09: text.append(UInt8(ascii: "t"))
        case 0x0a: text.append(UInt8(ascii: "n"))
        case 0x0c: text.append(UInt8(ascii: "f"))
        case 0x0d: text.append(UInt8(ascii: "r"))
        case ..<0x20: text += "u00\(byte < 0x10 ? "0" : "")\(String(byte, radix: 16))".utf8
        default: text.append(byte)
        }
    }
}

extension JSONScalar where Self: FixedWidthInteger {
    static var kind: ParsedJSON.Kind { .number }

    init?(_ json: ParsedJSON, at node: Int) {
        let bytes = json.bytes(of: node)
        let isNegative = bytes.first == UInt8(ascii: "-")
        guard let digits = wholeDigits(of: bytes.dropFirst(isNegative ? 1 : 0)) else { return nil }
        var value: Self = 0
        for byte in digits {
            let digit = Self(truncatingIfNeeded: byte - UInt8(ascii: "0"))
            let (product, overflow) = value.multipliedReportingOverflow(by: 10)
            let (sum, carried) =
                isNegative ? product.subtractingReportingOverflow(digit) : product.addingReportingOverflow(digit)
            guard !overflow, !carried else { return nil }
            value = sum
        }
        self = value
    }

    func write(to text: inout [UInt8]) { text += String(self).utf8 }
}

/// The digits of a whole number without a sign, which can be written as a fraction or with an exponent, as 1.0 or 1e3. A `Double` would make
/// another number of one above 2^53.
///
/// - Returns: Nil if it is no whole number, or its exponent is beyond all integers.
private func wholeDigits(of number: ArraySlice<UInt8>) -> ArraySlice<UInt8>? {
    let isDigit = { (byte: UInt8) in byte >= UInt8(ascii: "0") && byte <= UInt8(ascii: "9") }
    if number.allSatisfy(isDigit) { return number }
    let mantissa = number.prefix { $0 | 0x20 != UInt8(ascii: "e") }
    let power = number[mantissa.endIndex...].dropFirst()
    guard let exponent = power.isEmpty ? 0 : Int(String(decoding: power, as: UTF8.self)),
        (-100...100).contains(exponent)
    else { return nil }
    let places = mantissa.firstIndex(of: UInt8(ascii: ".")).map { mantissa.endIndex - $0 - 1 } ?? 0
    let digits = mantissa.filter(isDigit)
    let shift = exponent - places
    if shift >= 0 { return digits[...] + repeatElement(UInt8(ascii: "0"), count: shift) }
    return digits.suffix(-shift).allSatisfy { $0 == UInt8(ascii: "0") } ? digits.dropLast(-shift) : nil
}

extension JSONScalar where Self: BinaryFloatingPoint & LosslessStringConvertible {
    static var kind: ParsedJSON.Kind { .number }

    init?(_ json: ParsedJSON, at node: Int) {
        let digits = String(decoding: json.bytes(of: node), as: UTF8.self)
        guard let value = Self(digits), value.isFinite else { return nil }
        self = value
    }

    /// The shortest text that is read as the same number.
    func write(to text: inout [UInt8]) throws {
        guard isFinite else {
            throw EncodingError.invalidValue(self, .init(codingPath: [], debugDescription: "JSON has no such number"))
        }
        let digits = description
        text += (digits.hasSuffix(".0") ? digits.dropLast(2) : digits[...]).utf8
    }
}

extension Int: JSONScalar {}
extension Int8: JSONScalar {}
extension Int16: JSONScalar {}
extension Int32: JSONScalar {}
extension Int64: JSONScalar {}
extension Int128: JSONScalar {}
extension UInt: JSONScalar {}
extension UInt8: JSONScalar {}
extension UInt16: JSONScalar {}
extension UInt32: JSONScalar {}
extension UInt64: JSONScalar {}
extension UInt128: JSONScalar {}
extension Float: JSONScalar {}
extension Double: JSONScalar {}
