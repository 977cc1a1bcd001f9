import Foundation

/// The results of a part, and whether its goals for counts are met.
struct Findings {
    private let part: String
    private var failures: [String] = []

    init(part: String) { self.part = part }

    mutating func fail(_ reason: String) {
        failures.append(reason)
        print("  FAILED: \(reason)")
    }

    mutating func expect(_ isMet: Bool, _ goal: @autoclosure () -> String) {
        if !isMet { fail(goal()) }
    }

    /// Ends the process: 0 if all goals are met.
    func conclude() -> Never {
        print("RESULT \(part): \(failures.isEmpty ? "met" : "\(failures.count) not met")")
        exit(failures.isEmpty ? 0 : 1)
    }
}

/// Numbers sorted by size.
struct Distribution {
    private let sorted: [Double]

    init(_ values: [Double]) { sorted = values.sorted() }

    var median: Double { quantile(0.5) }

    /// - Parameter part: 0 for the minimum, 1 for the maximum. Returns 0 without values.
    func quantile(_ part: Double) -> Double {
        sorted.isEmpty ? 0 : sorted[min(sorted.count - 1, Int(Double(sorted.count) * part))]
    }
}

/// `text` in a column: left for words, right for numbers.
func column(_ text: some CustomStringConvertible, _ width: Int, right: Bool = false) -> String {
    let text = text.description
    let padding = String(repeating: " ", count: max(0, width - text.count))
    return right ? padding + text : text + padding
}

func column(_ value: Double, _ width: Int, digits: Int = 1) -> String {
    column(String(format: "%.\(digits)f", value), width, right: true)
}

func errorText(_ error: Int32) -> String { unsafe String(cString: strerror(error)) }
