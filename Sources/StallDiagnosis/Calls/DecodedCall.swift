import StackCapture
package import StallReports

/// A system call's arguments, read by its signature.
package struct DecodedCall: Hashable, Sendable {
    /// What can be told of them. Empty for a call that takes none; nil for a call that is not known.
    package var arguments: [StallReport.Argument]?
    /// The descriptors it was given, the first one foremost.
    package var descriptors: [Int32] = []

    /// Most descriptors taken from a list.
    private static let descriptorLimit = 8

    /// - Parameter read: the bytes at an address, as many as asked for; nil where they cannot be read.
    init(_ call: SystemCall, read: (UInt, Int) -> [UInt8]?) {
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
        _ read: (UInt, Int) -> [UInt8]?
    ) -> [Int32] {
        switch form {
        case .descriptor: [Int32(truncatingIfNeeded: value)].filter { $0 >= 0 }
        case .directory: []
        case .pollDescriptors: polled(value, count: call.arguments[1], read)
        case .descriptorSet: selected(value, count: call.arguments[0], read)
        default: []
        }
    }

    /// poll(2): `struct pollfd` is an `int` and two `short`s.
    private static func polled(_ address: UInt, count: UInt, _ read: (UInt, Int) -> [UInt8]?) -> [Int32] {
        let count = Int(min(count, UInt(descriptorLimit)))
        guard count > 0, let bytes = read(address, count * 8) else { return [] }
        return (0..<count).map { Int32(truncatingIfNeeded: bytes.number(at: $0 * 8, 4)) }.filter { $0 >= 0 }
    }

    /// select(2): a bit for each descriptor.
    private static func selected(_ address: UInt, count: UInt, _ read: (UInt, Int) -> [UInt8]?) -> [Int32] {
        let count = Int(min(count, 1024))
        guard address != 0, count > 0, let bytes = read(address, (count + 63) / 64 * 8) else { return [] }
        let set = (0..<count).filter { bytes[$0 / 8] >> ($0 % 8) & 1 != 0 }
        return set.prefix(descriptorLimit).map(Int32.init)
    }

    private static func text(
        _ form: CallSignature.Form,
        _ value: UInt,
        _ descriptors: [Int32],
        _ call: SystemCall,
        _ read: (UInt, Int) -> [UInt8]?
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
        case .timespec: return time(value, unit: 1, read)
        case .timeval: return time(value, unit: 1000, read)
        case .path: return CText.path(at: value, read) ?? ""
        case .pollDescriptors, .descriptorSet: return descriptors.map(String.init).joined(separator: " ")
        case .socketAddress: return SocketAddress(at: value, length: length(of: call), read)?.text ?? ""
        case .names(let names): return names.text(names.areBits ? value & 0xffff_ffff : value)
        }
    }

    /// Seconds, and nanoseconds or microseconds, both of 64 bits.
    private static func time(_ address: UInt, unit: Int64, _ read: (UInt, Int) -> [UInt8]?) -> String {
        guard address != 0 else { return "none" }
        guard let bytes = read(address, 16) else { return "" }
        let seconds = Int64(bitPattern: bytes.number(at: 0, 8))
        let (scaled, overflow) = seconds.multipliedReportingOverflow(by: 1_000_000_000)
        let part = Int64(bitPattern: bytes.number(at: 8, 8))
        guard !overflow, seconds >= 0, (0..<1_000_000_000).contains(part) else { return "" }
        let (sum, carried) = scaled.addingReportingOverflow(part * unit)
        return carried ? "" : DurationText(nanoseconds: sum).short
    }

    /// An address's length is the argument behind it.
    private static func length(of call: SystemCall) -> Int {
        Int(clamping: call.name == "connect" ? call.arguments[2] : call.arguments[5])
    }
}

extension [UInt8] {
    /// A little-endian number of so many bytes; the list is long enough.
    package func number(at offset: Int, _ size: Int) -> UInt64 {
        (0..<size).reduce(0) { $0 | UInt64(self[offset + $1]) << UInt64($1 * 8) }
    }
}
