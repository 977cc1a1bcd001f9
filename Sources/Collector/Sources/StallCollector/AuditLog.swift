import Foundation
import Glibc
import HTTPTypes
import StallReports
import StallStore
import Synchronization

/// Records who sent what, and which actions were taken: one JSON document per line, in a file of limited size. Any thread.
final class AuditLog: Sendable {
    struct Entry: Encodable {
        var at = Timestamp.now()
        /// `ingest`, `ingest-logs`, `access`, `tokens`, `retention`, `start`.
        var action: String
        var team: String?
        var peer: String?
        /// 202 for what was accepted, also of log records (which are answered by 200), a refusal's status code, or the action's result.
        var outcome: String
        var accepted: Int?
        var refused: Int?
        /// Why something was refused: the first reason only.
        var reason: String?

        init(action: String, outcome: String, reason: String? = nil) {
            (self.action, self.outcome, self.reason) = (action, outcome, reason)
        }

        init(action: String, team: String, peer: String?, receipt: IngestReceipt) {
            (self.action, self.team, self.peer, outcome) = (action, team, peer, "202")
            (accepted, refused, reason) = (receipt.accepted, receipt.refused, receipt.reasons.first?.reason)
        }

        init(action: String, team: String, peer: String?, refusal: Refusal) {
            (self.action, self.team, self.peer) = (action, team, peer)
            (outcome, reason) = ("\(refusal.status.code)", refusal.description)
        }
    }

    /// In bytes. A larger file is renamed to `NAME.1`, which replaces an earlier one.
    private let maximumBytes: Int
    private let path: String
    private let file: Mutex<File>

    private struct File {
        var descriptor: Int32
        var bytes: Int
        /// Whether its last line was cut off, by a full disk: the next one must not join it.
        var isCutOff: Bool
    }

    /// - Throws: If the file cannot be created or written.
    init(path: String, maximumBytes: Int = 32 << 20) throws(CollectorError) {
        (self.path, self.maximumBytes) = (path, maximumBytes)
        guard let opened = Self.open(path) else { throw CollectorError("the audit log \(path) cannot be written to") }
        file = Mutex(opened)
    }

    /// A line that cannot be written is lost.
    func write(_ entry: Entry) {
        guard let json = try? JSONEncoder.plain().encode(entry) else { return }
        file.withLock { file in
            var line = [UInt8](json) + [UInt8(ascii: "\n")]
            if file.bytes.addingSaturated(line.count) > maximumBytes { rotate(&file) }
            if file.isCutOff { line.insert(UInt8(ascii: "\n"), at: 0) }
            let count = unsafe Glibc.write(file.descriptor, line, line.count)
            guard count > 0 else { return }
            file.bytes += count
            file.isCutOff = count < line.count
        }
    }

    private func rotate(_ file: inout File) {
        // There may be nothing to rename: an operator has removed the file, or the new one could not be created the last time.
        guard unsafe rename(path, path + ".1") == 0 || errno == ENOENT, let next = Self.open(path) else { return }
        close(file.descriptor)
        file = next
    }

    private static func open(_ path: String) -> File? {
        let descriptor = unsafe Glibc.open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { return nil }
        let bytes = Int(clamping: lseek(descriptor, 0, SEEK_END))
        return File(descriptor: descriptor, bytes: bytes, isCutOff: isCutOff(path, at: bytes))
    }

    /// False if it is not known: this process needs no permission to read the log.
    private static func isCutOff(_ path: String, at end: Int) -> Bool {
        guard end > 0 else { return false }
        let descriptor = unsafe Glibc.open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return false }
        defer { close(descriptor) }
        var last: UInt8 = 0
        return unsafe pread(descriptor, &last, 1, end - 1) == 1 && last != UInt8(ascii: "\n")
    }

    deinit { _ = file.withLock { close($0.descriptor) } }
}
