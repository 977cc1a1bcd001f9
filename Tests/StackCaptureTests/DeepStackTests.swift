import CStalls
import Glibc
import StackCapture
import Testing

extension CaptureTests {
    @Suite("A stack of more than 1,024 frames")
    struct DeepStackTests {
        let capturer: StackCapturer

        init() throws {
            capturer = try StackCapturer(deadline: .seconds(60))
        }

        /// The frames that every stack of the fixture has below `stall_descend`: determined once, on a shallow one.
        private func outermost(_ capturer: StackCapturer) throws -> [String] {
            let stall = Stall(STALL_SPIN, depth: 0)
            defer { stall.finish() }
            let names = try names(of: capturer.capture(stall).get())
            return Array(names.drop { $0 != "run" })
        }

        private func expectBothEnds(_ stack: CapturedStack, leaf: String, frames: Int, outer: [String]) {
            #expect(stack.isComplete, "\(String(describing: stack.truncation))")
            #expect(stack.frames.count == 1024)
            #expect(stack.leftOut == .init(after: 512, count: frames - 1024))
            let names = names(of: stack)
            #expect(names.contains(leaf))
            #expect(Array(names.suffix(outer.count)) == outer)
            let recursion = names.drop { $0 != "stall_descend" }.dropLast(outer.count)
            #expect(recursion.allSatisfy { $0 == "stall_descend" })
        }

        @Test("of a running thread both ends are kept, and the frames between are counted", arguments: [3_000, 30_000])
        func running(depth: Int) throws {
            let outer = try outermost(capturer)
            let stall = Stall(STALL_SPIN, depth: depth)
            defer { stall.finish() }
            let stack = try capturer.capture(stall).get()
            expectBothEnds(stack, leaf: "stall_in_spin", frames: depth + 3 + outer.count, outer: outer)
            print(
                "deep: \(depth) frames, held \(stack.cost.heldNanoseconds) ns, unwound in \(stack.cost.unwindNanoseconds) ns"
            )
        }

        @Test("of a sleeping thread both ends are kept", arguments: [3_000, 30_000])
        func sleeping(depth: Int) throws {
            let outer = try outermost(capturer)
            let stall = Stall(STALL_READ, depth: depth)
            defer { stall.finish() }
            let stack = try capturer.captureBlocked(stall)
            let above = names(of: stack).prefix { $0 != "stall_descend" }.count
            expectBothEnds(stack, leaf: "stall_in_read", frames: above + depth + 1 + outer.count, outer: outer)
            #expect(stack.cost.bytesCopied <= 512 << 10)
        }

        @Test(
            "a stack with fewer frames that is larger than the copy is complete",
            arguments: [STALL_SPIN, STALL_READ]
        )
        func wide(kind: stall_kind) throws {
            let outer = try outermost(capturer)
            let stall = Stall(kind, depth: -700)
            defer { stall.finish() }
            let stack = try kind == STALL_READ ? capturer.captureBlocked(stall) : capturer.capture(stall).get()
            #expect(stack.isComplete)
            #expect(stack.leftOut == nil)
            #expect(stack.cost.bytesCopied == 512 << 10)
            let names = names(of: stack)
            #expect(names.count { $0 == "stall_descend_widely" } == 701)
            #expect(Array(names.suffix(outer.count)) == outer)
        }

        @Test("a part that has changed since the copy is not followed")
        func changing() throws {
            let stall = Stall(STALL_SWING, depth: 0)
            defer { stall.finish() }
            var whole = 0
            var cut = 0
            for round in 0..<30_000 where round < 300 || whole == 0 {
                guard case .success(let stack) = capturer.capture(stall), stack.method == .quiet else { continue }
                let names = names(of: stack)
                if stack.isComplete { whole += 1 } else { cut += 1 }
                #expect(stack.isComplete || stack.truncation == .copyLimit, "\(String(describing: stack.truncation))")
                // Even and odd rounds recurse in different functions: no stack shows both.
                #expect(!(names.contains("stall_swing_left") && names.contains("stall_swing_right")))
            }
            print("swinging: \(whole) whole, \(cut) cut, \(stall.rounds) rounds")
            #expect(whole > 0)
        }
    }
}
