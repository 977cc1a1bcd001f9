import Foundation
import HTTPTypes
import Mustache
import StallReports
import Testing

@testable import StallCollector

// What a browser shows when a request fails.

extension PageTests {
    private static let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
    private static let failing: [(path: String, status: Int)] = [
        ("/faults/zz", 400), ("/?since=foo", 400), ("/compare?before-until=1d", 400), ("/api/v1/faults?limit=0", 400),
        ("/faults/v2:0000000000000000", 404), ("/reports/\(ULID.make())", 404), ("/nothing", 404),
    ]

    private static func answer(_ client: Client, _ path: String, accept: String?) async throws -> Client.Answer {
        var headers: HTTPFields = [:]
        headers[.accept] = accept
        return try await client.execute(uri: path, method: .get, headers: headers) { $0 }
    }

    @Test("A browser gets a page that says why a request fails, what to do, and leads back; the status is the same")
    func errorPages() async throws {
        try await Samples.withStore { store, _ in
            try await Client.withServer(store, CollectorOptions()) { client in
                for (path, status) in Self.failing {
                    let answer = try await Self.answer(client, path, accept: Self.browser)
                    let page = String(decoding: answer.body, as: UTF8.self)
                    #expect(answer.status.code == status, "\(path)")
                    #expect(answer.headers[.contentType] == "text/html; charset=utf-8", "\(path)")
                    #expect(answer.headers[.contentSecurityPolicy]?.hasPrefix("default-src 'none';") == true)
                    #expect(page.contains("<a href=\"/\">Back to the faults</a>"), "\(path): \(page)")
                    #expect(page.contains("HTTP status \(status)") && page.contains("<h1>"), "\(path): \(page)")
                    #expect(!page.contains("<script"), "\(path)")
                }
                let wrong = try await Self.answer(client, "/?since=foo", accept: Self.browser)
                let text = String(decoding: wrong.body, as: UTF8.self)
                #expect(text.contains("<p>&#39;since&#39; is a length like 24h or 7d, or a time like "), "\(text)")
            }
        }
    }

    @Test(
        "Programs get JSON, whatever the path",
        arguments: [
            nil, "*/*", "application/json", "application/json, text/plain, */*", "application/json, text/html",
            "text/html;q=0.5, application/json;q=0.9", "text/html; q=0, */*", "text/event-stream",
        ]
    )
    func errorsOfPrograms(accept: String?) async throws {
        struct Message: Decodable { var message: String }
        try await Samples.withStore { store, _ in
            try await Client.withServer(store, CollectorOptions()) { client in
                for (path, status) in Self.failing {
                    let answer = try await Self.answer(client, path, accept: accept)
                    #expect(answer.status.code == status && answer.headers[.contentType] == "application/json")
                    let message = try JSONDecoder().decode(Message.self, from: Data(answer.body)).message
                    #expect(!message.isEmpty, "\(path)")
                    // A cache must not give one to whom the other is for.
                    #expect(answer.headers[.vary] == "Accept", "\(path)")
                }
            }
        }
    }

    @Test("Who has no token for a page, or one that does not permit it, is told so on a page")
    func denialPages() async throws {
        try await Samples.withStore { store, directory in
            let file = directory + "/tokens"
            try "red write red-token-0123456789\n".write(toFile: file, atomically: true, encoding: .utf8)
            try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: file)
            var options = CollectorOptions()
            options.tokens = try Tokens(path: file)
            try await Client.withServer(store, options) { client in
                let password = Data("me:red-token-0123456789".utf8).base64EncodedString()
                for (authorization, status) in [(nil, 401), ("Basic \(password)", 403)] {
                    var headers: HTTPFields = [.accept: Self.browser]
                    headers[.authorization] = authorization
                    let answer = try await client.execute(uri: "/", method: .get, headers: headers) { $0 }
                    let page = String(decoding: answer.body, as: UTF8.self)
                    #expect(answer.status.code == status && page.contains("HTTP status \(status)"), "\(page)")
                    #expect(page.contains("Back to the faults") && !page.contains("{{"), "\(page)")
                    #expect(answer.headers[.wwwAuthenticate]?.hasPrefix("Basic ") == (status == 401 ? true : nil))
                }
            }
        }
    }

    @Test("A reason on a page is text: a sentence without markup")
    func errorText() {
        let hostile = "\u{D4E}<b> \"x\" '{{team}}'"
        let content = ErrorPage(Refusal(.badRequest, "a \(hostile)"))
        let page = Templates.library.render(content, withTemplate: "error") ?? ""
        #expect(page.contains("<p>A \u{D4E}&lt;b&gt; &quot;x&quot; &#39;{{team}}&#39;.</p>"), "\(page)")
    }
}
