import RunLoopKit

// Expected slowness, and pauses of the monitoring.

extension StallMonitor {
    /// Announces that the work may be slow. For at most `limit`, time in it counts towards no stall of any loop.
    ///
    ///     try monitor.expectSlow(for: .seconds(5)) { try migrate() }
    ///
    /// Prefer `Watch.expectSlow(for:_:)`, which keeps watching the other loops. Scopes may be nested and overlap, on any threads;
    /// time that several cover counts once. A stall that continues beyond the limit, or begins outside, is reported when its
    /// uncovered time reaches the threshold; its `duration_ns` leaves out the covered time, which is in `excluded_ns`. The run
    /// record has the sum of the covered time, and counts each stall that was not reported because of it as `dismissed`.
    ///
    /// Any thread; takes locks briefly and reads the clock twice. Without a running monitor it only runs the work.
    ///
    /// - Parameters:
    ///   - limit: Counted from now on; nothing is covered after it. Not negative.
    ///   - work: Runs at once, on the calling thread.
    public func expectSlow<Result, Failure: Error>(
        for limit: Duration,
        _ work: () throws(Failure) -> Result
    ) throws(Failure) -> Result {
        let scope = SlowScope(engine?.slowness, for: limit)
        defer { scope.close() }
        return try work()
    }

    /// The same for work that awaits. It runs where the caller runs. Time in which it is suspended counts towards the limit, too.
    public nonisolated(nonsending) func expectSlow<Result, Failure: Error>(
        for limit: Duration,
        _ work: nonisolated(nonsending) () async throws(Failure) -> Result
    ) async throws(Failure) -> Result {
        let scope = SlowScope(engine?.slowness, for: limit)
        defer { scope.close() }
        return try await work()
    }

    /// Stops looking at every loop, until ``resume()``. Ongoing stalls are closed as `abandoned`. While everything is paused the
    /// watchdog does not wake. Any thread; returns at once. A second pause has no further effect. The run record lists each
    /// pause, and its time does not count as watched. ``health`` is `degraded` meanwhile.
    public func pause() {
        engine?.watchdog.give(.pause(nil, .now))
    }

    /// Looks again at every loop whose own watch is not paused. Stalls count from now on. Any thread; returns at once.
    public func resume() {
        engine?.watchdog.give(.resume(nil, .now))
    }
}

extension StallMonitor.Watch {
    /// Announces that the work may be slow. For at most `limit`, time in it counts towards no stall of this loop. See
    /// `StallMonitor.expectSlow(for:_:)`.
    public func expectSlow<Result, Failure: Error>(
        for limit: Duration,
        _ work: () throws(Failure) -> Result
    ) throws(Failure) -> Result {
        let scope = SlowScope(slowness, for: limit)
        defer { scope.close() }
        return try work()
    }

    /// The same for work that awaits. It runs where the caller runs.
    public nonisolated(nonsending) func expectSlow<Result, Failure: Error>(
        for limit: Duration,
        _ work: nonisolated(nonsending) () async throws(Failure) -> Result
    ) async throws(Failure) -> Result {
        let scope = SlowScope(slowness, for: limit)
        defer { scope.close() }
        return try await work()
    }

    /// Stops looking at this loop, until ``resume()``. See ``StallMonitor/pause()``.
    public func pause() {
        for number in [number, jobs].compactMap({ $0 }) { watchdog?.give(.pause(number, .now)) }
    }

    /// Looks at this loop again, unless the whole monitor is paused. Any thread; returns at once.
    public func resume() {
        for number in [number, jobs].compactMap({ $0 }) { watchdog?.give(.resume(number, .now)) }
    }
}

/// One open scope.
private struct SlowScope {
    private let slowness: ExpectedSlowness?
    private let number: UInt64?

    init(_ slowness: ExpectedSlowness?, for limit: Duration) {
        self.slowness = slowness
        number = slowness?.open(for: limit)
    }

    func close() { slowness?.close(number) }
}
