// Sums of numbers that come from files: a hostile one must not trap.

extension FixedWidthInteger {
    /// The sum, held at the ends of what there is.
    package func addingHeld(_ other: Self) -> Self {
        let (sum, overflow) = addingReportingOverflow(other)
        return overflow ? (other < 0 ? .min : .max) : sum
    }
}

extension Sequence where Element: FixedWidthInteger {
    /// The sum, held at the ends of what there is.
    package func saturatingSum(from start: Element = 0) -> Element { reduce(start) { $0.addingHeld($1) } }
}
