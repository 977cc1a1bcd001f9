import GzipCompression
import ZstdCompression

/// How a request's body is compressed. The names are those of HTTP.
enum BodyCoding: String {
    case identity, gzip, zstd

    /// The memory that decompressing takes, if it is more than little.
    var windowBytes: Int { self == .zstd ? Zstd.Unpacker.windowBytes : 0 }
}

/// Decompresses a request's body piece by piece.
enum BodyUnpacker {
    case gzip(Gzip.Unpacker)
    case zstd(Zstd.Unpacker)

    /// Nil if the body is not compressed.
    init?(_ body: [UInt8], _ coding: BodyCoding) throws(Gzip.Failure) {
        switch coding {
        case .identity: return nil
        case .gzip: self = .gzip(try Gzip.Unpacker(body))
        case .zstd: self = .zstd(try Zstd.Unpacker(body))
        }
    }

    /// The next bytes, at least one. Nil at the end.
    func next() throws(Gzip.Failure) -> [UInt8]? {
        switch self {
        case .gzip(let unpacker): try unpacker.next()
        case .zstd(let unpacker): try unpacker.next()
        }
    }
}
