import Foundation
import TestSupport
import Testing

@testable import StackCapture

extension ProcessTests {
    @Suite("A sampled process is not harmed")
    struct ProcessHarmTests {
        static func calls() throws -> [String] {
            let process = Process()
            let output = Pipe()
            process.executableURL = TargetProcess.executable
            process.arguments = ["list"]
            process.standardOutput = output
            try process.run()
            return String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
                .split(separator: "\n").map(String.init)
        }

        @Test(
            "no blocking call returns early, however often it is sampled",
            .repeatedWhenLate(by: .milliseconds(100))
        )
        func calls() throws {
            let calls = try Self.calls()
            #expect(calls.count >= 30)
            // Once the first call is over its process runs, and is stopped or has ended: the machine was late.
            let began = ContinuousClock.now
            func noteTime() { LatenessWitness.note(ContinuousClock.now - began - .milliseconds(7_900)) }
            defer { noteTime() }
            let targets = try calls.map { try (call: $0, target: TargetProcess("call", $0, "8")) }
            let samplers = try targets.map { try ProcessSampler(processID: $0.target.processID) }
            // What it does before the call is not tested.
            for (_, target) in targets { target.wait { $0.isInCall } }
            let stopsBefore = samplers.map(\.cost.stops)
            var quiet = 0
            for _ in 0..<20 {
                for sampler in samplers {
                    if case .success(let stack) = sampler.capture(), stack.method == .quiet { quiet += 1 }
                }
            }
            noteTime()
            for (index, (call, target)) in targets.enumerated() {
                #expect(samplers[index].cost.stops == stopsBefore[index])
                let end = target.rest()
                #expect(end.hasPrefix("WHOLE"), "\(call): \(end)")
            }
            print("calls: \(quiet) quiet captures of \(calls.count) calls")
            #expect(quiet > 0)
        }

        @Test("calls that are interrupted by a stop are restarted")
        func race() throws {
            let target = try TargetProcess("waits")
            let sampler = try ProcessSampler(processID: target.processID, deadline: .milliseconds(100))
            var methods: [CapturedStack.Method: Int] = [:]
            for _ in 0..<60_000 where methods.values.reduce(0, +) < 3000 {
                if case .success(let stack) = sampler.capture() { methods[stack.method, default: 0] += 1 }
            }
            let end = target.finish()
            print("race: \(end), \(methods), \(sampler.cost)")
            #expect(end.hasSuffix(" CUT 0"))
            #expect(methods.values.reduce(0, +) == 3000)
        }

        @Test("every signal sent to it meanwhile arrives")
        func signals() throws {
            let target = try TargetProcess("signals")
            let sampler = try ProcessSampler(processID: target.processID, deadline: .seconds(5))
            var captured = 0
            for _ in 0..<1000 {
                unsafe _ = sigqueue(target.processID, __libc_current_sigrtmin(), sigval())
                if case .success = sampler.capture() { captured += 1 }
                unsafe _ = sigqueue(target.processID, __libc_current_sigrtmin(), sigval())
            }
            #expect(captured > 0)
            let end = target.finish()
            #expect(end.contains(" SIGNALS 2000 "), "\(end.prefix(60))")
        }

        @Test("it may start, end and replace threads, children and itself", arguments: ["churn", "fork", "exec"])
        func restless(_ what: String) throws {
            // It executes itself for as long as it is captured, however late the captures begin.
            let target = try TargetProcess(what, "100000")
            let sampler = try ProcessSampler(processID: target.processID, deadline: .milliseconds(50))
            var captured = 0
            var failures: [String: Int] = [:]
            for _ in 0..<300 {
                guard let captures = try? sampler.captureAll() else { break }
                for capture in captures {
                    switch capture.result {
                    case .success: captured += 1
                    case .failure(let error): failures[error.code.name, default: 0] += 1
                    }
                }
            }
            print("\(what): \(captured) captured, \(failures), \(sampler.cost), \(sampler.programsRun) programs")
            #expect(captured > 0)
            // A stop that was given up comes when the thread gets a processor, and is over when the tracer has ended.
            var goesOn = false
            target.wait { target in
                goesOn = !"tT".contains(target.state ?? "?")
                return goesOn
            }
            #expect(goesOn)
            if what == "exec" { #expect(sampler.programsRun > 1) }
            // A request to end could arrive while it has no handler, or be lost with the program.
            target.send(SIGKILL)
            _ = target.rest()
        }

        @Test("its death during a capture is reported as such")
        func death() throws {
            for round in 0..<20 {
                let target = try TargetProcess("compute", "10")
                let sampler = try ProcessSampler(processID: target.processID)
                _ = sampler.capture()
                let processID = target.processID
                Thread.detachNewThread {
                    usleep(UInt32(round * 100))
                    kill(processID, SIGKILL)
                }
                var last: CaptureError?
                while last?.code != .noSuchProcess && last?.code != .zombie {
                    if case .failure(let error) = sampler.capture() { last = error }
                }
                #expect(target.rest() == "")
                #expect(throws: CaptureError.self) { try sampler.threads() }
            }
        }
    }
}
