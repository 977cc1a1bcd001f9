import Foundation
import LoopTestSupport
import RunLoopKit
import Testing

/// R62.
@Suite(.timeLimit(.minutes(10)))
struct DescriptionTests {
    private static func fill(_ loop: EventRunLoop) {
        let source = EventSource(order: 3) { _ in }
        loop.add(source)
        source.signal()
        loop.add(EventSource { _ in }, to: "tracking")
        loop.add(LoopObserver(activities: [.entry, .exit], repeats: false) { _, _ in }, to: .common)
        loop.add(EventTimer(at: .now.advanced(by: .seconds(3600)), every: .seconds(2), order: 1) { _ in })
    }

    @Test("R62: a loop's description has its modes, and every item of each with its properties")
    func everything() async {
        let lines = await onLoopThread { loop in
            Self.fill(loop)
            return loop.description.split(separator: "\n").map(String.init)
        }
        #expect(lines.count == 7)
        #expect(lines[0].hasSuffix("idle in no mode, common modes: default"))
        #expect(lines[1] == "  mode default, common")
        #expect(lines[2] == "    source, order 3, signalled")
        #expect(lines[3].hasPrefix("    timer, order 1, fires in ") && lines[3].hasSuffix(", every 2.0 seconds"))
        #expect(lines[4] == "    observer, order 0, entry exit, once")
        #expect(Array(lines[5...]) == ["  mode tracking", "    source, order 0"])
    }

    @Test("R62: queued work is counted, also in a running loop, until it is done")
    func queued() async {
        let (line, inside, after) = await onLoopThread { loop in
            for _ in 1...2 { loop.perform(in: "other") {} }
            loop.performAsSource(in: ["other"]) {}
            loop.performBeforeWaiting("work") {}
            let line = loop.description.split(separator: "\n")[1]
            let inside = Box<LoopSnapshot?>(nil)
            loop.perform(in: "other") { inside.value = loop.snapshot }
            loop.run(mode: "other", for: .zero)
            loop.run(for: .zero)
            loop.perform(after: .zero) {}
            loop.run(for: .zero)
            return (line, inside.value, loop.snapshot)
        }
        #expect(line == "  queued: blocks 2, perform requests 1, work before waiting 1")
        #expect(inside?.phase == "beforeSources" && inside?.currentMode == "other" && inside?.performRequests == 1)
        #expect(after.queuedBlocks == 0 && after.performRequests == 0 && after.beforeWaitingWork == 0)
    }

    @Test("R62: the snapshot as JSON reads back as the same snapshot")
    func json() async throws {
        let snapshot = await onLoopThread { loop in
            Self.fill(loop)
            loop.addCommonMode("a \"quoted\" mode")
            loop.add(EventTimer(at: .distantFuture) { _ in }, to: "tracking")
            var ends: [Int32] = [0, 0]
            #expect(unsafe pipe(&ends) == 0)
            let source = DescriptorSource(descriptor: ends[0], events: [.readable, .hangUp]) { _, _ in }
            #expect(throws: Never.self) { try loop.add(source, to: "tracking") }
            let snapshot = loop.snapshot
            source.invalidate()
            for end in ends { close(end) }
            return snapshot
        }
        #expect(!snapshot.json.contains("\n"))
        #expect(try JSONDecoder().decode(LoopSnapshot.self, from: Data(snapshot.json.utf8)) == snapshot)
        let tracking = try #require(snapshot.modes.first { $0.name == "tracking" })
        #expect(tracking.descriptors.map(\.interest) == [["readable", "hangUp"]])
        #expect(tracking.timers.map(\.description) == ["timer, order 0, fires never"])
        #expect(snapshot.thread != nil)
    }

    @Test("R62: the JSON has the documented names, in the documented order")
    func shape() async {
        let text = await onLoopThread { loop in
            loop.add(EventSource { _ in })
            loop.add(EventTimer(at: .distantFuture) { _ in })
            loop.add(LoopObserver(activities: .exit) { _, _ in })
            var snapshot = loop.snapshot
            (snapshot.loop, snapshot.thread, snapshot.timeNanoseconds) = ("l", nil, 7)
            return snapshot.json
        }
        #expect(
            text == #"{"loop":"l","thread":null,"time_ns":7,"phase":"idle","turn":0,"current_mode":null,"#
                + #""common_modes":["default"],"queued_blocks":0,"perform_requests":0,"before_waiting_work":0,"#
                + #""modes":[{"name":"default","common":true,"sources":[{"order":0,"signalled":false,"valid":true}],"#
                + #""descriptors":[],"timers":[{"order":0,"next_fire_ns":null,"fires_in_ns":null,"interval_ns":0,"#
                + #""tolerance_ns":0,"wall_clock":false,"valid":true}],"observers":[{"order":0,"activities":["exit"],"repeats":true,"valid":true}]}]}"#
        )
    }

    @Test("An error's text gives the reason and says what to do")
    func errors() async {
        let text = await onLoopThread { loop -> String in
            do throws(RunLoopError) {
                try loop.add(DescriptorSource(descriptor: -1) { _, _ in })
                return ""
            } catch {
                return error.description
            }
        }
        #expect(text == "The descriptor cannot be waited for; it is closed, or a regular file. (Bad file descriptor)")
    }
}
