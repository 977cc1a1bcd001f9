import Glibc
import RunLoopKit
import StackCapture
import StallDetection
import StallDiagnosis
import StallReports

// Candidates that are not stalls: something outside keeps the thread from running, or it waits in the loop's own wait or has left the loop.

/// A time in which something outside kept a loop's thread from running while the watchdog was awake.
struct OutsideDelay: Hashable, Sendable {
    var kind: PauseKind
    /// The loop's state during that time.
    var pulse: LoopHeartbeat.Pulse
    var since: MonotonicInstant
    /// When it was last seen to continue.
    var until: MonotonicInstant
}

extension WatchedLoop {
    /// Dismisses a candidate whose thread is kept from running from outside.
    ///
    /// - Returns: Whether it did.
    func dismissIfStopped(
        _ category: StallCategory,
        _ span: StallSpan,
        at time: MonotonicInstant,
        with services: WatchServices
    ) -> Bool {
        guard let kind = stopOfThread(services) else {
            closeOutsideDelay(services)
            return false
        }
        policy.dismiss(category, because: kind, at: time)
        let since = outsideDelay?.since ?? span.earliestStart
        outsideDelay = OutsideDelay(kind: kind, pulse: pulse, since: since, until: time)
        return true
    }

    /// Dismisses a candidate whose thread has closed the epoll set of its loop, or lost it to another thread. That loop is over, and the thread
    /// does something else until it waits again. Only for loops that were found by their waits: others say when they end.
    ///
    /// - Returns: Whether it did.
    func dismissIfLeft(at time: MonotonicInstant) -> Bool {
        guard case .loop(let loop) = loop, let found = loop as? any PollingLoop else { return false }
        let isClosed = found.waitSet(inMode: pulse.modeIndex).map(Self.isClosed) ?? false
        guard isClosed || found.hasLostItsSet else { return false }
        policy.dismiss(.blocked, because: .inWait, at: time)
        return true
    }

    /// Whether the number is no epoll set any more.
    private static func isClosed(_ set: Int32) -> Bool {
        if fcntl(set, F_GETFD) < 0, errno == EBADF { return true }
        return ![.epoll, .other, .unknown].contains(DescriptorReading.read(set).kind)
    }

    /// Dismisses a candidate whose stack shows the loop's own wait: the loop waits without publishing that. If the stack could
    /// not be taken because the loop moved on, the latest known place decides: a loop that was found in its wait before is
    /// assumed to have been there.
    ///
    /// - Returns: Whether it did.
    func dismissIfInWait(_ stack: StackOutcome, at time: MonotonicInstant, with services: WatchServices) -> Bool {
        guard stack.captured.map(isWait) ?? policy.wasFoundWaiting else { return false }
        services.ledger.update { $0.count(.raced) }
        policy.dismiss(.blocked, because: .inWait, at: time)
        return true
    }

    private func isWait(_ stack: CapturedStack) -> Bool {
        guard let call = stack.systemCall, WaitCalls.onDescriptor.contains(call.number) else { return false }
        return loop.waits(on: Int32(truncatingIfNeeded: call.arguments.first ?? UInt.max))
    }

    /// Excludes the time between two looks that both find the thread kept from running. Called when a stall has grown, and at
    /// each look while a delay lasts.
    func followOutsideDelay(at time: MonotonicInstant, with services: WatchServices) {
        let former = outsideDelay
        guard let pulse = stall?.pulse ?? former?.pulse, let kind = stopOfThread(services) else {
            return closeOutsideDelay(services)
        }
        if let former { policy.exclude(stillCounted(since: former.until, until: time), because: kind) }
        outsideDelay = OutsideDelay(kind: kind, pulse: pulse, since: former?.since ?? time, until: time)
    }

    /// How much of the time between two looks the second one has not excluded itself. The whole process may have been stopped, too.
    private func stillCounted(since former: MonotonicInstant, until time: MonotonicInstant) -> Duration {
        guard let lastLook, !lastLook.late else { return .zero }
        return max(.zero, time - former - (lastLook.excluded?.length ?? .zero))
    }

    /// Called after a look: counts the standstill that has ended, if it was dismissed.
    ///
    /// - Parameter pulse: The loop's present state. Nil if it is no longer watched.
    func countDismissal(_ pulse: LoopHeartbeat.Pulse?, with services: WatchServices) {
        if let reason = policy.dismissal { services.ledger.update { $0.dismissed[reason, default: 0] += 1 } }
        if let outsideDelay, outsideDelay.pulse != pulse { closeOutsideDelay(services) }
    }

    /// What keeps the thread from running. Nil if nothing does.
    private func stopOfThread(_ services: WatchServices) -> PauseKind? {
        guard let thread = loop.thread else { return nil }
        return ThreadStop.read(
            threadID: thread.id,
            countsTraced: services.countsTraced,
            canBeFrozenAlone: services.supply.location.found?.freezesThreads ?? false
        )
    }

    private func closeOutsideDelay(_ services: WatchServices) {
        guard let delay = outsideDelay.take() else { return }
        services.record(delay.kind, from: delay.since, to: delay.until, watch: identity.name.label)
    }
}
