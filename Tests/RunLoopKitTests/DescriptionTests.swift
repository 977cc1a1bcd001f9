import RunLoopKit
import Testing

/// R62.
@Suite(.timeLimit(.minutes(1)))
struct DescriptionTests {
    @Test("R62: a loop describes its modes, and in each every item with what matters of it")
    func everything() async {
        let lines = await onLoopThread { loop in
            let source = EventSource(order: 3) { _ in }
            loop.add(source)
            source.signal()
            loop.add(EventSource { _ in }, to: "tracking")
            loop.add(LoopObserver(activities: [.entry, .exit], repeats: false) { _, _ in }, to: .common)
            loop.add(EventTimer(at: .distantFuture, every: .seconds(2), order: 1) { _ in })
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

    @Test("An error says what to do, and why it came")
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
