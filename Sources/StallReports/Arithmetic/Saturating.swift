// Arithmetic on what comes from outside: from a file, a directory entry, /proc, a clock, another process. Swift's own traps where a result
// has no room, and a trap in a thread of the monitor's is the end of the server. These stop at the ends.

extension FixedWidthInteger {
    /// The sum, held at the ends of the type.
    package func addingSaturated(_ other: Self) -> Self {
        let (sum, isOver) = addingReportingOverflow(other)
        return isOver ? (other < 0 ? .min : .max) : sum
    }

    /// The difference, held at the ends of the type: 0 for a number without a sign that would fall below it.
    package func subtractingSaturated(_ other: Self) -> Self {
        let (difference, isOver) = subtractingReportingOverflow(other)
        return isOver ? (other < 0 ? .max : .min) : difference
    }

    /// The product, held at the ends of the type.
    package func multipliedSaturated(by other: Self) -> Self {
        let (product, isOver) = multipliedReportingOverflow(by: other)
        return isOver ? ((self < 0) == (other < 0) ? .max : .min) : product
    }

    /// Towards zero, held at the ends of the type; 0 for what is no number.
    package init(saturating value: Double) {
        self = Self(exactly: value.rounded(.towardZero)) ?? (value.isNaN ? 0 : value < 0 ? .min : .max)
    }
}

extension Sequence where Element: FixedWidthInteger {
    /// The sum, held at the ends of the type.
    package func saturatingSum(from start: Element = 0) -> Element {
        reduce(start) { $0.addingSaturated($1) }
    }
}
