import Foundation
import HTTPTypes
import Hummingbird
import NIOCore

extension JSONEncoder {
    /// For all JSON that the collector writes: with sorted keys, and with slashes as they are.
    static func plain() -> JSONEncoder {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return encoder
    }
}

enum JSONAnswer {
    static func make(_ value: some Encodable, status: HTTPResponse.Status = .ok) throws -> Response {
        bytes(
            [UInt8](try JSONEncoder.plain().encode(value)) + [UInt8(ascii: "\n")],
            type: "application/json",
            status: status
        )
    }

    /// - Parameter client: Is served until all is sent. Nil: not limited.
    static func bytes(
        _ bytes: [UInt8],
        type: String,
        status: HTTPResponse.Status = .ok,
        headers: HTTPFields = [:],
        to client: ClientLimit.Client? = nil
    ) -> Response {
        var fields = headers
        fields[.contentType] = type
        return Response(status: status, headers: fields, body: body(bytes, client))
    }

    /// In bytes. A peer has a time limit for each piece, so large answers are sent in several pieces.
    static let pieceBytes = 256 << 10

    private static func body(_ bytes: [UInt8], _ client: ClientLimit.Client?) -> ResponseBody {
        guard bytes.count > pieceBytes else { return ResponseBody(byteBuffer: ByteBuffer(bytes: bytes)) }
        return ResponseBody(contentLength: bytes.count) { writer in
            defer { withExtendedLifetime(client) {} }
            try await write(ByteBuffer(bytes: bytes), to: &writer)
            try await writer.finish(nil)
        }
    }

    /// Writes it in pieces.
    static func write(_ buffer: ByteBuffer, to writer: inout any ResponseBodyWriter) async throws {
        var rest = buffer
        while let piece = rest.readSlice(length: min(rest.readableBytes, pieceBytes)), piece.readableBytes > 0 {
            try await writer.write(piece)
        }
    }
}
