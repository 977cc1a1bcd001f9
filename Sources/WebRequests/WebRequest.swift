import CCurl
import Dispatch
import Glibc

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
        let (answers, continuation) = AsyncThrowingStream<(head: Head, body: [UInt8]), any Error>.makeStream()
        DispatchQueue.global().async {
            continuation.yield(with: Result { try send(bytes: bytes) })
            continuation.finish()
        }
        for try await answer in answers { return answer }
        throw CancellationError()
    }
}

extension WebRequest.Failure {
    init(_ kind: String, _ details: String = "", isTimeout: Bool) {
        (self.kind, self.isTimeout) = (kind, isTimeout)
        description = details.isEmpty ? kind : details
    }
}

// Safe: this object owns what its pointers point to, and frees it in `deinit`.

/// One use of libcurl, by one thread.
@safe private final class Transfer {
    typealias Receive = (WebRequest.Head, [UInt8]) throws -> Bool

    /// To be called once, before anything else of libcurl.
    private static let isReady = curl_global_init(3 /* CURL_GLOBAL_ALL */) == CURLE_OK

    private let handle: UnsafeMutableRawPointer
    private var list: UnsafeMutablePointer<curl_slist>?
    private let details: UnsafeMutablePointer<CChar>
    private let isAwaited: () -> Bool
    private let receive: Receive
    private var head = WebRequest.Head()
    private var needsMore = true
    private var failure: (any Error)?

    init?(_ isAwaited: @escaping () -> Bool, _ receive: @escaping Receive) {
        guard Self.isReady, let handle = unsafe curl_easy_init() else { return nil }
        unsafe (self.handle, self.isAwaited, self.receive) = (handle, isAwaited, receive)
        unsafe details = .allocate(capacity: Int(CURL_ERROR_SIZE))
        unsafe details.initialize(repeating: 0, count: Int(CURL_ERROR_SIZE))
    }

    deinit {
        unsafe curl_easy_cleanup(handle)
        unsafe curl_slist_free_all(list)
        unsafe details.deallocate()
    }

    func prepare(_ request: WebRequest) {
        unsafe _ = curl_set_text(handle, CURLOPT_URL, request.url)
        unsafe _ = curl_set_error_text(handle, details)
        unsafe curl_leave_search(handle)
        // The last one that is set counts. An empty one is not set, as for the command `curl`.
        for name in ["SSL_CERT_FILE", "CURL_CA_BUNDLE"] {
            guard let file = unsafe getenv(name), unsafe file.pointee != 0 else { continue }
            unsafe _ = curl_set_text(handle, CURLOPT_CAINFO, file)
        }
        switch request.limit {
        case .whole(let time): set(CURLOPT_TIMEOUT_MS, time / .milliseconds(1))
        case .silence(let time):
            set(CURLOPT_CONNECTTIMEOUT, time / .seconds(1))
            set(CURLOPT_LOW_SPEED_TIME, time / .seconds(1))
            set(CURLOPT_LOW_SPEED_LIMIT, 1)
        }
        // The request's bytes are sent at once, and not only after the receiver has agreed to take them.
        var lines = ["Expect:"]
        let fields = Dictionary(request.fields.map { ($0.name.lowercased(), $0) }) { $1 }
        lines += fields.values.map { $0.value.isEmpty ? "\($0.name);" : "\($0.name): \($0.value)" }
        for line in lines { unsafe list = curl_slist_append(list, line) ?? list }
        unsafe _ = curl_set_headers(handle, list)
        if let body = request.body {
            unsafe body.withUnsafeBytes { unsafe _ = curl_set_body(handle, $0.baseAddress, curl_off_t($0.count)) }
        }
    }

    private func set(_ option: CURLoption, _ value: Double) {
        unsafe _ = curl_set_number(handle, option, Int(min(max(1, value), 1e9)))
    }

    func run() throws -> WebRequest.Head {
        unsafe _ = curl_set_consumers(
            handle,
            { unsafe Transfer.of($3).takeHeader(Transfer.bytes($0, $1, $2)) },
            { unsafe Transfer.of($3).takeBody(Transfer.bytes($0, $1, $2)) },
            Unmanaged.passUnretained(self).toOpaque()
        )
        unsafe _ = curl_set_watcher(
            handle,
            { context, _, _, _, _ in unsafe Transfer.of(context).isAwaited() ? 0 : 1 },
            Unmanaged.passUnretained(self).toOpaque()
        )
        let code = unsafe curl_easy_perform(handle)
        if let failure { throw failure }
        // Of a refusal, its beginning is enough.
        guard code == CURLE_OK || !needsMore || head.status >= 300 else {
            throw WebRequest.Failure(
                unsafe String(cString: curl_easy_strerror(code)),
                unsafe String(cString: details),
                isTimeout: [CURLE_OPERATION_TIMEDOUT, CURLE_ABORTED_BY_CALLBACK].contains(code)
            )
        }
        return head
    }

    private static func of(_ context: UnsafeMutableRawPointer?) -> Transfer {
        // It is alive: `run` is called on it.
        unsafe Unmanaged<Transfer>.fromOpaque(context!).takeUnretainedValue()
    }

    private static func bytes(_ start: UnsafeMutablePointer<CChar>?, _ size: Int, _ count: Int) -> [UInt8] {
        unsafe [UInt8](UnsafeRawBufferPointer(start: start, count: size * count))
    }

    /// - Returns: How many bytes were taken; if not all, libcurl ends the transfer.
    private func takeHeader(_ bytes: [UInt8]) -> Int {
        let line = String(decoding: bytes, as: UTF8.self)
        // An answer may follow others: a proxy's, or a provisional one.
        if line.hasPrefix("HTTP/") { head = .init(status: unsafe Int(curl_status(handle)), fields: [:]) }
        if let colon = line.firstIndex(of: ":") {
            head.fields[line[..<colon].lowercased()] = line[line.index(after: colon)...].trimmed
        }
        return bytes.count
    }

    private func takeBody(_ bytes: [UInt8]) -> Int {
        do {
            needsMore = try receive(head, bytes)
            return needsMore ? bytes.count : 0
        } catch {
            failure = error
            return 0
        }
    }
}

extension Substring {
    /// Without spaces and line breaks at both ends.
    fileprivate var trimmed: String {
        let start = drop(while: \.isWhitespace)
        return String(start[..<(start.lastIndex { !$0.isWhitespace }.map(start.index(after:)) ?? start.startIndex)])
    }
}
