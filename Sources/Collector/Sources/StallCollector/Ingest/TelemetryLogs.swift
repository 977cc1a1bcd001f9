import Foundation
import Synchronization

/// A request of an OpenTelemetry log exporter: OTLP over HTTP in its JSON encoding. Only the fields that stalls use are decoded.
///
/// The encoding is that of protocol buffers in JSON: 64-bit numbers are strings or numbers, and every field may be missing.
struct TelemetryLogs: Decodable {
    var resourceLogs: [ResourceLogs]?

    struct ResourceLogs: Decodable {
        var resource: Resource?
        var scopeLogs: [ScopeLogs]?
    }

    struct Resource: Decodable {
        var attributes: Attributes?
    }

    struct ScopeLogs: Decodable {
        var logRecords: [Entry]?
    }

    /// - Parameter limit: The largest number of records. A record can be two bytes, and takes a hundred when it is decoded.
    /// - Throws: ``TooMany``, or why it has another form.
    static func decoded(_ json: Data, records limit: Int) throws -> TelemetryLogs {
        // The decoder also reads UTF-16 and UTF-32, in which a long word would not be found. Only in these JSON has bytes of zero.
        guard !json.contains(0) else { throw OtherEncoding() }
        guard !hasLongWord(json) else { throw LongWord() }
        let decoder = JSONDecoder()
        decoder.userInfo[Room.key] = Room(limit)
        return try decoder.decode(TelemetryLogs.self, from: json)
    }

    /// There are more records than the limit.
    struct TooMany: Error {}

    /// It is not UTF-8, in which JSON is sent (RFC 8259).
    struct OtherEncoding: Error {}

    /// There is a number or a member's name that is longer than any of a request.
    struct LongWord: Error {}

    /// In bytes. A number of 64 bits has twenty.
    private static let longest = (number: 64, name: 256)

    /// Whether there is a number or a member's name that could do harm. At some numbers of 168 digits and more, Foundation's decoder ends the
    /// process (Swift 6.3). It hashes each name, and for one of accents that takes the square of their number.
    private static func hasLongWord(_ json: Data) -> Bool {
        var (number, text) = (0, 0)
        var (isText, isEscaped) = (false, false)
        for byte in json {
            if isText {
                isText = isEscaped || byte != UInt8(ascii: "\"")
                isEscaped = !isEscaped && byte == UInt8(ascii: "\\")
                text += 1
                continue
            }
            switch byte {
            case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "e"), UInt8(ascii: "E"),
                UInt8(ascii: "+"), UInt8(ascii: "-"):
                number += 1
                if number > longest.number { return true }
                continue
            case UInt8(ascii: "\""): (isText, text) = (true, 0)
            // What comes before it is a name.
            case UInt8(ascii: ":"): if text > longest.name { return true }
            default: break
            }
            number = 0
        }
        return false
    }

    /// For how many more records there is room.
    private final class Room: Sendable {
        static let key = CodingUserInfoKey(rawValue: "room")!
        private let left: Atomic<Int>

        init(_ limit: Int) { left = Atomic(limit) }

        func take() throws(TooMany) {
            guard left.wrappingSubtract(1, ordering: .relaxed).newValue >= 0 else { throw TooMany() }
        }
    }

    /// An element of a list of records.
    struct Entry: Decodable {
        /// Nil if it has another form, which does not make the other records unreadable.
        let record: Record?

        init(from decoder: any Decoder) throws {
            try (decoder.userInfo[Room.key] as? Room)?.take()
            record = try? Record(from: decoder)
        }
    }

    struct Record: Decodable {
        var timeUnixNano: Number?
        var observedTimeUnixNano: Number?
        var severityText: String?
        var body: Value?
        var attributes: Attributes?
        var traceId: String?
        var spanId: String?
    }

    /// Named values. If a name occurs more than once, the first value counts.
    struct Attributes: Decodable {
        let values: [String: Value]

        init(values: [String: Value] = [:]) { self.values = values }

        init(from decoder: any Decoder) throws {
            let pairs = try decoder.singleValueContainer().decode([Pair].self)
            values = Dictionary(pairs.map { ($0.key, $0.value) }, uniquingKeysWith: { first, _ in first })
        }

        func text(_ name: String) -> String? { values[name]?.text }
        func number(_ name: String) -> Int64? { values[name]?.number }

        /// A value of another form is no value of a stall, and does not make the others unreadable.
        private struct Pair: Decodable {
            let key: String
            let value: Value

            init(from decoder: any Decoder) throws {
                let fields = try decoder.container(keyedBy: CodingKeys.self)
                let name = try fields.decodeIfPresent(String.self, forKey: .key) ?? ""
                // The names of attributes are hashed, too. No stall has a longer one.
                key = name.utf8.count > longest.name ? "" : name
                value = (try? fields.decode(Value.self, forKey: .value)) ?? .other
            }

            private enum CodingKeys: String, CodingKey { case key, value }
        }
    }

    enum Value: Decodable {
        case text(String)
        case number(Int64)
        /// Lists, maps, booleans and fractions, which no attribute of a stall has.
        case other

        var text: String? { if case .text(let text) = self { text } else { nil } }
        var number: Int64? { if case .number(let number) = self { number } else { nil } }

        init(from decoder: any Decoder) throws {
            let container = try decoder.container(keyedBy: CodingKeys.self)
            if let text = try container.decodeIfPresent(String.self, forKey: .stringValue) {
                self = .text(text)
            } else if let number = try container.decodeIfPresent(Number.self, forKey: .intValue) {
                self = .number(number.value)
            } else {
                self = .other
            }
        }

        private enum CodingKeys: String, CodingKey { case stringValue, intValue }
    }

    struct Number: Decodable {
        var value: Int64

        init(from decoder: any Decoder) throws {
            let container = try decoder.singleValueContainer()
            if let number = try? container.decode(Int64.self) {
                value = number
            } else if let number = Int64(try container.decode(String.self)) {
                value = number
            } else {
                throw DecodingError.dataCorruptedError(in: container, debugDescription: "it is no 64-bit number")
            }
        }
    }
}
