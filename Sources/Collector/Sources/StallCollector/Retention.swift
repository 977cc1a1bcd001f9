import Logging
import ServiceLifecycle
import StallReports
import StallStore
import Synchronization

/// Removes old reports from the store: every ten minutes, and when much has been added since the last removal.
///
/// What is old is decided by the wall clock. Where that is far ahead, for example until a machine that has just started gets the time from
/// its network, everything would be old. So nothing is removed for its age before the clock has run evenly for a while.
final class Retention: Service {
    private let store: any StallStore
    private let options: CollectorOptions
    private let metrics: CollectorMetrics
    private let audit: AuditLog?
    private let logger: Logger
    /// Bytes added since the last removal.
    private let added = Atomic(0)
    private let clock = Mutex(ClockCheck())
    private let (calls, call) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))

    init(
        _ store: any StallStore,
        _ options: CollectorOptions,
        _ metrics: CollectorMetrics,
        _ audit: AuditLog?,
        _ logger: Logger
    ) {
        (self.store, self.options, self.metrics) = (store, options, metrics)
        (self.audit, self.logger) = (audit, logger)
    }

    func run() async throws {
        await cancelWhenGracefulShutdown {
            await withTaskGroup(of: Void.self) { group in
                group.addTask {
                    while !Task.isCancelled {
                        self.call.yield()
                        do { try await Task.sleep(for: .seconds(600)) } catch { return }
                    }
                }
                for await _ in self.calls {
                    await self.remove()
                    // Each request that the store fails calls again, and removing costs the store more than the request.
                    do { try await Task.sleep(for: .seconds(1)) } catch { break }
                }
                group.cancelAll()
            }
        }
    }

    /// Notes that the store has added this many bytes, or had no room for more.
    func note(bytes: Int, isFull: Bool = false) {
        guard let maximum = options.maximumBytes else { return }
        let sum = added.wrappingAdd(max(0, bytes), ordering: .relaxed).newValue
        if isFull || Int64(sum) > maximum / 16 { call.yield() }
    }

    func remove(at now: Timestamp = .now(), _ instant: ContinuousClock.Instant = .now) async {
        added.store(0, ordering: .relaxed)
        let age = options.keep.components.seconds.multipliedSaturated(by: 1_000_000_000)
        let isBelieved = clock.withLock { $0.believes(now, at: instant) }
        do {
            let removed = try await store.removeOld(
                before: isBelieved ? now.advanced(byNanoseconds: -max(0, age)) : Timestamp(seconds: 0),
                maximumBytes: options.maximumBytes
            )
            metrics.removed.add(removed)
            guard removed > 0 else { return }
            audit?.write(.init(action: "retention", outcome: "removed \(removed) stalls"))
            logger.info("removed old stalls", metadata: ["count": "\(removed)"])
        } catch {
            // The collector is ending.
            if Task.isCancelled { return }
            audit?.write(.init(action: "retention", outcome: "failed", reason: "\(error)"))
            logger.error("old stalls could not be removed", metadata: ["error": "\(error)"])
        }
    }
}

/// Decides whether the wall clock is believed where a wrong time would destroy data: not in the first minutes, and not in those after it
/// was set by more than a day.
struct ClockCheck {
    private static let wait = Duration.seconds(540)
    private static let tolerance = Duration.seconds(86_400)

    /// What both clocks showed when the wait began.
    private var beginning: (wall: Timestamp, instant: ContinuousClock.Instant)?

    mutating func believes(_ wall: Timestamp, at instant: ContinuousClock.Instant) -> Bool {
        if let beginning {
            let passed = instant - beginning.instant
            let shown = Duration.nanoseconds(wall.nanoseconds(since: beginning.wall))
            if (passed - Self.tolerance...passed + Self.tolerance).contains(shown) { return passed >= Self.wait }
        }
        beginning = (wall, instant)
        return false
    }
}
