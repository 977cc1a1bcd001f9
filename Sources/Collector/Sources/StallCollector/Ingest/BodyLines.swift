import Glibc
import GzipCompression
import StallStore

/// The lines of a request's body, decompressed piece by piece: only one line and one piece are in memory at a time.
struct BodyLines {
    enum Line {
        /// Without its newline. May be empty.
        case whole([UInt8])
        case tooLong
    }

    /// Why the body cannot be read to the end.
    enum Failure: Error {
        case tooLarge, damaged
    }

    private let limits: IngestLimits
    private let unpacker: BodyUnpacker?
    private var piece: [UInt8]
    private var position = 0
    private(set) var unpackedBytes = 0
    /// The bytes of the lines that were returned. Of a body that is not compressed, all bytes are unpacked at once.
    var returnedBytes: Int { unpackedBytes - (piece.count - position) }

    init(_ body: [UInt8], _ coding: BodyCoding, _ limits: IngestLimits) throws(Failure) {
        self.limits = limits
        do throws(Gzip.Failure) {
            unpacker = try BodyUnpacker(body, coding)
        } catch {
            throw .tooLarge
        }
        (piece, unpackedBytes) = unpacker == nil ? (body, body.count) : ([], 0)
    }

    /// The next line. Nil after the last one.
    mutating func next() throws(Failure) -> Line? {
        var (line, isTooLong, hasBegun): ([UInt8], Bool, Bool) = ([], false, false)
        while true {
            if position == piece.count {
                guard try nextPiece() else { return hasBegun ? (isTooLong ? .tooLong : .whole(line)) : nil }
            }
            hasBegun = true
            let end = newline()
            let part = piece[position..<(end ?? piece.count)]
            if isTooLong || line.count.addingSaturated(part.count) > limits.recordBytes {
                (line, isTooLong) = ([], true)
            } else {
                line += part
            }
            position = part.endIndex
            if end != nil {
                position += 1
                return isTooLong ? .tooLong : .whole(line)
            }
        }
    }

    /// The place of the next one in the piece.
    private func newline() -> Int? {
        unsafe piece.withUnsafeBytes { bytes in
            guard let start = bytes.baseAddress else { return nil }
            let found = unsafe memchr(start + position, Int32(UInt8(ascii: "\n")), bytes.count - position)
            return unsafe found.map { unsafe UnsafeRawPointer($0) - start }
        }
    }

    private mutating func nextPiece() throws(Failure) -> Bool {
        do throws(Gzip.Failure) {
            guard let next = try unpacker?.next() else { return false }
            (piece, position) = (next, 0)
        } catch {
            throw error == .tooLarge ? .tooLarge : .damaged
        }
        unpackedBytes = unpackedBytes.addingSaturated(piece.count)
        guard unpackedBytes <= limits.unpackedBytes else { throw .tooLarge }
        return true
    }
}
