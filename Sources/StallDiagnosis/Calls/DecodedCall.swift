import Glibc
import StackCapture
package import StallReports

/// The arguments of a system call, read by its signature.
package struct DecodedCall: Hashable, Sendable {
    /// The arguments that could be read. Empty for a call without arguments; nil for an unknown call.
    package var arguments: [StallReport.Argument]?
    /// The descriptors among its arguments, the most important first.
    package var descriptors: [Int32] = []

    /// How many descriptors are taken from a list.
    private static let descriptorLimit = 8

    /// - Parameter read: Reads a number of bytes at an address. Nil if they cannot be read.
    init(_ call: SystemCall, read: MemoryReader) {
        guard let signature = call.name.flatMap(CallSignature.of) else { return }
        var arguments: [StallReport.Argument] = []
        for (parameter, value) in zip(signature.parameters, call.arguments) {
            guard let parameter else { continue }
            let found = Self.descriptors(parameter.form, value, call, read)
            descriptors += found
            let text = Self.text(parameter.form, value, found, call, read)
            if !text.isEmpty { arguments.append(.init(name: parameter.name, value: text)) }
        }
        self.arguments = arguments
    }

    private static func descriptors(
        _ form: CallSignature.Form,
        _ value: UInt,
        _ call: SystemCall,
        _ read: MemoryReader
    ) -> [Int32] {
        switch form {
        case .descriptor: [Int32(truncatingIfNeeded: value)].filter { $0 >= 0 }
        case .pollDescriptors: polled(value, count: call.arguments[1], read)
        case .descriptorSet: selected(value, count: call.arguments[0], read)
        default: []
        }
    }

    /// poll(2): `struct pollfd` is an `int` and two `short`s.
    private static func polled(_ address: UInt, count: UInt, _ read: MemoryReader) -> [Int32] {
        let count = Int(min(count, UInt(descriptorLimit)))
        guard count > 0, let bytes = read(address, count * 8) else { return [] }
        return (0..<count).map { Int32(truncatingIfNeeded: bytes.number(at: $0 * 8, 4)) }.filter { $0 >= 0 }
    }

    /// select(2): a bit for each descriptor.
    private static func selected(_ address: UInt, count: UInt, _ read: MemoryReader) -> [Int32] {
        let count = Int(min(count, 1024))
        guard address != 0, count > 0, let bytes = read(address, (count + 63) / 64 * 8) else { return [] }
        let set = (0..<count).filter { (number: Int) -> Bool in
            let mask: UInt8 = 1 << UInt8(number % 8)
            return bytes[number / 8] & mask != 0
        }
        return set.prefix(descriptorLimit).map { Int32($0) }
    }

    private static func text(
        _ form: CallSignature.Form,
        _ value: UInt,
        _ descriptors: [Int32],
        _ call: SystemCall,
        _ read: MemoryReader
    ) -> String {
        switch form {
        case .descriptor, .signed: return "\(Int32(truncatingIfNeeded: value))"
        case .directory:
            let number = Int32(truncatingIfNeeded: value)
            return number == -100 ? "" : "\(number)"
        case .unsigned: return value > UInt(Int.max) ? "\(Int(bitPattern: value))" : "\(value)"
        case .address: return "0x" + String(value, radix: 16)
        case .milliseconds:
            let timeout = Int32(truncatingIfNeeded: value)
            return timeout < 0 ? "none" : DurationText(nanoseconds: Int64(timeout) * 1_000_000).short
        case .timespec: return time(value, unit: 1, on: clock(of: call), read)
        case .timeval: return time(value, unit: 1000, on: nil, read)
        case .path: return CText.path(at: value, read) ?? ""
        case .pollDescriptors, .descriptorSet: return descriptors.map(String.init).joined(separator: " ")
        case .socketAddress: return SocketAddress(at: value, length: length(of: call), read)?.text ?? ""
        case .names(let names): return names.text(names.areBits ? value & 0xffff_ffff : value)
        }
    }

    /// The clock of a call that waits until a moment. Nil for one that waits for a length of time.
    private static func clock(of call: SystemCall) -> clockid_t? {
        switch call.name {
        case "mq_timedsend", "mq_timedreceive": CLOCK_REALTIME
        case "clock_nanosleep" where call.arguments[1] & UInt(TIMER_ABSTIME) != 0:
            clockid_t(truncatingIfNeeded: call.arguments[0])
        default: nil
        }
    }

    /// Seconds, and nanoseconds or microseconds, of 64 bits each. The moments of clocks other than the wall clock tell a reader nothing.
    private static func time(_ address: UInt, unit: Int64, on clock: clockid_t?, _ read: MemoryReader) -> String {
        guard address != 0 else { return "none" }
        guard let bytes = read(address, 16) else { return "" }
        let seconds = Int64(bitPattern: bytes.number(at: 0, 8))
        let (scaled, overflow) = seconds.multipliedReportingOverflow(by: 1_000_000_000)
        let part = Int64(bitPattern: bytes.number(at: 8, 8))
        guard !overflow, seconds >= 0, (0..<1_000_000_000).contains(part) else { return "" }
        if let clock {
            return clock == CLOCK_REALTIME ? Timestamp(seconds: seconds, nanoseconds: part).description : ""
        }
        let (sum, carried) = scaled.addingReportingOverflow(part * unit)
        return carried ? "" : DurationText(nanoseconds: sum).short
    }

    /// The argument after an address is its length.
    private static func length(of call: SystemCall) -> Int {
        Int(clamping: call.name == "connect" ? call.arguments[2] : call.arguments[5])
    }
}

/// Reads memory of the calling process, by address and number of bytes. Nil if not all of it can be read.
package typealias MemoryReader = (UInt, Int) -> [UInt8]?

extension [UInt8] {
    /// A little-endian number of `size` bytes. The list must be long enough.
    package func number(at offset: Int, _ size: Int) -> UInt64 {
        (0..<size).reduce(0) { $0 | UInt64(self[offset + $1]) << UInt64($1 * 8) }
    }
}

/// The text of an address in the form that socket calls use (ip(7), ipv6(7), unix(7)). Pure.
struct SocketAddress: Hashable, Sendable {
    /// `10.0.0.7:5432`, `[::1]:80`, a path, or `@` and an abstract name. Nil for an address without a name, and for other
    /// families.
    let text: String?

    init?(at address: UInt, length: Int, _ read: MemoryReader) {
        guard address != 0, length >= 2, let bytes = read(address, min(length, 110)) else { return nil }
        self.init(bytes)
    }

    /// - Parameter bytes: As many bytes as the address has.
    init?(_ bytes: [UInt8]) {
        guard bytes.count >= 2 else { return nil }
        switch bytes.number(at: 0, 2) {
        case 1: text = Self.path(bytes.dropFirst(2))
        case 2 where bytes.count >= 8: text = "\(Self.four(bytes[4..<8])):\(Self.port(bytes))"
        case 10 where bytes.count >= 24: text = Self.six(Array(bytes[8..<24]), Self.port(bytes))
        default: text = nil
        }
    }

    private static func port(_ bytes: [UInt8]) -> Int { Int(bytes[2]) << 8 | Int(bytes[3]) }

    private static func four(_ bytes: ArraySlice<UInt8>) -> String { bytes.map(String.init).joined(separator: ".") }

    /// RFC 5952: the longest run of zero groups is left out.
    private static func six(_ bytes: [UInt8], _ port: Int) -> String {
        if bytes[..<10].allSatisfy({ $0 == 0 }), bytes[10] == 0xff, bytes[11] == 0xff {
            return "\(four(bytes[12...])):\(port)"
        }
        let groups = stride(from: 0, to: 16, by: 2).map { (index: Int) -> Int in
            Int(bytes[index]) << 8 | Int(bytes[index + 1])
        }
        var longest = 0..<0
        for start in groups.indices {
            let length = groups[start...].prefix { $0 == 0 }.count
            if length > longest.count, length > 1 { longest = start..<(start + length) }
        }
        func hex(_ part: ArraySlice<Int>) -> String { part.map { String($0, radix: 16) }.joined(separator: ":") }
        guard !longest.isEmpty else { return "[\(hex(groups[...]))]:\(port)" }
        return "[\(hex(groups[..<longest.lowerBound]))::\(hex(groups[longest.upperBound...]))]:\(port)"
    }

    private static func path(_ bytes: ArraySlice<UInt8>) -> String? {
        guard let first = bytes.first else { return nil }
        if first == 0 { return bytes.count > 1 ? "@" + String(decoding: bytes.dropFirst(), as: UTF8.self) : nil }
        return String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
    }
}

/// Text in the memory of a waiting thread.
private enum CText {
    /// The longest path that is read, in bytes.
    private static let limit = 512

    /// A path that ends in a zero byte. The next page may not be readable, so the rest of the present page is read first.
    static func path(at address: UInt, _ read: MemoryReader) -> String? {
        guard address != 0 else { return nil }
        var text: [UInt8] = []
        var next = address
        while text.count < limit {
            let count = min(limit - text.count, Int(4096 - next % 4096))
            guard let bytes = read(next, count) else { return nil }
            if let end = bytes.firstIndex(of: 0) { return String(decoding: text + bytes[..<end], as: UTF8.self) }
            text += bytes
            next &+= UInt(count)
        }
        return String(decoding: text, as: UTF8.self) + "…"
    }
}
