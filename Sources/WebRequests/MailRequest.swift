/// A mail to one recipient, by SMTP with libcurl.
///
/// Trusted are the same certificates as for ``WebRequest``.
public struct MailRequest: Sendable {
    /// The user's name at the server, and the password.
    public typealias Login = (user: String, password: String)

    /// The server's address: `smtps://host:port` speaks TLS from the beginning, `smtp://host:port` by STARTTLS or not at all. Without a port
    /// 465 and 25.
    public var server: String
    /// Whether the mail is not sent without TLS. Otherwise `smtp` does not use any.
    public var requiresTLS: Bool
    /// Nil: the server asks for none.
    public var login: Login?
    /// The address to which the server sends what it cannot deliver.
    public var sender: String
    /// The address of the recipient.
    public var recipient: String
    /// The header and the body. Lines end by CR and LF.
    public var message: [UInt8]
    /// How long it may take in all; see ``WebRequest/TimeLimit``.
    public var limit: Duration

    /// A mail without login.
    public init(
        _ server: String,
        requiresTLS: Bool,
        from sender: String,
        to recipient: String,
        _ message: [UInt8],
        limit: Duration
    ) {
        (self.server, self.requiresTLS) = (server, requiresTLS)
        (self.sender, self.recipient) = (sender, recipient)
        (self.message, self.limit) = (message, limit)
    }

    /// Sends it, and blocks the calling thread until the server has accepted it or the time is up.
    ///
    /// - Throws: ``WebRequest/Failure``. Its kind has the code with which the server refused it.
    public func send() throws {
        // A line break or a bracket would begin another command or parameter.
        for address in [sender, recipient]
        where !address.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F && !"<>".utf8.contains($0) }) {
            throw WebRequest.Failure("an address has characters that none may have", isTimeout: false)
        }
        guard let transfer = Transfer({ true }, { _, _ in true }) else {
            throw WebRequest.Failure("libcurl cannot be used", isTimeout: false)
        }
        transfer.prepare(self)
        _ = try transfer.run()
    }

    /// The same for a task: the blocked thread is one of Dispatch's. A cancelled task does not wait for the answer; the thread does.
    ///
    /// - Throws: ``WebRequest/Failure``, or `CancellationError`.
    public func accepted() async throws { try await onOtherThread { try send() } }
}
