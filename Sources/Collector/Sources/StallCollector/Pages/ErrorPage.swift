import Foundation
import HTTPTypes
import Hummingbird

/// What a browser shows when a request fails: why, and what to do.
struct ErrorPage {
    let title: String
    /// Empty: who asks may be unknown.
    let team = ""
    let reason: String
    let advice: String
    let code: Int

    init(_ refusal: Refusal) {
        (title, advice) = Self.words(refusal.status)
        reason = Self.sentence(refusal.description)
        code = refusal.status.code
    }

    private static func words(_ status: HTTPResponse.Status) -> (title: String, advice: String) {
        switch status {
        case .badRequest: ("The address is wrong", "Correct it, or choose again on the page of faults.")
        case .unauthorized:
            ("A token is needed", "Load the page again, and give a token as the password. The name does not matter.")
        case .forbidden: ("Not permitted", "Whoever runs this collector can change that, as the line above says.")
        case .notFound:
            (
                "Not found",
                "Look whether the address is complete. A fault may have no stall in the time that the address names as 'since'."
            )
        case .tooManyRequests, .serviceUnavailable: ("Not just now", "Wait some seconds, and load the page again.")
        case .internalServerError:
            ("The collector failed", "Load the page again. If it stays so, tell whoever runs this collector.")
        default: (status.reasonPhrase, "Choose something else on the page of faults.")
        }
    }

    private static func sentence(_ text: String) -> String {
        text.prefix(1).uppercased() + text.dropFirst() + (text.hasSuffix(".") ? "" : ".")
    }
}

extension Request {
    /// Whether it is a browser's request for a page: it names HTML, and prefers it to JSON. Programs that accept everything (`*/*`) do
    /// not.
    var asksForPage: Bool {
        let html = acceptance(of: "text/html")
        return html > 0 && html > acceptance(of: "application/json")
    }

    /// The weight of a media type in `Accept` (RFC 9110, 12.5.1): 1 unless it has another, and 0 if it is not named.
    private func acceptance(of type: String) -> Double {
        for range in headers[values: .accept].flatMap({ $0.split(separator: ",") }) {
            let parts = range.lowercased().split(separator: ";").map { $0.trimmingCharacters(in: .whitespaces) }
            guard parts.first == type else { continue }
            let weight = parts.dropFirst().first { $0.hasPrefix("q=") }
            return weight.map { Double($0.dropFirst(2)) ?? 0 } ?? 1
        }
        return 0
    }
}
