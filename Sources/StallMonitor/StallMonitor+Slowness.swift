import RunLoopKit

// What the server says of its own slowness, and pauses of the monitoring.

extension StallMonitor {
    /// Says that the work may be slow: for so long, time in it counts towards no stall of any loop.
    ///
    ///     try monitor.expectSlow(for: .seconds(5)) { try migrate() }
    ///
    /// Prefer `Watch.expectSlow(for:_:)`, which leaves the other loops under watch. Scopes may be nested and overlap, on any threads;
    /// time that several cover is covered once. A stall that goes on beyond the limit, or begins outside, is reported when what is not
    /// covered reaches the threshold; its `duration_ns` leaves the covered time out, `excluded_ns` has it. The run record sums the
    /// covered time up, and counts as `dismissed` each stall that would have been told without it.
    ///
    /// Any thread; it takes locks for moments and reads the clock, twice. Without a running monitor it only does the work.
    ///
    /// - Parameters:
    ///   - limit: from now on; nothing is covered after it. Not negative.
    ///   - work: done at once, on the calling thread.
    public func expectSlow<Result, Failure: Error>(
        for limit: Duration,
        _ work: () throws(Failure) -> Result
    ) throws(Failure) -> Result {
        let scope = SlowScope(engine?.slowness, for: limit)
        defer { scope.close() }
        return try work()
    }

    /// The same for work that awaits. It runs where the caller runs; time in which it is suspended counts towards the limit, too.
    public nonisolated(nonsending) func expectSlow<Result, Failure: Error>(
        for limit: Duration,
        _ work: nonisolated(nonsending) () async throws(Failure) -> Result
    ) async throws(Failure) -> Result {
        let scope = SlowScope(engine?.slowness, for: limit)
        defer { scope.close() }
        return try await work()
    }

    /// Stops looking at every loop, until ``resume()``. A stall under way is closed as `abandoned`. While everything is paused the
    /// watchdog does not wake. Any thread; returns at once. Pausing twice is pausing once. The run record has each pause, and leaves
    /// its time out of what was watched.
    public func pause() {
        engine?.watchdog.give(.pause(nil, .now))
    }

    /// Looks again at every loop whose own watch is not paused. A stall counts from here on. Any thread; returns at once.
    public func resume() {
        engine?.watchdog.give(.resume(nil, .now))
    }
}

extension StallMonitor.Watch {
    /// Says that the work may be slow: for so long, time in it counts towards no stall of this loop. What
    /// `StallMonitor.expectSlow(for:_:)` says holds here.
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
