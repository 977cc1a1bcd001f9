import Foundation
import Glibc
import StallReports
import WebRequests

/// A receiver of mails: by SMTP, or by this machine's `sendmail`.
struct AlertMail: Sendable, Hashable {
    var address: String
    /// Nil: `stall-collector` at this host; `sendmail` chooses its own.
    var sender: String?
    /// Nil: `sendmail`.
    var server: Server?

    struct Server: Sendable, Hashable {
        /// Without the user's name.
        var url: String
        var host: String
        var requiresTLS: Bool
        var login: Login?
    }

    struct Login: Sendable, Hashable {
        var user: String
        var password: String
    }

    func send(_ message: AlertMessage, by server: Server, within limit: Duration) async throws {
        let sender = sender ?? "stall-collector@\(Self.host)"
        let text = try text(message, from: sender).replacing("\n", with: "\r\n")
        var mail = MailRequest(
            server.url,
            requiresTLS: server.requiresTLS,
            from: sender,
            to: address,
            Array(text.utf8),
            limit: limit
        )
        mail.login = server.login.map { ($0.user, $0.password) }
        do {
            try await mail.accepted()
        } catch let error as WebRequest.Failure {
            throw AlertReceiver.Failure(description: error.kind)
        }
    }

    /// The mail by RFC 5322 and 2045, with lines that end by LF.
    ///
    /// - Parameter sender: Nil: `sendmail` adds it.
    func text(_ message: AlertMessage, from sender: String?, now: Timestamp = .now()) throws -> String {
        // A mail that is sent again has the same id, by which mail servers may recognise it.
        let digest = SHA256.hash(Array(try message.json()) + Array(address.utf8)).prefix(16)
        let body = Data(message.plainText.utf8).base64EncodedString(options: [
            .lineLength76Characters, .endLineWithLineFeed,
        ])
        let fields = [
            ("From", sender), ("To", address), ("Subject", Self.encoded(message.subject)), ("Date", Self.date(now)),
            (
                "Message-ID",
                "<\(digest.map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined())@\(Self.host)>"
            ),
            // No answer that nobody is at work.
            ("Auto-Submitted", "auto-generated"), ("MIME-Version", "1.0"),
            ("Content-Type", "text/plain; charset=utf-8"), ("Content-Transfer-Encoding", "base64"),
        ]
        return fields.compactMap { name, value in value.map { "\(name): \($0)\n" } }.joined() + "\n\(body)\n"
    }

    /// The text of a header field. What is not plain ASCII becomes encoded words (RFC 2047), so that a line break in a name cannot begin
    /// another field.
    static func encoded(_ text: String) -> String {
        if text.unicodeScalars.allSatisfy({ (0x20...0x7E).contains($0.value) }), !text.contains("=?") { return text }
        var words: [[UInt8]] = [[]]
        for scalar in text.unicodeScalars {
            let bytes = Array(String(scalar).utf8)
            // With what surrounds it, a word has 75 characters at most.
            if words[words.count - 1].count + bytes.count > 45 { words.append([]) }
            words[words.count - 1] += bytes
        }
        return words.map { "=?utf-8?B?\(Data($0).base64EncodedString())?=" }.joined(separator: "\n ")
    }

    /// `Sat, 31 Jan 2026 12:00:00 +0000`.
    static func date(_ moment: Timestamp) -> String {
        let days = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]
        let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
        // `2026-01-31T12:00:00`.
        let parts = moment.description.prefix(19).split { "-T".contains($0) }
        // The first day of 1970 was a Thursday.
        let day = days[Int(((moment.seconds / 86400) % 7 + 7) % 7)]
        return "\(day), \(parts[2]) \(months[(Int(parts[1]) ?? 1) - 1]) \(parts[0]) \(parts[3]) +0000"
    }

    /// This machine's name, as a part of addresses.
    private static let host: String = {
        let name = ProcessInfo.processInfo.hostName
        let isPlain = !name.isEmpty && name.utf8.allSatisfy { isalnum(Int32($0)) != 0 || $0 == 0x2D || $0 == 0x2E }
        return isPlain ? name : "localhost"
    }()
}

extension AlertMessage {
    /// `Stall alert: new faults: …`, or for several `3 stall alerts`.
    var subject: String {
        guard alerts.count == 1, let alert = alerts.first else { return counted(Int64(alerts.count), "stall alert") }
        let words = alert.endedAt == nil ? "Stall alert" : "Stall alert over"
        return VisibleText.of("\(words): \(alert.rule): \(alert.text)", limit: 160)
    }
}

extension AlertMail {
    /// The server of an address like `smtps://user@mail.example.com:465`.
    ///
    /// - Throws: The mistake.
    static func server(_ text: String, tls: Bool?, password: String?) throws(Mistake) -> Server {
        guard var parts = URLComponents(string: text), let scheme = parts.scheme?.lowercased(),
            ["smtp", "smtps"].contains(scheme), let host = parts.host, !host.isEmpty, parts.path.isEmpty,
            parts.query == nil, parts.fragment == nil
        else { throw Mistake("a server is like smtps://user@mail.example.com or smtp://mail.example.com:587") }
        guard parts.password == nil else { throw Mistake("the password belongs into 'passwordFile'") }
        let isHere = ["localhost", "127.0.0.1", "[::1]", "::1"].contains(host.lowercased())
        guard scheme == "smtp" || tls != false else { throw Mistake("smtps is TLS; with 'tls: false' it is smtp://") }
        let requiresTLS = scheme == "smtps" || tls ?? !isHere
        let user = parts.user.flatMap { $0.isEmpty ? nil : $0 }
        guard (user == nil) == (password == nil) else {
            throw Mistake("a user in the address and 'passwordFile' belong together")
        }
        guard user == nil || requiresTLS || isHere else { throw Mistake("a password is not sent without TLS") }
        parts.user = nil
        guard let url = parts.string else { throw Mistake("this is no address") }
        let login = user.flatMap { user in password.map { Login(user: user, password: $0) } }
        return Server(url: url, host: host, requiresTLS: requiresTLS, login: login)
    }

    struct Mistake: Error {
        let description: String
        init(_ description: String) { self.description = description }
    }

    /// Whether a text is one mail address, of those characters that need no quotes.
    static func isAddress(_ text: String) -> Bool {
        let parts = text.split(separator: "@", omittingEmptySubsequences: false)
        return parts.count == 2 && parts.allSatisfy { !$0.isEmpty } && text.utf8.count <= 254
            && text.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && !"<>()[]\\,;:\"".utf8.contains($0) }
    }
}
