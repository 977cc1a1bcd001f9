/// Why nothing can be sent at all. The text says what to do.
package struct ShippingError: Error, Hashable, Sendable, CustomStringConvertible {
    /// One line for display.
    package let description: String

    init(_ description: String) { self.description = description }
}
