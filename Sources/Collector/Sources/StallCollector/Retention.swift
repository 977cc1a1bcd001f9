import Logging
import ServiceLifecycle
import StallReports
import StallStore
import Synchronization

/// Removes old reports from the store: every ten minutes, and when much has been added since the last removal.
final class Retention: Service {
    private let store: any StallStore
    private let options: CollectorOptions
    private let metrics: CollectorMetrics
    private let audit: AuditLog?
    private let logger: Logger
    /// Bytes added since the last removal.
    private let added = Atomic(0)
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

    func remove() async {
        added.store(0, ordering: .relaxed)
        let age = options.keep.components.seconds.multipliedSaturated(by: 1_000_000_000)
        do {
            let removed = try await store.removeOld(
                before: Timestamp.now().advanced(byNanoseconds: -max(0, age)),
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
