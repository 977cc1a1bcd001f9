#if Command
    public import ArgumentParser
    public import StallGate

    extension FingerprintPrefix: ExpressibleByArgument {
        public init?(argument: String) { self.init(argument) }
    }
#endif
