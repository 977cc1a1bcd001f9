import Glibc
import StallReports

/// The acknowledged shipments, in a file that survives the process's death at any moment.
///
/// A line is appended for each acknowledgement, and is on the disk before the next request. After an interruption in between, the
/// shipment is sent again. An incomplete line is ignored. The file is rewritten with the latest version of each id when it is
/// opened, and when it has grown to twice the remembered entries.
struct Checkpoint: ~Copyable {
    private static let header = "stall-shipped/1\n"

    private let path: String
    private let limit: Int
    private var descriptor: Int32
    private var sent: [ULID: Shipment.Version]
    /// The number of lines since the file was last rewritten.
    private var appended = 0

    /// Creates the file if it does not exist. Throws if another process has it open, or it is not a checkpoint.
    ///
    /// - Parameter limit: The number of remembered ids; the oldest are dropped first. A report directory contains far fewer.
    init(path: String, limit: Int = 1 << 18) throws {
        var opened = try Self.openLocked(path)
        let known: [ULID: Shipment.Version]
        do {
            known = Self.latest(limit, of: try Self.read(opened, path, limit))
            try Self.rewrite(path, known, &opened)
        } catch {
            close(opened)
            throw error
        }
        (self.path, self.limit, descriptor, sent) = (path, limit, opened, known)
    }

    deinit { close(descriptor) }

    /// Whether this version or a later one was acknowledged.
    func has(_ shipment: Shipment) -> Bool { sent[shipment.id].map { !shipment.version.replaces($0) } ?? false }

    /// Remembers the shipments, and writes them to the disk. On an error only this process remembers them.
    mutating func note(_ shipments: [Shipment]) throws {
        for shipment in shipments { sent[shipment.id] = shipment.version }
        appended += shipments.count
        guard appended < limit, !Self.isRemoved(path) else {
            sent = Self.latest(limit, of: sent)
            try Self.rewrite(path, sent, &descriptor)
            appended = 0
            return
        }
        let lines = shipments.map { Self.line($0.id, $0.version) }.joined()
        try Self.append(Array(lines.utf8), to: descriptor, path)
    }

    // The lines of the file.

    private static func line(_ id: ULID, _ version: Shipment.Version) -> String {
        switch version {
        case .ongoing: "\(id) ongoing\n"
        case .provisional: "\(id) provisional\n"
        case .ended: "\(id) ended\n"
        case .counted(let nanoseconds): "\(id) \(nanoseconds)\n"
        case .closed(let nanoseconds): "\(id) \(nanoseconds) closed\n"
        }
    }

    private static func entry(_ line: Substring) -> (ULID, Shipment.Version)? {
        let words = line.split(separator: " ")
        guard (2...3).contains(words.count), let id = ULID(String(words[0])) else { return nil }
        if words.count == 3 { return words[2] == "closed" ? Int64(words[1]).map { (id, .closed($0)) } : nil }
        switch words[1] {
        case "ongoing": return (id, .ongoing)
        case "provisional": return (id, .provisional)
        case "ended": return (id, .ended)
        default: return Int64(words[1]).map { (id, .counted($0)) }
        }
    }

    // The file.

    private static func openLocked(_ path: String) throws -> Int32 {
        while true {
            let descriptor = unsafe open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0o600)
            guard descriptor >= 0 else { throw problem(path) }
            // The file is replaced by rename(2): /dev/null must not be.
            guard isFile(descriptor) else {
                close(descriptor)
                throw ShippingError("\(path) is not a regular file; give another name with --checkpoint")
            }
            guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else {
                defer { close(descriptor) }
                throw errno == EWOULDBLOCK
                    ? ShippingError("\(path): another process ships with this checkpoint; end it, or give --checkpoint")
                    : problem(path)
            }
            // The lock's owner may have replaced the file in the meantime.
            if isCurrent(descriptor, path) { return descriptor }
            close(descriptor)
        }
    }

    private static func isFile(_ descriptor: Int32) -> Bool {
        var status = stat()
        return unsafe fstat(descriptor, &status) == 0 && status.st_mode & S_IFMT == S_IFREG
    }

    private static func isCurrent(_ descriptor: Int32, _ path: String) -> Bool {
        FileIdentity(descriptor: descriptor).map { $0 == FileIdentity(path: path) } ?? false
    }

    /// With its directory, which can be made again: what is written to the file would then be lost.
    private static func isRemoved(_ path: String) -> Bool { FileIdentity(path: path) == nil && errno == ENOENT }

    private static func read(_ descriptor: Int32, _ path: String, _ limit: Int) throws -> [ULID: Shipment.Version] {
        var bytes: [UInt8] = []
        var part = [UInt8](repeating: 0, count: 1 << 16)
        while true {
            let count = unsafe Glibc.read(descriptor, &part, part.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw problem(path) }
            if count == 0 { break }
            bytes += part[..<count]
            // Twice as many lines as entries, each with an id and a 64-bit number.
            guard bytes.count <= header.utf8.count + limit * 2 * 64 else { throw notACheckpoint(path) }
        }
        if bytes.isEmpty { return [:] }
        guard bytes.starts(with: header.utf8) else { throw notACheckpoint(path) }
        let whole = bytes.prefix(through: bytes.lastIndex(of: UInt8(ascii: "\n")) ?? 0)
        var sent: [ULID: Shipment.Version] = [:]
        for line in String(decoding: whole, as: UTF8.self).split(separator: "\n").dropFirst() {
            guard let (id, version) = entry(line), sent[id].map(version.replaces) ?? true else { continue }
            sent[id] = version
        }
        return sent
    }

    private static func latest(_ limit: Int, of sent: [ULID: Shipment.Version]) -> [ULID: Shipment.Version] {
        guard sent.count > limit else { return sent }
        let oldest = sent.keys.sorted()[sent.count - limit]
        return sent.filter { $0.key >= oldest }
    }

    /// Rewrites the file completely or not at all. The new file is locked before it gets the name.
    private static func rewrite(_ path: String, _ sent: [ULID: Shipment.Version], _ descriptor: inout Int32) throws {
        let partial = path + ".partial"
        // What an interrupted process left there. It could also be a pipe, and opening that would wait for its reader.
        unsafe unlink(partial)
        let new = unsafe open(partial, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0o600)
        guard new >= 0 else { throw problem(partial) }
        do {
            guard flock(new, LOCK_EX | LOCK_NB) == 0 else { throw problem(partial) }
            let lines = sent.sorted { $0.key < $1.key }.map { line($0.key, $0.value) }.joined()
            try append(Array((header + lines).utf8), to: new, partial)
            guard unsafe rename(partial, path) == 0 else { throw problem(path) }
        } catch {
            close(new)
            throw error
        }
        close(descriptor)
        descriptor = new
    }

    private static func append(_ bytes: [UInt8], to descriptor: Int32, _ path: String) throws {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = unsafe rest.withUnsafeBytes { unsafe write(descriptor, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw problem(path) }
            rest = rest.dropFirst(count)
        }
        guard fdatasync(descriptor) == 0 else { throw problem(path) }
    }

    private static func problem(_ path: String, _ number: Int32 = errno) -> ShippingError {
        let reason = errorText(number)
        return ShippingError("cannot keep the checkpoint \(path): \(reason); give another place with --checkpoint")
    }

    private static func notACheckpoint(_ path: String) -> ShippingError {
        ShippingError("\(path) is no checkpoint of 'ship'; give another name with --checkpoint, or remove it")
    }
}
