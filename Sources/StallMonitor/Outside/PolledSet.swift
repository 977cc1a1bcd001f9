package import StackCapture
import StallDiagnosis
package import StallReports

/// What a thread of another process waits for in poll or select, as far as it tells a server's loop from a client's wait.
package struct PolledSet: Hashable, Sendable {
    /// What the descriptors are. Of a long list the first few.
    package var kinds: [DescriptorKind]
    /// Whether one of them is a socket that connections come in by.
    package var hasListener: Bool
    /// Whether the wait has no limit of time.
    package var isUnbounded: Bool

    package init(kinds: [DescriptorKind], hasListener: Bool = false, isUnbounded: Bool) {
        (self.kinds, self.hasListener, self.isUnbounded) = (kinds, hasListener, isUnbounded)
    }

    /// No client polls so many.
    private static let many = 8
    /// What only loops wait for.
    private static let own: Set<DescriptorKind> = [.epoll, .timerfd, .signalfd, .inotify]

    /// Servers poll what tells them of clients, of time and of other threads. A client polls its connection, its terminal or a child's
    /// output, which is as often as it asks for something, and between two questions it may do or await anything: it is no loop.
    ///
    /// `CLoopHooks/rule.c` decides the same within the process.
    package var isOfLoop: Bool {
        if hasListener || kinds.count >= Self.many { return true }
        if kinds.contains(where: Self.own.contains) { return true }
        // Clients poll these, too, to be cancelled or to follow a child's output, but seldom so and without a limit of time.
        return isUnbounded && (kinds.contains(.eventfd) || (kinds.contains(.pipe) && kinds.contains(.socket)))
    }
}

extension OutsideProcess {
    /// What a poll or select waits for, by its arguments. To be asked while a thread sleeps in it: its memory is another one's later.
    package func polled(in call: SystemCall) -> PolledSet {
        let site = WaitSite(call, state: nil, of: observed) { read($0, $1) }
        // One that is selected for reading and for writing is one.
        let each = Dictionary(site.descriptors.map { ($0.number, $0.kind) }) { first, _ in first }
        return PolledSet(
            kinds: Array(each.values),
            hasListener: site.descriptors.contains { $0.isListener() },
            isUnbounded: site.decoded.argument("timeout") == "none"
        )
    }
}
