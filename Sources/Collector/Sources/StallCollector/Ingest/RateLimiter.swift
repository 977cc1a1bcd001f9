import Synchronization

/// How often something may happen: this often over a long time, and this often at once after a pause.
struct Rate: Hashable, Sendable {
    var perSecond: Double
    var burst: Double

    /// - Parameter seconds: a burst is as much as the rate allows in this time, but at least 1.
    init(perSecond: Double, burstSeconds seconds: Double = 10) {
        self.perSecond = max(perSecond, 0.001)
        burst = max(1, self.perSecond * seconds)
    }
}

/// Limits how often each key may do something, by one token bucket per key. For any thread.
///
/// The cost is charged afterwards, because it is known only then: a large request leaves a debt, and the next one waits until it is paid.
final class RateLimiter<Key: Hashable & Sendable>: Sendable {
    typealias Instant = ContinuousClock.Instant

    private struct Bucket {
        /// Negative while there is a debt.
        var left: Double
        var at: Instant
        var rate: Rate
    }

    private let buckets = Mutex<[Key: Bucket]>([:])
    /// Keys may come from outside: addresses, for example.
    private let maximumKeys: Int

    init(maximumKeys: Int = 4096) { self.maximumKeys = maximumKeys }

    /// Takes one from the key's bucket if there is one in it.
    ///
    /// - Returns: nil if it may go on; otherwise how long it has to wait.
    func wait(_ key: Key, _ rate: Rate, now: Instant = .now) -> Duration? {
        buckets.withLock { buckets in
            var bucket = Self.filled(buckets[key], rate, now)
            guard bucket.left >= 1 else { return .seconds((1 - bucket.left) / rate.perSecond) }
            bucket.left -= 1
            Self.store(bucket, key, &buckets, now, maximumKeys)
            return nil
        }
    }

    /// Takes more, even if this leaves a debt.
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

    /// A full bucket is the same as none. If too many keys have used theirs lately, new ones are not limited: memory matters more.
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
