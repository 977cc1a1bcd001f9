import Foundation
import Symbolication
import TestSupport
import Testing

@testable import StackCapture

@Suite("Another process", .serialized, .timeLimit(.minutes(60)))
enum ProcessTests {
    @Suite("Its threads")
    struct ProcessSamplerTests {
        @Test(
            "threads asleep in a call are read quietly, with the call and every frame",
            arguments: ["poll", "futex", "vfork"]
        )
        func asleep(_ call: String) throws {
            let target = try TargetProcess("call", call, "60")
            let sampler = try ProcessSampler(processID: target.processID)
            let stack = try sampler.firstStack(in: call)
            #expect(stack.method == .quiet)
            #expect(stack.isComplete)
            #expect(stack.cost.heldNanoseconds == 0)
            let names = sampler.names(of: stack)
            #expect(names.contains(["call_\(call)", "block_in", "main"]), "\(names)")
            #expect(names.last == "_start")
        }

        @Test("running threads are stopped briefly, a thousand times, and every stack is correct")
        func running() throws {
            let target = try TargetProcess("compute", "50")
            let sampler = try ProcessSampler(processID: target.processID, deadline: .seconds(5))
            var held: [UInt64] = []
            var unwound: [UInt64] = []
            for _ in 0..<20_000 where held.count < 1000 {
                let stack = try sampler.capture().get()
                // Its last function does not sleep, but a page fault may suspend it.
                if stack.method == .stopped { held.append(stack.cost.heldNanoseconds) }
                unwound.append(stack.cost.unwindNanoseconds)
                guard unwound.count % 10 == 0 else { continue }
                let names = sampler.names(of: stack)
                #expect(stack.isComplete)
                #expect(names.count { $0 == "descend" } == 51, "\(names)")
                #expect(names.contains(["spin", "descend"]), "\(names)")
                #expect(names.contains(["descend", "compute", "main"]), "\(names)")
            }
            #expect(held.count == 1000)
            #expect(sampler.cost.stops >= held.count)
            #expect(sampler.cost.heldNanoseconds >= held.reduce(0, +))
            #expect(sampler.cost.longestHeldNanoseconds >= held.max() ?? 0)
            let end = target.finish().split(separator: " ")
            #expect(end.first == "ROUNDS")
            let gaps = end.drop { $0 != "GAPS" }.dropFirst(2).compactMap { UInt64($0) }.suffix(1000)
            print(
                "stopped: held from outside \(held.percentiles) µs, longest pauses by its own clock \(Array(gaps).percentiles) µs"
            )
            print("stopped: unwinding \(unwound.percentiles) µs (50/90/99 %)")
        }

        @Test("all are listed, named and captured")
        func all() throws {
            let target = try TargetProcess("threads", "20")
            let sampler = try ProcessSampler(processID: target.processID, deadline: .seconds(5))
            let captures = try sampler.captureAll()
            #expect(captures.count == 21)
            #expect(captures.first?.thread.threadID == target.processID)
            #expect(captures.count { $0.thread.name == "waiter" } == 20)
            for capture in captures {
                let stack = try capture.result.get()
                #expect(stack.systemCall?.name == "pause")
                #expect(stack.isComplete)
            }
            #expect(
                sampler.cost
                    == SamplingCost(
                        stops: 0,
                        heldNanoseconds: 0,
                        longestHeldNanoseconds: 0,
                        waitedNanoseconds: 0,
                        callsRestarted: 0,
                        stopsGivenUp: 0
                    )
            )
        }

        @Test("they are read through /proc/PID/mem if process_vm_readv is refused")
        func throughFile() throws {
            let target = try TargetProcess("compute", "3")
            let sampler = try ProcessSampler(processID: target.processID, deadline: .seconds(5), readsThroughFile: true)
            let stack = try sampler.capture().get()
            #expect(stack.isComplete)
            #expect(sampler.names(of: stack).count { $0 == "descend" } == 4)
        }

        @Test("threads stopped by a signal stay stopped, and have stacks")
        func stopped() throws {
            let target = try TargetProcess("compute", "3")
            target.send(SIGSTOP)
            target.wait { $0.state == "T" }
            let sampler = try ProcessSampler(processID: target.processID, deadline: .seconds(5))
            for _ in 0..<20 {
                let stack = try sampler.capture().get()
                #expect(stack.method == (stack.systemCall == nil ? .stopped : .quiet))
                #expect(sampler.names(of: stack).contains("main"))
            }
            // Released, it stops again by itself, when it gets a processor.
            target.wait { $0.state == "T" }
            #expect(target.state == "T")
            target.send(SIGCONT)
            #expect(target.finish().hasPrefix("ROUNDS"))
        }

        @Test(
            "they are captured if the first thread has ended, before or during the captures",
            arguments: [true, false]
        )
        func withoutFirst(_ isEarly: Bool) throws {
            let target = try TargetProcess("headless")
            let early = isEarly ? nil : try ProcessSampler(processID: target.processID, deadline: .seconds(60))
            if let early { #expect(try early.captureAll().count == 3) }
            try target.proceed()
            target.wait { $0.state == "Z" }
            let sampler = try early ?? ProcessSampler(processID: target.processID, deadline: .seconds(60))
            #expect(try sampler.threads().first?.state == "Z")
            let captures = try sampler.captureAll()
            #expect(captures.map(\.thread.name).sorted { ($0 ?? "") < ($1 ?? "") } == ["computer", "waiter"])
            for capture in captures {
                let stack = try capture.result.get()
                let names = sampler.names(of: stack)
                #expect(stack.isComplete)
                #expect(names.contains(capture.thread.name == "waiter" ? "wait_forever" : "compute_on"), "\(names)")
            }
        }

        @Test(
            "a name may begin or end with what Swift takes for a part of a parenthesis",
            arguments: ["\u{301}x", "x\u{600}"]
        )
        func boundName(_ name: String) async {
            let thread = await withCheckedContinuation { (named: CheckedContinuation<ProcessThread, Never>) in
                Thread.detachNewThread {
                    try? Data(name.utf8).write(to: URL(filePath: "/proc/thread-self/comm"))
                    named.resume(returning: ProcessThread(threadID: StackCapturer.callingThread, ofProcess: getpid()))
                }
            }
            #expect(thread.name == name && thread.state == "R")
        }

        @Test("they are held only while they are stopped, apart from waiting for a CPU")
        func waiting() throws {
            let target = try TargetProcess("compute", "3", onProcessor: 0, isIdle: true)
            let rival = try TargetProcess("compute", "3", onProcessor: 0)
            defer { _ = rival.finish() }
            let sampler = try ProcessSampler(processID: target.processID, deadline: .seconds(60))
            let began = ContinuousClock.now
            for _ in 0..<20 { _ = try sampler.capture().get() }
            let elapsed = (ContinuousClock.now - began).nanoseconds
            let cost = sampler.cost
            print("stopped beside a rival: \(cost), \(elapsed) ns in all")
            #expect(cost.waitedNanoseconds > 0)
            #expect(cost.heldNanoseconds + cost.waitedNanoseconds <= elapsed)
            #expect(cost.longestHeldNanoseconds <= cost.heldNanoseconds)
        }

        #if arch(x86_64)
            @Test(
                "threads at a function's first instruction show its caller, running or stopped",
                arguments: ["first", "made"],
                [false, true]
            )
            func firstInstruction(code: String, isStopped: Bool) throws {
                let target = try TargetProcess(code)
                let sampler = try ProcessSampler(processID: target.processID, deadline: .seconds(5))
                let inner = code == "first" ? ["spin_first", "call_first"] : ["?", "?", "?"]
                // It is on its way there. The C library has functions without a name, too, but not so many in a row.
                try waitUntil { sampler.names(of: try sampler.capture().get()).starts(with: inner) }
                if isStopped { target.send(SIGSTOP) }
                if isStopped { target.wait { $0.state == "T" } }
                let stack = try sampler.capture().get()
                let names = sampler.names(of: stack)
                #expect(names.starts(with: inner + ["call_code"]) && names.contains("main"), "\(names)")
                #expect(stack.isComplete)
                #expect(stack.frames.allSatisfy { $0.found != .framePointer && $0.found != .scan }, "\(stack.frames)")
                // Released, it stops again by itself, when it gets a processor.
                if isStopped { target.wait { $0.state == "T" } }
                #expect(!isStopped || target.state == "T")
            }

            @Test("a wait in generated code has no module, and the stack ends there if the code is not executable")
            func sealedCode() throws {
                let target = try TargetProcess("sealed")
                let sampler = try ProcessSampler(processID: target.processID, deadline: .seconds(5))
                func stack(in call: String) throws -> CapturedStack {
                    while true {
                        let stack = try sampler.capture().get()
                        if sampler.names(of: stack).first?.hasSuffix(call) == true, stack.method == .quiet {
                            return stack
                        }
                    }
                }
                let sealed = try stack(in: "read")
                #expect(sampler.names(of: sealed).last == "wait_sealed", "\(sampler.names(of: sealed))")
                #expect(sealed.truncation == .badFrame)
                try target.proceed()
                let open = try stack(in: "pause")
                let names = sampler.names(of: open)
                #expect(
                    names.dropFirst().starts(with: ["wait_sealed", "?", "wait_in_sealed_code", "main"]),
                    "\(names)"
                )
                let made = Symbolicator(processID: target.processID)
                    .resolve([ResolvableAddress(address: open.frames[2].address, kind: .returnAddress)], budget: .tool)
                    .frames[0]
                #expect(made.moduleIndex == nil && open.isComplete)
            }
        #endif

        @Test("a stack has its names if they are looked up after the process has ended")
        func namesAfterTheEnd() throws {
            let target = try TargetProcess("compute", "3")
            let sampler = try ProcessSampler(processID: target.processID, deadline: .seconds(5))
            let stack = try sampler.capture().get()
            let addresses = stack.frames.map(\.address)
            let places = addresses.map { ResolvableAddress(address: $0, kind: .returnAddress) }
            let names = Symbolicator(processID: target.processID).resolve(places, budget: .tool).frames.map(\.symbol)
            let (told, untold) = (
                Symbolicator(processID: target.processID), Symbolicator(processID: target.processID)
            )
            told.remember(addresses)
            target.send(SIGKILL)
            _ = target.rest()
            #expect(names.contains { $0 != nil })
            #expect(told.resolve(places, budget: .tool).frames.map(\.symbol) == names)
            #expect(untold.resolve(places, budget: .tool).frames.allSatisfy { $0.symbol == nil })
        }

        @Test("their stacks equal gdb's", .enabled(if: Debugger.isInstalled, "gdb is not installed"))
        func debugger() throws {
            var compared = 0
            for round in 0..<10 {
                let target = try TargetProcess("compute", "\(round * 5)")
                let sampler = try ProcessSampler(processID: target.processID, deadline: .seconds(5))
                target.send(SIGSTOP)
                target.wait { $0.state == "T" }
                let ours = try sampler.capture().get().frames.map { String($0.address, radix: 16) }
                let theirs = try Debugger.frames(of: target.processID, thread: "\(target.processID)").map(\.address)
                #expect(ours == theirs)
                compared += theirs.count
            }
            print("gdb: \(compared) frames of a stopped process compared")
        }

        @Test("threads of a program without symbols have stacks")
        func stripped() throws {
            let stripped = FileManager.default.temporaryDirectory.appending(path: "stripped-\(UUID())")
            defer { try? FileManager.default.removeItem(at: stripped) }
            let strip = try Process.run(
                URL(filePath: "/usr/bin/strip"),
                arguments: ["-o", stripped.path, TargetProcess.executable.path]
            )
            strip.waitUntilExit()
            let target = try TargetProcess("compute", "20", executable: stripped)
            let sampler = try ProcessSampler(processID: target.processID, deadline: .seconds(5))
            let stack = try sampler.capture().get()
            #expect(stack.isComplete)
            #expect(stack.frames.count >= 25)
            #expect(stack.frames.dropFirst().allSatisfy { $0.found == .unwindTable })
        }
    }
}

extension [String] {
    /// Whether these names occur consecutively, ignoring parts that the compiler split off.
    func contains(_ names: [String]) -> Bool {
        indices.contains { self[$0...].prefix(names.count).elementsEqual(names) }
    }
}
