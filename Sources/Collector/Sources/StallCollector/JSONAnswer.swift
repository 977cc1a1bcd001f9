internal import Foundation
internal import HTTPTypes
internal import Hummingbird
internal import NIOCore

enum JSONAnswer {
    static func make(_ value: some Encodable, status: HTTPResponse.Status = .ok) throws -> Response {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return bytes(
            [UInt8](try encoder.encode(value)) + [UInt8(ascii: "\n")],
            type: "application/json",
            status: status
        )
    }

    static func bytes(
        _ bytes: [UInt8],
        type: String,
        status: HTTPResponse.Status = .ok,
        headers: HTTPFields = [:]
    ) -> Response {
        var fields = headers
        fields[.contentType] = type
        return Response(status: status, headers: fields, body: ResponseBody(byteBuffer: ByteBuffer(bytes: bytes)))
    }
}
