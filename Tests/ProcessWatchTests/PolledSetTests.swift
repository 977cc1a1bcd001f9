import StallMonitor
import StallReports
import Testing

@Suite("What a thread polls, and whether that is a loop's list")
struct PolledSetTests {
    @Test(
        "Servers poll listeners, their own epoll sets and wakers; clients a connection, a terminal or a child's output",
        arguments: [
            ([.socket], false, false), ([.socket], true, false), ([.file], true, false), ([.pipe], true, false),
            ([.pipe, .pipe], true, false), ([.socket, .eventfd], false, false), ([.socket, .pipe], false, false),
            ([], true, false),
            ([.socket, .eventfd], true, true), ([.socket, .pipe], true, true), ([.eventfd], true, true),
            ([.epoll], false, true), ([.timerfd], false, true), ([.signalfd, .socket], false, true),
            ([.inotify], true, true),
            (Array(repeating: .socket, count: 7), true, false), (Array(repeating: .socket, count: 8), false, true),
        ] as [([DescriptorKind], Bool, Bool)]
    )
    func kinds(_ kinds: [DescriptorKind], _ isUnbounded: Bool, _ expected: Bool) {
        #expect(PolledSet(kinds: kinds, isUnbounded: isUnbounded).isOfLoop == expected)
        #expect(PolledSet(kinds: kinds + [.socket], hasListener: true, isUnbounded: isUnbounded).isOfLoop)
    }
}
