public import ArgumentParser
public import StallGate

extension FingerprintPrefix: ExpressibleByArgument {
    /// Takes what `init(_:)` takes; at nil the command ends with a usage error.
    public init?(argument: String) { self.init(argument) }
}
