import Foundation
import StallReading
import StallReports
import StallStore

// The form of values on pages.

extension String {
    /// Replaces scalars, not characters: a "<" after a letter that joins with what follows it, or a quotation mark with an accent, is
    /// part of another character, but a browser reads it all the same.
    func replacingScalars(_ replacements: [Unicode.Scalar: String]) -> String {
        var result = ""
        for scalar in unicodeScalars {
            if let text = replacements[scalar] { result += text } else { result.unicodeScalars.append(scalar) }
        }
        return result
    }
}

func length(_ nanoseconds: Int64) -> String { DurationText(nanoseconds: nanoseconds).short }

/// `3 stalls`, `1 stall`.
func counted(_ count: Int64, _ noun: String) -> String { "\(count) \(noun)\(count == 1 ? "" : "s")" }

/// `2026-01-31 12:00:05`.
func moment(_ timestamp: Timestamp) -> String {
    String(timestamp.description.prefix(19)).replacing("T", with: " ")
}

/// `12.3 %`. A share above 0 is never shown as 0.
func percent(_ share: Double) -> String {
    let tenths = Int(saturating: (share * 1000).rounded())
    return tenths == 0 && share > 0 ? "<0.1 %" : "\(tenths / 10).\(tenths % 10) %"
}

extension Fault {
    /// The name by which pages call it.
    var title: String { culprit ?? "only counted, in no report" }
}

/// What a page says about faults of which some are missing; empty if none are.
func partialNote(_ isPartial: Bool) -> String {
    isPartial ? " A part of the store does not answer: these are the faults of the rest." : ""
}

extension Trend.Direction {
    /// Empty if there are too few values.
    var text: String { self == .few ? "" : rawValue }
}

/// The most frequent name, and the number of the others.
func mostFrequent(_ counts: [String: Int64]) -> String {
    guard let most = sorted(counts).first?.key else { return "" }
    return counts.count == 1 ? most : "\(most) +\(counts.count - 1)"
}

/// Most frequent first; names with equal counts are in alphabetical order.
func sorted(_ counts: [String: Int64]) -> [(key: String, value: Int64)] {
    counts.sorted { ($1.value, $0.key) < ($0.value, $1.key) }
}

/// Bars as an inline picture, made from numbers only.
enum Bars {
    /// Vertical bars, side by side.
    static func trend(_ counts: [Int64]) -> String {
        let most = Double(counts.max() ?? 0)
        let bars = counts.enumerated().map { index, count in
            let height = most > 0 && count > 0 ? max(1, Int(18 * Double(count) / most)) : 0
            return "<rect x=\"\(index * 6)\" y=\"\(18 - height)\" width=\"5\" height=\"\(height)\"/>"
        }
        return "<svg width=\"\(counts.count * 6)\" height=\"18\" aria-hidden=\"true\">\(bars.joined())</svg>"
    }

    /// A line from the beginning to the end of a time, with a bar for each part of it.
    static func timeline(_ parts: [ClosedRange<Double>]) -> String {
        let bars = parts.map { part in
            let width = max(8, Int(6000 * (part.upperBound - part.lowerBound)))
            return "<rect x=\"\(Int(6000 * part.lowerBound))\" width=\"\(width)\" height=\"14\"/>"
        }
        return """
            <svg width="600" height="16" viewBox="0 0 6000 16" preserveAspectRatio="none" aria-hidden="true">\
            <rect y="15" width="6000" height="1"/>\(bars.joined())</svg>
            """
    }

    /// A single bar, as wide as its share of the longest.
    static func share(_ count: Int64, of most: Int64) -> String {
        let width = most > 0 && count > 0 ? max(1, Int(200 * Double(count) / Double(most))) : 0
        return "<svg width=\"200\" height=\"10\" aria-hidden=\"true\"><rect width=\"\(width)\" height=\"10\"/></svg>"
    }
}

/// Links to pages. Names in them are percent-encoded.
struct PageLinks {
    let question: QuestionText
    /// What is compared, for the links to flame graphs.
    var comparison: Comparison?

    /// The range and the filters, which links keep.
    private var fields: String { Self.text(range + choices) }

    private var range: [(String, String)] {
        [("since", question.since)] + (question.until.isEmpty ? [] : [("until", question.until)])
    }

    private var choices: [(String, String)] {
        question.query.choices.flatMap { name, values in values.map { (name, $0) } }
    }

    /// Those, and the text.
    var filters: [(String, String)] { choices + (question.query.text.map { [("text", $0)] } ?? []) }

    private static func text(_ fields: [(String, String)]) -> String {
        fields.map { "\($0)=\(escaped($1))" }.joined(separator: "&")
    }

    /// The feed of the stalls that the query's filters select, without the place after which it begins.
    var live: String {
        "/api/v1/live?" + Self.text(filters + [("after", "")])
    }

    /// The page of a fault. It shows the time of both sides, if two times are compared.
    func fault(_ fingerprint: Fingerprint) -> String {
        let since = comparison.map(\.fields.beforeSince).flatMap { $0.isEmpty ? nil : $0 } ?? question.since
        let time = [("since", since)] + range.dropFirst()
        return "/faults/\(Self.escaped(fingerprint.rawValue))?\(Self.text(time + choices))"
    }
    /// The flame graph of a fault, or of all stalls that the filters select.
    func flame(_ fingerprint: Fingerprint?) -> String {
        "\(Self.flamePath(fingerprint))?\(Self.text(range + filters + (comparison?.fields.named ?? [])))"
    }
    static func flamePath(_ fingerprint: Fingerprint?) -> String {
        fingerprint.map { "/faults/\(escaped($0.rawValue))/flame" } ?? "/flame"
    }
    var faults: String { "/?\(Self.text(range + filters))" }
    func json(_ fingerprint: Fingerprint) -> String { "/api/v1/faults/\(Self.escaped(fingerprint.rawValue))?\(fields)" }
    func export(_ fingerprint: Fingerprint, _ format: String) -> String {
        "/api/v1/faults/\(Self.escaped(fingerprint.rawValue))/export/\(format)?\(fields)"
    }
    /// The page of a host, also of what the filters leave out.
    func timeline(_ host: String) -> String { "/timeline?\(Self.text(range + [("host", host)]))" }
    static func report(_ id: ULID) -> String { "/reports/\(id)" }
    /// The page of an alert's fault. The longest time for which a rule looks at stalls, so that the fault has some there.
    static func alerted(_ fault: Fingerprint) -> String { "/faults/\(fault.rawValue)?since=31d" }

    private static func escaped(_ text: String) -> String {
        text.addingPercentEncoding(withAllowedCharacters: unreserved) ?? ""
    }

    /// The unreserved characters of RFC 3986, 2.3.
    private static let unreserved = CharacterSet(
        charactersIn: "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
    )
}
