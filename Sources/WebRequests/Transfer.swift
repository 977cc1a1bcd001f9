import CCurl
import Glibc

// Safe: this object owns what its pointers point to, and frees it in `deinit`.

/// One use of libcurl, by one thread.
@safe final class Transfer {
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
    /// What is still to be sent of a mail.
    private var rest: ArraySlice<UInt8> = []
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

    private func prepare(_ url: String) {
        unsafe _ = curl_set_text(handle, CURLOPT_URL, url)
        unsafe _ = curl_set_error_text(handle, details)
        unsafe curl_leave_search(handle)
        // The last one that is set counts. An empty one is not set, as for the command `curl`.
        for name in ["SSL_CERT_FILE", "CURL_CA_BUNDLE"] {
            guard let file = unsafe getenv(name), unsafe file.pointee != 0 else { continue }
            unsafe _ = curl_set_text(handle, CURLOPT_CAINFO, file)
        }
    }

    func prepare(_ request: WebRequest) {
        prepare(request.url)
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

    func prepare(_ mail: MailRequest) {
        prepare(mail.server)
        set(CURLOPT_TIMEOUT_MS, mail.limit / .milliseconds(1))
        // Required, or not tried: what a server offers without TLS can be changed on the way.
        unsafe _ = curl_set_number(
            handle,
            CURLOPT_USE_SSL,
            Int((mail.requiresTLS ? CURLUSESSL_ALL : CURLUSESSL_NONE).rawValue)
        )
        if let login = mail.login {
            unsafe _ = curl_set_text(handle, CURLOPT_USERNAME, login.user)
            unsafe _ = curl_set_text(handle, CURLOPT_PASSWORD, login.password)
        }
        unsafe list = curl_slist_append(list, "<\(mail.recipient)>") ?? list
        rest = mail.message[...]
        unsafe _ = curl_set_mail(
            handle,
            "<\(mail.sender)>",
            list,
            { unsafe Transfer.of($3).giveBody($0, $1 * $2) },
            Unmanaged.passUnretained(self).toOpaque()
        )
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
        // If the answer is a refusal, its beginning is enough.
        guard code == CURLE_OK || !needsMore || head.status >= 300 else {
            // A mail server's refusal, such as 550; a web server's is the status of the head.
            let status = unsafe head.status == 0 ? Int(curl_status(handle)) : 0
            let kind = unsafe String(cString: curl_easy_strerror(code))
            throw WebRequest.Failure(
                kind + (status >= 400 ? " (\(status))" : ""),
                Self.words(code, kind, unsafe String(cString: details), systemError: unsafe curl_system_error(handle)),
                isTimeout: [CURLE_OPERATION_TIMEDOUT, CURLE_ABORTED_BY_CALLBACK].contains(code)
            )
        }
        return head
    }

    /// libcurl's sentence, with what it leaves out.
    ///
    /// - Parameter systemError: The number of the system's error, or 0.
    static func words(_ code: CURLcode, _ kind: String, _ details: String, systemError: CInt) -> String {
        switch code {
        case CURLE_COULDNT_CONNECT where systemError != 0 && details.hasSuffix(": " + kind):
            // Its end repeats its beginning, where the reason is expected.
            details.dropLast(kind.count) + (unsafe strerror(systemError).map { unsafe String(cString: $0) } ?? kind)
        case CURLE_SSL_CONNECT_ERROR where details.contains("wrong version number"):
            "no TLS is spoken at that address and port; without TLS, it begins with http:// (\(details))"
        case CURLE_PEER_FAILED_VERIFICATION:
            details + "; $SSL_CERT_FILE names a file with the certificates to trust"
        default: details
        }
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

    /// - Returns: How many bytes were written to the buffer; 0 at the end.
    private func giveBody(_ buffer: UnsafeMutablePointer<CChar>?, _ room: Int) -> Int {
        let part = rest.prefix(room)
        unsafe UnsafeMutableRawBufferPointer(start: buffer, count: room).copyBytes(from: part)
        rest = rest.dropFirst(part.count)
        return part.count
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
