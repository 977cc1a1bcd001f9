import Foundation
import StallReports
import WebRequests

/// A receiver of alerts.
struct AlertReceiver: Sendable, Hashable {
    enum Way: Sendable, Hashable {
        /// Gets the message's JSON by POST: Slack, Mattermost or your own server.
        case webhook(URL)
        /// A program with its arguments gets the message's JSON on its standard input.
        case program([String])
        case mail(AlertMail)
    }

    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    /// The time limit of each attempt.
    static let patience = Duration.seconds(20)
    var way: Way
    /// The file that contains the webhook's address, or the password for the mail server.
    var file: String?

    /// Its name for users. A webhook's path is left out, because it is a secret.
    var name: String {
        switch way {
        case .webhook(let url): "webhook \(url.host() ?? "")" + (file.map { " of \($0)" } ?? "")
        case .program(let words): "exec \(words[0])"
        case .mail(let mail): "mail \(mail.address)" + (mail.server.map { " by \($0.host)" } ?? "")
        }
    }

    /// Its name in the store, which does not depend on its place in the rules. A hash, because an address or an argument can be a secret.
    var key: String {
        let target =
            switch way {
            case .webhook(let url): ["webhook", file ?? url.absoluteString]
            case .program(let words): ["exec"] + words
            case .mail(let mail): ["mail", mail.address]
            }
        return Data(SHA256.hash(Array(target.joined(separator: "\0").utf8)).prefix(12)).base64EncodedString()
    }

    /// - Parameter mailer: A program that works like `sendmail`.
    func send(
        _ message: AlertMessage,
        mailer: String = "/usr/sbin/sendmail",
        within limit: Duration = AlertReceiver.patience
    ) async throws {
        switch way {
        case .webhook(let url): try await Self.post(message.json(), to: url, within: limit)
        case .program(let words): try await AlertProgram(words: words).run(message.json(), within: limit)
        case .mail(let mail):
            if let server = mail.server { return try await mail.send(message, by: server, within: limit) }
            let text = try mail.text(message, from: mail.sender)
            try await AlertProgram(words: [mailer, "-t", "-oi"]).run(Data(text.utf8), within: limit)
        }
    }

    private static func post(_ body: Data, to url: URL, within limit: Duration) async throws {
        var request = WebRequest(url.absoluteString, limit: .whole(limit))
        request.fields.append(("User-Agent", "stall-collector"))
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
}

extension AlertReceiver: Decodable {
    private enum Key: String, CodingKey, CaseIterable {
        case webhook, webhookFile, exec, mail
        // Of a mail.
        case server, passwordFile, from, tls

        static let ways: [Self] = [.webhook, .webhookFile, .exec, .mail]
    }

    init(from decoder: any Decoder) throws {
        let values = try decoder.values(Key.self)
        let key = try Self.way(of: values, decoder)
        switch key {
        case .exec: way = .program(try Self.program(values))
        case .mail:
            file = try values.decodeIfPresent(String.self, forKey: .passwordFile)
            way = .mail(try Self.mail(values, password: file.map { try Self.secret(of: $0, values, .passwordFile) }))
        default:
            let text = try values.decode(String.self, forKey: key)
            if key == .webhookFile { file = text }
            way = .webhook(try Self.address(file.map { try Self.secret(of: $0, values, key) } ?? text, values, key))
        }
    }

    /// The one key that says what kind of receiver it is.
    private static func way(of values: KeyedDecodingContainer<Key>, _ decoder: any Decoder) throws -> Key {
        let keys = values.allKeys.filter { Key.ways.contains($0) }
        guard keys.count == 1, let key = keys.first else {
            throw DecodingError.dataCorrupted(
                .init(
                    codingPath: decoder.codingPath,
                    debugDescription: "a receiver is one of \(Key.ways.map(\.rawValue).joined(separator: ", "))"
                )
            )
        }
        if key != .mail, let other = values.allKeys.first(where: { $0 != key }) {
            throw values.mistake(other, "this belongs to 'mail'")
        }
        return key
    }

    private static func program(_ values: KeyedDecodingContainer<Key>) throws -> [String] {
        let words = try values.decode([String].self, forKey: .exec)
        guard let program = words.first, program.hasPrefix("/"), FileManager.default.isExecutableFile(atPath: program)
        else { throw values.mistake(.exec, "the first word is the whole path of a program that is there") }
        return words
    }

    private static func address(_ text: String, _ values: KeyedDecodingContainer<Key>, _ key: Key) throws -> URL {
        guard let url = URL(string: text), ["http", "https"].contains(url.scheme?.lowercased()), url.host() != nil
        else { throw values.mistake(key, "an address begins with https:// or http://") }
        return url
    }

    private static func secret(
        of file: String,
        _ values: KeyedDecodingContainer<Key>,
        _ key: Key
    ) throws -> String {
        guard let text = try? String(contentsOfFile: file, encoding: .utf8) else {
            throw values.mistake(key, "this file cannot be read")
        }
        let secret = text.trimmingCharacters(in: .whitespacesAndNewlines)
        guard !secret.isEmpty else { throw values.mistake(key, "this file is empty") }
        return secret
    }

    private static func mail(_ values: KeyedDecodingContainer<Key>, password: String?) throws -> AlertMail {
        func address(_ key: Key) throws -> String? {
            let text = try values.decodeIfPresent(String.self, forKey: key)
            guard text.map(AlertMail.isAddress) ?? true else { throw values.mistake(key, "this is one mail address") }
            return text
        }
        var mail = AlertMail(address: try address(.mail) ?? "", sender: try address(.from))
        if let server = try values.decodeIfPresent(String.self, forKey: .server) {
            let tls = try values.decodeIfPresent(Bool.self, forKey: .tls)
            do throws(AlertMail.Mistake) {
                mail.server = try AlertMail.server(
                    server,
                    tls: tls,
                    password: password
                )
            } catch { throw values.mistake(.server, error.description) }
        } else if let key = [Key.passwordFile, .tls].first(where: values.contains) {
            throw values.mistake(key, "this belongs to 'server'")
        }
        return mail
    }
}
