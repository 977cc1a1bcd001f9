internal import Foundation
internal import FoundationNetworking

/// The address of a receiver or a collector.
enum HTTPAddress {
    /// - Parameters:
    ///   - kind: What the address is for, in messages.
    ///   - example: An example of such an address.
    static func url(_ text: String, of kind: String, example: String) throws(ShippingError) -> URL {
        guard let url = URL(string: text), ["http", "https"].contains(url.scheme?.lowercased()),
            url.host()?.isEmpty == false
        else { throw ShippingError("\(text) is no address of \(kind): give one like \(example)") }
        return url
    }
}

/// A session delegate that sends the token to no other host.
protocol KeepsToken: URLSessionTaskDelegate {}

extension KeepsToken {
    /// Redirections are not followed: they would send the token to another host.
    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        willPerformHTTPRedirection response: HTTPURLResponse,
        newRequest request: URLRequest,
        completionHandler: @escaping (URLRequest?) -> Void
    ) { completionHandler(nil) }

    /// A request for a password is declined: only the answer counts. Without this, Foundation never delivers the answer.
    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didReceive challenge: URLAuthenticationChallenge,
        completionHandler: @escaping (URLSession.AuthChallengeDisposition, URLCredential?) -> Void
    ) { completionHandler(.rejectProtectionSpace, nil) }
}
