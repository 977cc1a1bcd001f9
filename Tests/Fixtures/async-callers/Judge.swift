import Foundation
import StackCapture
import Symbolication
import Synchronization

/// Runs shapes one by one, and compares the results.
struct Judge {
    var isVerbose: Bool

    /// The capture of one shape. All captures are judged at the end, so that lines are looked up at once.
    struct Captured {
        var shape: Shape
        var standstill: Standstill
        var expected: Trial.State
        var stack: CapturedStack
    }

    func judge(_ shapes: [Shape]) -> Bool {
        guard let capturer = try? StackCapturer(deadline: .seconds(5)) else { return false }
        let captured = shapes.flatMap { shape in
            Standstill.allCases.compactMap { capture(shape, $0, by: capturer) }
        }
        let names = Names(of: captured.compactMap(\.stack.asyncCallers))
        var wrong = shapes.count * Standstill.allCases.count - captured.count
        var missingLines = 0
        for trial in captured {
            let verdict = Verdict(trial: trial, names: names)
            if !verdict.isRight { wrong += 1 }
            missingLines += verdict.missingLines
            if !verdict.isRight || isVerbose { print(verdict.text) }
        }
        let total = shapes.count * Standstill.allCases.count
        print(
            "\(total - wrong) of \(total) right: \(shapes.count) shapes, each computing and asleep; no line for \(missingLines)"
        )
        return wrong == 0
    }

    private func capture(_ shape: Shape, _ standstill: Standstill, by capturer: StackCapturer) -> Captured? {
        Trial.begin(standstill)
        let finished = DispatchSemaphore(value: 0)
        Task {
            let offset = here("closure #1 in Judge.capture(_:_:by:)", linesOn: 1)
            let result = await shape.body(1)
            mixOnce(result &+ offset)
            finished.signal()
        }
        defer {
            Trial.release()
            finished.wait()
        }
        while Trial.standing == nil { usleep(200) }
        guard let state = Trial.standing, let identity = state.standing else { return nil }
        for _ in 0..<1000 {
            let result = capturer.capture(threadID: identity.threadID, stack: identity.stack)
            if case .success(let stack) = result, (stack.method == .quiet) == (standstill == .sleep) {
                return Captured(shape: shape, standstill: standstill, expected: state, stack: stack)
            }
            usleep(200)
        }
        print("NOT CAPTURED \(shape.name) \(standstill)")
        return nil
    }
}
