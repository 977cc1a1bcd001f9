/// Vigna's SplitMix64: the same numbers for the same seed, on every machine.
public struct SplitMix64: RandomNumberGenerator, Sendable {
    private var state: UInt64

    public init(seed: UInt64) { state = seed }

    /// A different generator in each run. The printed seed repeats the run, also if the test ends the process.
    public static func ofThisRun(for test: String = #function) -> SplitMix64 {
        print("seed: \(test): TEST_SEED=\(seedOfThisRun)")
        return SplitMix64(seed: seedOfThisRun)
    }

    private static let seedOfThisRun =
        testEnvironment("TEST_SEED").flatMap { UInt64($0) } ?? .random(in: 1...1_000_000_000)

    public mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var mixed = state
        mixed = (mixed ^ mixed >> 30) &* 0xbf58_476d_1ce4_e5b9
        mixed = (mixed ^ mixed >> 27) &* 0x94d0_49bb_1331_11eb
        return mixed ^ mixed >> 31
    }
}
