// Arithmetic on outside input: from a file, a directory entry, /proc, a clock, another process. Swift's own operators trap on
// overflow, and a trap in a thread of the monitor ends the server. These operations saturate instead.

extension FixedWidthInteger {
    /// The sum, saturated to the type's range.
    package func addingSaturated(_ other: Self) -> Self {
        let (sum, isOver) = addingReportingOverflow(other)
        return isOver ? (other < 0 ? .min : .max) : sum
    }

    /// The difference, saturated to the type's range: 0 if an unsigned number would fall below it.
    package func subtractingSaturated(_ other: Self) -> Self {
        let (difference, isOver) = subtractingReportingOverflow(other)
        return isOver ? (other < 0 ? .max : .min) : difference
    }

    /// The product, saturated to the type's range.
    package func multipliedSaturated(by other: Self) -> Self {
        let (product, isOver) = multipliedReportingOverflow(by: other)
        return isOver ? ((self < 0) == (other < 0) ? .max : .min) : product
    }

    /// Rounds towards zero and saturates to the type's range; 0 for NaN.
    package init(saturating value: Double) {
        self = Self(exactly: value.rounded(.towardZero)) ?? (value.isNaN ? 0 : value < 0 ? .min : .max)
    }
}

extension Sequence where Element: FixedWidthInteger {
    /// The sum, saturated to the type's range.
    package func saturatingSum(from start: Element = 0) -> Element {
        reduce(start) { $0.addingSaturated($1) }
    }
}
