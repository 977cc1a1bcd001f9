public import StallReports

/// A document that a monitor sent, checked, with the fields that a store needs.
public enum Arrival: Sendable {
    /// A stall with its report.
    case stall(ArrivedStall)
    /// A run record, with the stalls that it counted without a report.
    case run(ArrivedRun)
}

/// Why a document is refused. The text never quotes the document.
public struct RefusedArrival: Error, Hashable, CustomStringConvertible {
    /// What is wrong, in words that can be sent back to the sender.
    public let description: String
    /// Creates one with a description, which must not quote the document.
    public init(_ description: String) { self.description = description }
}

extension Arrival {
    /// How far a document's time may be ahead of this machine's clock.
    package static let aheadNs = Hours.dayNs

    /// Reads a report or a run record, according to the schema that the document names.
    ///
    /// - Parameters:
    ///   - json: The document as it was sent. Nothing in it is trusted.
    ///   - now: The time of arrival. A document from more than a day later was written with a wrong clock, and is refused.
    /// - Throws: Why the document is refused.
    public init(json: [UInt8], team: String, now: Timestamp = .now()) throws(RefusedArrival) {
        do throws(ReportError) {
            // The whole report is checked, not only what queries use, so that everything that is accepted can be shown later.
            switch try ArrivedDocument(json: json) {
            case .stall(let report): self = .stall(try ArrivedStall(ArrivedOutline(report), json, team, now))
            case .outline(let outline): self = .stall(try ArrivedStall(outline, json, team, now))
            case .run(let run): self = .run(try ArrivedRun(run, json, team, now))
            }
        } catch {
            throw RefusedArrival(error.detail.map { "\(error.code.name): \($0)" } ?? error.code.name)
        }
    }
}

extension Arrival {
    /// An estimate of the memory it uses, in bytes: the compressed document, names and counts.
    public var heldBytes: Int {
        switch self {
        case .stall(let stall): stall.body.count + stall.aliases.count * 32 + 1024
        case .run(let run):
            run.counted.reduce(run.body.count + 512) { $0 + 192 + $1.service.utf8.count }
                + run.watchedServices.reduce(0) { $0 + 64 + $1.service.utf8.count }
        }
    }
}

/// Limits of the numbers in a store: 366 days and a billion, so that sums of very many values fit into 64 bits.
enum ArrivalBounds {
    static let longestNs: Int64 = 366 * Hours.dayNs
    static let count: Int64 = 1_000_000_000
    static let names = 64
    static let nameLength = 256

    static func length(_ nanoseconds: Int64) -> Int64 { min(max(0, nanoseconds), longestNs) }
    static func count(_ count: Int) -> Int64 { min(max(0, Int64(clamping: count)), Self.count) }
    static func name(_ text: String?) -> String { VisibleText.of(text ?? "", limit: nameLength) }

    /// - Throws: If the moment is before the year 2000 or in the future: no time range would show it, and it would not be removed
    ///   by age.
    static func moment(_ timestamp: Timestamp, _ now: Timestamp) throws(ReportError) -> Int64 {
        let moment = timestamp.sinceEpoch
        guard timestamp.seconds > 946_684_800 else {
            throw ReportError(.malformed, detail: "its time lies before the year 2000; is the sender's clock right?")
        }
        guard moment < now.advanced(byNanoseconds: Arrival.aheadNs).sinceEpoch else {
            throw ReportError(.malformed, detail: "its time lies in the future; is the sender's clock right?")
        }
        return moment
    }

    static func packed(_ json: [UInt8]) throws(ReportError) -> [UInt8] {
        guard let packed = ArrivedDocument.packed(json) else {
            throw ReportError(.malformed, detail: "it is too large")
        }
        return packed
    }
}

extension Timestamp {
    /// Nanoseconds since 1970, saturated to 64 bits.
    package var sinceEpoch: Int64 { nanoseconds(since: Timestamp(seconds: 0)) }

    package init(sinceEpoch nanoseconds: Int64) { self.init(seconds: 0, nanoseconds: nanoseconds) }
}

/// Whole hours and days since 1970.
package enum Hours {
    package static let hourNs: Int64 = 3_600_000_000_000
    package static let dayNs: Int64 = 24 * hourNs

    /// Requires a moment after 1970, which all stored moments are.
    package static func hour(_ nanoseconds: Int64) -> Int64 { nanoseconds / hourNs }
    /// The same for days.
    package static func day(_ nanoseconds: Int64) -> Int64 { nanoseconds / dayNs }
}
