import GzipCompression
package import StallReports
import TapeDecoding
import ZstdCompression

/// A report or a run record, checked as a whole: everything that is accepted can be shown later. The frames of a report's stacks may have no
/// texts, which a store does not need.
package enum ArrivedDocument: Hashable {
    case stall(StallReport)
    /// The parts of a report that a store needs. The others are checked, and were not decoded.
    case outline(ArrivedOutline)
    case run(RunRecord)

    /// Decodes a document according to the schema that it names. Nothing in it is trusted.
    ///
    /// - Throws: Why it is refused.
    package init(json bytes: [UInt8]) throws(ReportError) {
        if let document = Self.quickly(bytes) {
            self = document
        } else {
            self = try Self.thoroughly(bytes)
        }
    }

    /// Nil if the reports' own decoder decides: the document is unusual, or wrong.
    package static func quickly(_ bytes: [UInt8]) -> ArrivedDocument? {
        TapeDecoder.reading(bytes) { decoder in
            switch try? SchemaOnly(from: decoder).schema {
            case StallReport.currentSchema:
                if decoder.isReport, let outline = ArrivedOutline(checked: decoder) {
                    .outline(outline)
                } else {
                    (try? StallReport(from: decoder)).map { .stall($0) }
                }
            case RunRecord.currentSchema: (try? RunRecord(from: decoder)).map { .run($0) }
            default: nil
            }
        }
    }

    package static func thoroughly(_ bytes: [UInt8]) throws(ReportError) -> ArrivedDocument {
        do throws(ReportError) {
            return .stall(try StallReport(json: bytes))
        } catch {
            guard error.code == .unsupportedSchema else { throw error }
            return .run(try RunRecord(json: bytes))
        }
    }

    private struct SchemaOnly: Decodable {
        let schema: String
    }

    // MARK: In a store

    /// The longest document that a store returns.
    private static let maximumBytes = 64 << 20

    /// As stores keep it. Nil if there is not enough memory.
    static func packed(_ json: [UInt8]) -> [UInt8]? { Zstd.compressed(json) }

    /// The document as it was sent. Earlier versions stored it compressed with gzip.
    package static func unpacked(_ body: [UInt8]) throws -> [UInt8] {
        guard body.starts(with: Zstd.magic) else { return try Gzip.decompressed(body, limit: maximumBytes) }
        return try Zstd.decompressed(body, limit: maximumBytes)
    }
}
