import Foundation
import Glibc
import StallReports
import StallStore
import WebRequests

/// A receiver of alerts.
struct AlertReceiver: Sendable, Hashable {
    enum Way: Sendable, Hashable {
        /// Gets the message's JSON by POST: Slack, Mattermost or your own server.
        case webhook(URL)
        /// A program with its arguments gets the message's JSON on its standard input.
        case program([String])
        /// Gets a mail, sent with this machine's `sendmail`.
        case mail(String)
    }

    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    /// The time limit of each attempt.
    static let patience = Duration.seconds(20)
    var way: Way
    /// The file that contains the webhook's address.
    var file: String?

    /// Its name for users. A webhook's path is left out, because it is a secret.
    var name: String {
        switch way {
        case .webhook(let url): "webhook \(url.host() ?? "")" + (file.map { " of \($0)" } ?? "")
        case .program(let words): "exec \(words[0])"
        case .mail(let address): "mail \(address)"
        }
    }

    /// Its name in the store, which does not depend on its place in the rules. A hash, because an address or an argument can be a secret.
    var key: String {
        let target =
            switch way {
            case .webhook(let url): ["webhook", file ?? url.absoluteString]
            case .program(let words): ["exec"] + words
            case .mail(let address): ["mail", address]
            }
        return Data(SHA256.hash(Array(target.joined(separator: "\0").utf8)).prefix(12)).base64EncodedString()
    }

    /// - Parameter mailer: A program that works like `sendmail`.
    func send(_ message: AlertMessage, mailer: String = "/usr/sbin/sendmail") async throws {
        switch way {
        case .webhook(let url): try await Self.post(message.json(), to: url)
        case .program(let words): try await Self.run(words, message.json())
        case .mail(let address):
            try await Self.run([mailer, "-t", "-oi"], Self.mail(message, to: address))
        }
    }

    private static func post(_ body: Data, to url: URL) async throws {
        var request = WebRequest(url.absoluteString, limit: .whole(patience))
        request.fields.append(("Content-Type", "application/json"))
        request.body = Array(body)
        let status: Int
        do {
            status = try await request.answer(bytes: 1 << 16).head.status
        } catch {
            // The error's text may contain the address, so it is not shown.
            throw Failure(description: (error as? WebRequest.Failure)?.kind ?? "it cannot be reached")
        }
        guard (200..<300).contains(status) else { throw Failure(description: "it answered \(status)") }
    }

    /// - Throws: If it does not start, exits with a code other than 0, or takes too long. In the last case it is killed.
    private static func run(_ words: [String], _ input: Data) async throws {
        let process = Process()
        process.executableURL = URL(filePath: words[0])
        process.arguments = Array(words.dropFirst())
        let standardInput = try file(with: input)
        defer { try? standardInput.close() }
        process.standardInput = standardInput
        process.standardOutput = FileHandle.nullDevice
        process.standardError = FileHandle.nullDevice
        let (ends, end) = AsyncStream.makeStream(of: Int32.self)
        process.terminationHandler = {
            end.yield($0.terminationReason == .exit ? $0.terminationStatus : 128 + $0.terminationStatus)
            end.finish()
        }
        try process.run()
        let identifier = process.processIdentifier
        let clock = Task {
            try await Task.sleep(for: patience)
            kill(identifier, SIGKILL)
        }
        defer { clock.cancel() }
        for await status in ends {
            if status == 0 { return }
            let isKilled = status == 128 + SIGKILL
            throw Failure(
                description: isKilled ? "it took more than \(patience), or was killed" : "it ended with \(status)"
            )
        }
        kill(identifier, SIGKILL)
        throw CancellationError()
    }

    /// A file instead of a pipe: a program that does not read its input then blocks nothing. It has no name, so that no other user can
    /// open it, and nothing is left behind.
    private static func file(with input: Data) throws -> FileHandle {
        let directory = FileManager.default.temporaryDirectory.path
        let path = "\(directory)/stall-alert-\(ULID.make())"
        let descriptor = unsafe open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw Failure(description: "no file can be created in \(directory)") }
        _ = unsafe unlink(path)
        let file = FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
        try file.write(contentsOf: input)
        try file.seek(toOffset: 0)
        return file
    }

    private static func mail(_ message: AlertMessage, to address: String) -> Data {
        let count = Int64(message.alerts.count)
        let text = Data(message.plainText.utf8).base64EncodedString(options: [
            .lineLength76Characters, .endLineWithLineFeed,
        ])
        return Data(
            """
            To: \(address)
            Subject: \(counted(count, "stall alert"))
            MIME-Version: 1.0
            Content-Type: text/plain; charset=utf-8
            Content-Transfer-Encoding: base64

            \(text)

            """.utf8
        )
    }
}

extension AlertReceiver: Decodable {
    private enum Key: String, CodingKey, CaseIterable { case webhook, webhookFile, exec, mail }

    init(from decoder: any Decoder) throws {
        let values = try decoder.values(Key.self)
        guard values.allKeys.count == 1, let key = values.allKeys.first else {
            throw DecodingError.dataCorrupted(
                .init(
                    codingPath: decoder.codingPath,
                    debugDescription: "a receiver is one of \(Key.allCases.map(\.rawValue).joined(separator: ", "))"
                )
            )
        }
        switch key {
        case .webhook, .webhookFile:
            var text = try values.decode(String.self, forKey: key)
            if key == .webhookFile {
                file = text
                guard let secret = try? String(contentsOfFile: text, encoding: .utf8) else {
                    throw values.mistake(key, "this file cannot be read")
                }
                text = secret.trimmingCharacters(in: .whitespacesAndNewlines)
            }
            guard let url = URL(string: text), ["http", "https"].contains(url.scheme?.lowercased()), url.host() != nil
            else { throw values.mistake(key, "an address begins with https:// or http://") }
            way = .webhook(url)
        case .exec:
            let words = try values.decode([String].self, forKey: key)
            guard let program = words.first, program.hasPrefix("/"),
                FileManager.default.isExecutableFile(atPath: program)
            else { throw values.mistake(key, "the first word is the whole path of a program that is there") }
            way = .program(words)
        case .mail:
            let address = try values.decode(String.self, forKey: key)
            guard address.contains("@"), address.allSatisfy({ $0.isASCII && !$0.isWhitespace && $0 != "," }) else {
                throw values.mistake(key, "this is one mail address")
            }
            way = .mail(address)
        }
    }
}

/// What receivers get: all changes since the last message.
///
/// Slack and compatible receivers show `text`. Its `&`, `<` and `>` are escaped for them, so that no name in it can mention a
/// channel.
struct AlertMessage: Encodable, Sendable {
    let text: String
    let alerts: [Entry]
    /// The text without escapes.
    let plainText: String

    private enum CodingKeys: String, CodingKey { case text, alerts }

    struct Entry: Encodable, Sendable {
        /// `firing` or `resolved`.
        var state: String
        var team: String
        var rule: String
        var subject: String
        var text: String
        var beganAt: Timestamp
        var endedAt: Timestamp?
        /// The address of its page.
        var url: String?

        private enum CodingKeys: String, CodingKey {
            case state, team, rule, subject, text, url
            case beganAt = "began_at"
            case endedAt = "ended_at"
        }
    }

    /// The largest number of lines of the text. `alerts` contains all alerts.
    private static let lineLimit = 40

    /// - Parameter address: the collector's address.
    init(_ alerts: [Alert], _ address: String?) {
        let entries = alerts.map { Entry($0, address) }
        self.alerts = entries
        var lines = entries.prefix(Self.lineLimit).map(\.line)
        if entries.count > lines.count { lines.append("and \(entries.count - lines.count) more") }
        plainText = lines.joined(separator: "\n")
        text = Self.escaped(plainText)
    }

    private static func escaped(_ text: String) -> String {
        text.replacingScalars(["&": "&amp;", "<": "&lt;", ">": "&gt;"])
    }

    func json() throws -> Data { try JSONEncoder.plain().encode(self) }
}

extension AlertMessage.Entry {
    init(_ alert: Alert, _ address: String?) {
        state = alert.endedAt == nil ? "firing" : "resolved"
        (team, rule, subject) = (alert.team, alert.rule, alert.subject)
        (text, beganAt, endedAt) = (alert.text, alert.beganAt, alert.endedAt)
        if let address {
            url = address + (Fingerprint(rawValue: subject).map { PageLinks.alerted($0) } ?? "/")
        }
    }

    var line: String {
        let words =
            endedAt == nil ? "\(rule): \(text)" : "\(rule), over since \(moment(endedAt ?? beganAt)) UTC: \(text)"
        return url.map { "\(words) \($0)" } ?? words
    }
}
