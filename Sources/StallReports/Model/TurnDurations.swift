/// How long a loop's turns took, also where nothing stalled.
///
/// A turn counts from the departure from rest to the next rest; one that no rest precedes, from its own beginning. Each was timed
/// by the loop's own thread, however short it was.
public struct TurnDurations: Codable, Hashable, Sendable {
    /// Turns timed.
    public var count: UInt64
    /// Half of the turns were not longer, give or take an eighth.
    public var p50Ns: Int64
    /// 99 of 100 turns were not longer, give or take an eighth.
    public var p99Ns: Int64
    /// The longest one, exactly.
    public var maxNs: Int64

    /// Nothing is defaulted or checked.
    public init(count: UInt64, p50Ns: Int64, p99Ns: Int64, maxNs: Int64) {
        (self.count, self.p50Ns, self.p99Ns, self.maxNs) = (count, p50Ns, p99Ns, maxNs)
    }

    private enum CodingKeys: String, CodingKey {
        case count
        case p50Ns = "p50_ns"
        case p99Ns = "p99_ns"
        case maxNs = "max_ns"
    }
}
