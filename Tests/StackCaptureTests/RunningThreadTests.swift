import CStalls
import StackCapture
import Symbolication
import Synchronization
import Testing

extension CaptureTests {
    @Suite("A running thread")
    struct RunningThreadTests {
        let capturer: StackCapturer

        init() throws {
            capturer = try StackCapturer(deadline: .seconds(5))
        }

        @Test("copies its own stack, and every frame is found", arguments: [0, 7, 200, 900])
        func spinning(depth: Int) throws {
            let stall = Stall(STALL_SPIN, depth: depth)
            defer { stall.finish() }
            let stack = try capturer.capture(stall).get()
            #expect(stack.method == .signal)
            #expect(stack.systemCall == nil)
            #expect(stack.isComplete)
            #expect(stack.cost.heldNanoseconds > 0)
            let expected =
                ["stall_in_spin", "stall_at"] + Array(repeating: "stall_descend", count: depth + 1) + ["run"]
            let names = names(of: stack)
            #expect(names.starts(with: expected), "\(names)")
            #expect(stack.frames.first?.found == .register)
            #expect(stack.frames.dropFirst().allSatisfy { $0.found == .unwindTable })
        }

        @Test("with more than 1,024 frames keeps the innermost, and says so")
        func frameLimit() throws {
            let stall = Stall(STALL_SPIN, depth: 3000)
            defer { stall.finish() }
            let stack = try capturer.capture(stall).get()
            #expect(stack.frames.count == 1024)
            #expect(stack.truncation == .frameLimit)
        }

        @Test("with more than 512 KiB of stack keeps the innermost part, and says so")
        func copyLimit() throws {
            let stall = Stall(STALL_SPIN, depth: -100)
            defer { stall.finish() }
            let stack = try capturer.capture(stall).get()
            #expect(stack.truncation == .copyLimit)
            #expect(stack.cost.bytesCopied == 512 << 10)
            #expect(names(of: stack).starts(with: ["stall_in_spin", "stall_at", "stall_descend_widely"]))
        }

        @Test("is complete in every capture, whatever it is doing", arguments: [STALL_ALLOCATE, STALL_ITERATE])
        func storms(kind: stall_kind) throws {
            let stall = Stall(kind, depth: 4)
            defer { stall.finish() }
            try expectWholeStacks(of: stall, captures: 500)
        }

        @Test("that loads and unloads modules at the same address never meets a stale unwind table")
        func reloading() throws {
            guard let plugins = try Plugins() else { return }
            let stall = Stall(STALL_RELOAD, depth: 4, path: plugins.folder)
            defer { stall.finish() }
            try expectWholeStacks(of: stall, captures: 500)
        }

        @Test("runs on meanwhile: it goes round between any two captures of a storm")
        func goesOn() throws {
            let stall = Stall(STALL_ALLOCATE)
            defer { stall.finish() }
            for _ in 0..<200 {
                let before = stall.rounds
                _ = try capturer.capture(stall).get()
                while stall.rounds == before {}
            }
        }

        /// Outermost frames are the same in all captures of one thread, so they show a walk that went astray.
        private func expectWholeStacks(of stall: Stall, captures: Int) throws {
            var quiet = 0
            var kept = 0
            for _ in 0..<captures {
                switch capturer.capture(stall) {
                case .failure(let error):
                    #expect([.threadKeptMoving, .notDelivered].contains(error.code))
                    kept += 1
                case .success(let stack):
                    quiet += stack.method == .quiet ? 1 : 0
                    let names = names(of: stack)
                    // The C runtime's own start and end code for modules comes without unwind tables.
                    let untabled = [
                        "__do_global_dtors_aux", "register_tm_clones", "deregister_tm_clones", "frame_dummy", "_init",
                        "_fini",
                    ]
                    if stack.truncation == .noUnwindTable && !Set(untabled).isDisjoint(with: names) { continue }
                    #expect(stack.isComplete, "\(names) \(String(describing: stack.truncation))")
                    #expect(names.count { $0 == "stall_descend" } == 5, "\(names)")
                }
            }
            print("storm: \(captures) captures, \(quiet) quiet, \(kept) kept moving, \(stall.rounds) rounds")
            #expect(kept < captures / 2)
        }

        @Test("is named down to the Swift closure that it spins in")
        func swiftClosure() throws {
            let worker = SpinningWorker()
            defer { worker.finish() }
            let stack = try capturer.capture(threadID: worker.identity.threadID, stack: worker.identity.stack).get()
            #expect(stack.method == .signal)
            #expect(stack.isComplete)
            let functions = names(of: stack).map(Demangler.shortName)
            #expect(functions.contains { $0.hasPrefix("closure #1 in SpinningWorker.") }, "\(functions)")
            #expect(functions.contains { $0.hasPrefix("applyTwice") }, "\(functions)")
        }
    }
}
