internal import Foundation
internal import FoundationNetworking

/// Where a receiver or a collector listens.
enum HTTPAddress {
    /// - Parameters:
    ///   - kind: what should listen there, for a person.
    ///   - example: of such an address.
    static func url(_ text: String, of kind: String, example: String) throws(ShippingError) -> URL {
        guard let url = URL(string: text), ["http", "https"].contains(url.scheme?.lowercased()),
            url.host()?.isEmpty == false
        else { throw ShippingError("\(text) is no address of \(kind): give one like \(example)") }
        return url
    }
}

/// A session's delegate that takes the token to no other place.
protocol KeepsToken: URLSessionTaskDelegate {}

extension KeepsToken {
    /// No redirection is followed: it would take the token elsewhere.
    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        willPerformHTTPRedirection response: HTTPURLResponse,
        newRequest request: URLRequest,
        completionHandler: @escaping (URLRequest?) -> Void
    ) { completionHandler(nil) }

    /// Who asks for a password gets none: the answer is what counts. Without this Foundation never hands it over.
    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didReceive challenge: URLAuthenticationChallenge,
        completionHandler: @escaping (URLSession.AuthChallengeDisposition, URLCredential?) -> Void
    ) { completionHandler(.rejectProtectionSpace, nil) }
}
