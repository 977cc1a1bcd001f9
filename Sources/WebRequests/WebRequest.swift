import Dispatch

/// An HTTP request, by libcurl. Each has a connection of its own.
///
/// A proxy is taken from the variables `http_proxy`, `https_proxy` and `no_proxy`, as libcurl does. Trusted are the certificates of
/// the system, or those in the file that `CURL_CA_BUNDLE` or `SSL_CERT_FILE` names, as for the command `curl`. Redirections are
/// not followed: they would send a token to another host.
public struct WebRequest: Sendable {
    /// How long a request may take. With a libcurl before 7.87 the search for the host's address may take longer: it waits until the system
    /// gives it up (resolv.conf(5), `timeout` and `attempts`).
    public enum TimeLimit: Hashable, Sendable {
        /// From the connection to the end of the answer. A millisecond at least.
        case whole(Duration)
        /// Without any received data. In whole seconds, one at least.
        case silence(Duration)
    }

    /// Why there is no answer.
    public struct Failure: Error, Hashable, Sendable, CustomStringConvertible {
        /// One line for display. It may contain the host and its port.
        public let description: String
        /// The kind of failure, without any part of the address.
        public let kind: String
        /// Whether the time limit was reached, or the caller waited no longer.
        public let isTimeout: Bool
    }

    /// The beginning of an answer.
    public struct Head: Hashable, Sendable {
        /// The status code, 100 to 599.
        public internal(set) var status = 0
        /// The value of each header field, by its name in lower case.
        public internal(set) var fields: [String: String] = [:]
    }

    /// The address, with the scheme `http` or `https`.
    public var url: String
    /// Header fields: a name, and a value without line breaks. Of fields with the same name the last one is sent.
    public var fields: [(name: String, value: String)] = [("User-Agent", "stall-monitor")]
    /// The bytes to send by POST. Nil: the request is a GET.
    public var body: [UInt8]?
    /// How long it may take.
    public var limit: TimeLimit

    /// A GET request.
    public init(_ url: String, limit: TimeLimit) { (self.url, self.limit) = (url, limit) }

    /// Sends it, and blocks the calling thread until the answer has arrived or the time is up.
    ///
    /// - Parameter receive: Called on the calling thread with each part of the answer's body. It returns whether it needs more.
    ///   An error ends the request.
    /// - Throws: ``Failure``, or the error of `receive`.
    public func send(_ receive: (Head, [UInt8]) throws -> Bool) throws -> Head {
        try send(while: { true }, receive)
    }

    private func send(
        while isAwaited: () -> Bool,
        _ receive: (Head, [UInt8]) throws -> Bool
    ) throws -> Head {
        try withoutActuallyEscaping(isAwaited) { isAwaited in
            try withoutActuallyEscaping(receive) { receive in
                guard let transfer = Transfer(isAwaited, receive) else {
                    throw Failure("libcurl cannot be used", isTimeout: false)
                }
                transfer.prepare(self)
                return try transfer.run()
            }
        }
    }

    /// Sends it, and returns the answer's body, too.
    ///
    /// - Parameter bytes: The largest useful size of the body; what is beyond it is not received.
    /// - Throws: ``Failure``.
    public func send(bytes: Int) throws -> (head: Head, body: [UInt8]) {
        try send(bytes: bytes, while: { true })
    }

    /// The same. It ends when the answer is no longer awaited.
    ///
    /// - Parameter isAwaited: Called on the calling thread, about once a second.
    package func send(bytes: Int, while isAwaited: () -> Bool) throws -> (head: Head, body: [UInt8]) {
        var body: [UInt8] = []
        let head = try send(while: isAwaited) { _, part in
            body += part.prefix(bytes - body.count)
            return body.count < bytes
        }
        return (head, body)
    }

    /// The same for a task: the blocked thread is one of Dispatch's. A cancelled task does not wait for the answer; the thread does.
    ///
    /// - Throws: ``Failure``, or `CancellationError`.
    public func answer(bytes: Int) async throws -> (head: Head, body: [UInt8]) {
        try await onOtherThread { try send(bytes: bytes) }
    }
}

/// The result of blocking work, for a task: the blocked thread is one of Dispatch's. A cancelled task does not wait for it.
func onOtherThread<Value: Sendable>(_ work: @escaping @Sendable () throws -> Value) async throws -> Value {
    let (values, continuation) = AsyncThrowingStream<Value, any Error>.makeStream()
    // A serial queue gets a thread of its own. The threads of a global queue also run Swift's tasks: a few requests without an
    // answer would hold up all tasks of the process.
    DispatchQueue(label: "stall-monitor.request").async {
        continuation.yield(with: Result { try work() })
        continuation.finish()
    }
    for try await value in values { return value }
    throw CancellationError()
}

extension WebRequest.Failure {
    init(_ kind: String, _ details: String = "", isTimeout: Bool) {
        (self.kind, self.isTimeout) = (kind, isTimeout)
        description = details.isEmpty ? kind : details
    }
}
