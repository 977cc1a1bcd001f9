package import StallReports
import TapeDecoding

/// A report or a run record, decoded as a whole: everything that is accepted can be shown later.
package enum ArrivedDocument: Hashable {
    case stall(StallReport)
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

    /// Nil if `JSONDecoder` decides: the document is unusual, or wrong.
    package static func quickly(_ bytes: [UInt8]) -> ArrivedDocument? {
        TapeDecoder.reading(bytes) { decoder in
            switch try? SchemaOnly(from: decoder).schema {
            case StallReport.currentSchema: (try? StallReport(from: decoder)).map { .stall($0) }
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
}
