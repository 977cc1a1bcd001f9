import CPeers
import RunLoopKit

extension Ours {
    static func oneBusy(_ count: Int, idle: Int) -> Outcome {
        deliver(count, of: idle + 1, ready: idle / 2..<idle / 2 + 1, writesAgain: true)
    }

    static func allBusy(_ count: Int) -> Outcome { deliver(count, of: count, ready: 0..<count, writesAgain: false) }

    private static func deliver(_ count: Int, of descriptors: Int, ready: Range<Int>, writesAgain: Bool) -> Outcome {
        let fds = unsafe peer_make_eventfds(UInt64(descriptors))
        let loop = EventRunLoop.current
        let left = Countdown(count, on: loop)
        let sources = (0..<descriptors).map { index in
            unsafe DescriptorSource(descriptor: fds[index]) { source, _ in
                guard peer_take(source.descriptor) else { return }
                left.countOne()
                if writesAgain { peer_post(source.descriptor) }
            }
        }
        for source in sources { add(source, to: loop) }
        for index in ready { unsafe peer_post(fds[index]) }
        let outcome = run(loop, left)
        for source in sources { source.invalidate() }
        unsafe peer_close_eventfds(fds, UInt64(descriptors))
        return outcome
    }

    private static func add(_ source: DescriptorSource, to loop: EventRunLoop) {
        do {
            try loop.add(source)
        } catch {
            fatalError("\(error)")
        }
    }
}
