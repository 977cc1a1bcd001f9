internal import Foundation

/// A secret that authenticates the sender. A file is read for each request, because secrets are replaced while processes run.
struct TokenSource: Sendable {
    /// Nil: `value` is used.
    var file: String?
    var value: String?

    func read() throws -> String? {
        guard let file else { return value }
        let text: String
        do {
            text = try String(contentsOfFile: file, encoding: .utf8)
        } catch {
            throw ShippingError("the token's file \(file) cannot be read")
        }
        let token = text.trimmingCharacters(in: .whitespacesAndNewlines)
        guard !token.isEmpty, token.utf8.allSatisfy({ (0x21...0x7e).contains($0) }), token.utf8.count <= 8192 else {
            throw ShippingError("the token's file \(file) holds no token: one line of ASCII is expected")
        }
        return token
    }
}
