import Synchronization

/// How often something may happen: a long-term rate, and how much may happen at once after a pause.
struct Rate: Hashable, Sendable {
    var perSecond: Double
    var burst: Double

    /// - Parameter seconds: The size of a burst is what the rate allows in this time, but at least 1.
    init(perSecond: Double, burstSeconds seconds: Double = 10) {
        self.perSecond = max(perSecond, 0.001)
        burst = max(1, self.perSecond * seconds)
    }
}

/// Limits how often each key may do something, with one token bucket per key. Any thread.
///
/// The cost is charged afterwards, because it is unknown before: a large request leaves a debt, and the next one waits until the
/// debt is paid.
final class RateLimiter<Key: Hashable & Sendable>: Sendable {
    typealias Instant = ContinuousClock.Instant

    private struct Bucket {
        /// Negative while there is a debt.
        var left: Double
        var at: Instant
        var rate: Rate
    }

    private let buckets = Mutex<[Key: Bucket]>([:])
    /// The largest number of keys. Keys may come from outside, such as addresses.
    private let maximumKeys: Int

    init(maximumKeys: Int = 4096) { self.maximumKeys = maximumKeys }

    /// Takes one token from the key's bucket, if there is one.
    ///
    /// - Returns: Nil if the caller may continue; otherwise how long it has to wait.
    func take(_ key: Key, _ rate: Rate, now: Instant = .now) -> Duration? {
        buckets.withLock { buckets in
            var bucket = Self.filled(buckets[key], rate, now)
            guard bucket.left >= 1 else { return .seconds((1 - bucket.left) / rate.perSecond) }
            bucket.left -= 1
            Self.store(bucket, key, &buckets, now, maximumKeys)
            return nil
        }
    }

    /// Takes more tokens, even if this leaves a debt.
    func charge(_ count: Int, to key: Key, _ rate: Rate, now: Instant = .now) {
        guard count > 0 else { return }
        buckets.withLock { buckets in
            var bucket = Self.filled(buckets[key], rate, now)
            bucket.left -= Double(count)
            Self.store(bucket, key, &buckets, now, maximumKeys)
        }
    }

    var keyCount: Int { buckets.withLock { $0.count } }

    private static func filled(_ bucket: Bucket?, _ rate: Rate, _ now: Instant) -> Bucket {
        guard let bucket else { return Bucket(left: rate.burst, at: now, rate: rate) }
        let seconds = max(.zero, bucket.at.duration(to: now)) / .seconds(1)
        return Bucket(left: min(rate.burst, bucket.left + seconds * rate.perSecond), at: now, rate: rate)
    }

    /// A full bucket is not stored. If too many keys have used their buckets lately, new keys are not limited: the memory limit
    /// is more important.
    private static func store(
        _ bucket: Bucket,
        _ key: Key,
        _ buckets: inout [Key: Bucket],
        _ now: Instant,
        _ maximum: Int
    ) {
        if buckets[key] == nil, buckets.count >= maximum {
            buckets = buckets.filter { filled($0.value, $0.value.rate, now).left < $0.value.rate.burst }
            guard buckets.count < maximum else { return }
        }
        buckets[key] = bucket
    }
}
