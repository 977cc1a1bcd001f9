import StallReports
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
    static func decoded(_ json: [UInt8], records limit: Int) throws -> TelemetryLogs {
        try ReportJSON.decode(TelemetryLogs.self, from: json, userInfo: [Room.key: Room(limit)])
    }

    /// There are more records than the limit.
    struct TooMany: Error {}

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
                key = try fields.decodeIfPresent(String.self, forKey: .key) ?? ""
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
            let text = try? container.decode(String.self)
            value = try text.flatMap { Int64($0) } ?? container.decode(Int64.self)
        }
    }
}
