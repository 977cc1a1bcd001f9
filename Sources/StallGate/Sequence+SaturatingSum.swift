extension Sequence where Element: FixedWidthInteger {
    /// The sum of numbers that are not negative, held at the largest number there is: a hostile file must not trap.
    func saturatingSum(from start: Element = 0) -> Element {
        reduce(start) { sum, next in
            let (value, overflow) = sum.addingReportingOverflow(next)
            return overflow ? .max : value
        }
    }
}
