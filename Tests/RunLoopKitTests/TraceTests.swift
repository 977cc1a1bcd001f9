import Foundation
import LoopTestSupport
import RunLoopKit
import Testing

/// R63.
@Suite(.timeLimit(.minutes(10)))
struct TraceTests {
    @Test("R63: a trace records every transition with its mode, its turn and a time that never goes back")
    func records() async {
        let transitions = await onLoopThread { loop in
            occupy(loop)
            let trace = LoopTrace(of: loop)
            loop.run(for: .nanoseconds(1))
            loop.run(for: .zero)
            return trace.transitions
        }
        let steps = transitions.map { "\($0.from) → \($0.to)" }
        #expect(
            steps == [
                "idle → entry", "entry → beforeTimers", "beforeTimers → beforeSources", "beforeSources → beforeWaiting",
                "beforeWaiting → afterWaiting", "afterWaiting → exit",
                "idle → entry", "entry → beforeTimers", "beforeTimers → beforeSources", "beforeSources → exit",
            ]
        )
        #expect(transitions.allSatisfy { $0.mode == "default" && $0.depth == 1 })
        #expect(transitions.map(\.time) == transitions.map(\.time).sorted())
        #expect(transitions.map(\.turn) == transitions.map(\.turn).sorted())
    }

    @Test(
        "R63: nested runs are recorded with their depth, the outer one continues; later modes are recorded, too"
    )
    func nested() async {
        let steps = await onLoopThread { loop in
            let trace = LoopTrace(of: loop)
            loop.perform(after: .zero) {
                occupy(loop, "made later")
                loop.run(mode: "made later", for: .zero)
                loop.stop()
            }
            loop.run(for: .seconds(60))
            return trace.transitions.map { "\($0.depth) \($0.mode) \($0.from) → \($0.to)" }
        }
        let nested = steps.filter { $0.hasPrefix("2 ") }
        #expect(
            nested == [
                "2 made later afterWaiting → entry", "2 made later entry → beforeTimers",
                "2 made later beforeTimers → beforeSources", "2 made later beforeSources → exit",
            ]
        )
        #expect(steps.last == "1 default afterWaiting → exit")
    }

    @Test("R63: the ring keeps the latest transitions and counts the lost ones; a stopped trace records no more")
    func ring() async {
        let (kept, lost, afterwards) = await onLoopThread { loop in
            occupy(loop)
            let trace = LoopTrace(of: loop, capacity: 3)
            for _ in 1...2 { loop.run(for: .zero) }
            trace.stop()
            let kept = trace.transitions.map { "\($0.to)" }
            loop.run(for: .zero)
            loop.add(EventSource { _ in }, to: "new")
            loop.run(mode: "new", for: .zero)
            return (kept, trace.lostCount, trace.transitions.count)
        }
        #expect(kept == ["beforeTimers", "beforeSources", "exit"])
        #expect(lost == 5 && afterwards == 3)
    }

    @Test("R63: a trace that is released is removed from its loop")
    func released() async {
        let (before, after) = await onLoopThread { loop in
            occupy(loop)
            var trace: LoopTrace? = LoopTrace(of: loop)
            let before = loop.snapshot.modes[0].observers.count
            _ = trace
            trace = nil
            return (before, loop.snapshot.modes[0].observers.count)
        }
        #expect(before == 1 && after == 0)
    }

    @Test("R63: text and JSON lines reach their descriptor complete, each JSON line a separate document")
    func lines() async throws {
        let (transitions, text, json) = await onLoopThread { loop in
            occupy(loop, "a \"quoted\\ mode\n")
            let (text, json) = (LineReader(), LineReader())
            let trace = LoopTrace(of: loop, sink: LoopTrace.jsonLines(to: json.writeEnd))
            let other = LoopTrace(of: loop, sink: LoopTrace.textLines(to: text.writeEnd))
            loop.run(mode: "a \"quoted\\ mode\n", for: .zero)
            other.stop()
            return (trace.transitions, text.finish(), json.finish())
        }
        struct Line: Decodable, Equatable {
            let time: UInt64
            let mode, from, to: String
            let turn: UInt64
            let depth: Int

            enum CodingKeys: String, CodingKey {
                case time = "time_ns"
                case mode, from, to, turn, depth
            }
        }
        let decoded = try json.split(separator: "\n").map { try JSONDecoder().decode(Line.self, from: Data($0.utf8)) }
        let expected = transitions.map {
            Line(
                time: $0.time.nanoseconds,
                mode: $0.mode,
                from: "\($0.from)",
                to: "\($0.to)",
                turn: $0.turn,
                depth: $0.depth
            )
        }
        #expect(decoded == expected && decoded.count == 4)
        #expect(text.contains(": beforeTimers → beforeSources, turn "))
    }

    @Test("A transition's text has the time in seconds, and JSON escapes what it must")
    func text() async {
        let transition = await onLoopThread { loop in
            occupy(loop, "tab\tbell\u{7}é")
            let trace = LoopTrace(of: loop)
            loop.run(mode: "tab\tbell\u{7}é", for: .zero)
            return trace.transitions[0]
        }
        let nanoseconds = String(transition.time.nanoseconds)
        let (seconds, fraction) = (nanoseconds.dropLast(9), nanoseconds.suffix(9))
        #expect(
            transition.description == "\(seconds).\(fraction) tab\tbell\u{7}é: idle → entry, turn \(transition.turn)"
        )
        #expect(transition.json.contains(#""mode":"tab\tbell\u0007é""#))
    }
}

/// A pipe that is read after everything was written: for a few lines.
private final class LineReader: Sendable {
    let writeEnd: Int32
    private let readEnd: Int32

    init() {
        var ends: [Int32] = [0, 0]
        let result = unsafe pipe(&ends)
        precondition(result == 0, "pipe: errno \(errno)")
        (readEnd, writeEnd) = (ends[0], ends[1])
    }

    func finish() -> String {
        close(writeEnd)
        var bytes = [UInt8](repeating: 0, count: 65536)
        let count = unsafe read(readEnd, &bytes, bytes.count)
        close(readEnd)
        return String(decoding: bytes.prefix(max(0, count)), as: UTF8.self)
    }
}
