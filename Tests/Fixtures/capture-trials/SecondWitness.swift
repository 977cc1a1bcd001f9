import CTrials
import Foundation
import StackCapture

/// The stack of a thread of this process according to eu-stack: elfutils' unwinder, which shares no code with libunwind or gdb.
struct SecondWitness {
    private(set) var counts: [String: Int] = [:]
    private var shown = 0

    /// - Parameter isFrozen: The innermost frame is a loop, so its instruction changes.
    mutating func compare(
        _ stack: CapturedStack?,
        _ identity: ThreadIdentity,
        _ scene: String,
        isFrozen: Bool
    ) {
        guard let stack else {
            counts["refused", default: 0] += 1
            return
        }
        let theirs = Self.frames(of: identity.threadID).dropFirst(isFrozen ? 1 : 0).map { $0 }
        let ours = stack.frames.map { UInt64($0.address) }.dropFirst(isFrozen ? 1 : 0).map { $0 }
        let verdict = verdict(ours, theirs, stack)
        counts[verdict, default: 0] += 1
        if verdict == "unequal", shown < 10 {
            shown += 1
            print("unequal: \(scene), ours \(stack.isComplete ? "complete" : "cut")")
            print(
                "  ours:     \(ours.map { String($0, radix: 16) })\n  eu-stack: \(theirs.map { String($0, radix: 16) })"
            )
        }
    }

    private func verdict(_ ours: [UInt64], _ theirs: [UInt64], _ stack: CapturedStack) -> String {
        if ours == theirs { return "equal" }
        if stack.frames.contains(where: { $0.found == .framePointer }) { return "hidden" }
        let isOneBeginning = ours.last == theirs.last
        if stack.isComplete { return isOneBeginning ? "unequal" : "lost" }
        return "astray"
    }

    private static func frames(of thread: Int32) -> [UInt64] {
        let text = unsafe trial_output_of("eu-stack -q -n 0 -p \(getpid()) 2>/dev/null").map {
            pointer in
            defer { unsafe free(pointer) }
            return unsafe String(cString: pointer)
        }
        let lines = (text ?? "").split(separator: "\n")
        let rest = lines.drop { $0 != "TID \(thread):" }.dropFirst()
        return rest.prefix { $0.hasPrefix("#") }.compactMap { line in
            line.split(separator: " ").first { $0.hasPrefix("0x") }.flatMap {
                UInt64($0.dropFirst(2), radix: 16)
            }
        }
    }

    func conclude(scenes: Int) -> Int32 {
        let total = counts.values.reduce(0, +)
        print(
            "EU-STACK \(scenes) scenes, \(total) captures: \(counts["equal", default: 0]) equal, "
                + "\(counts["hidden", default: 0]) with a hidden caller that is marked, \(counts["lost", default: 0]) where "
                + "eu-stack lost its way, \(counts["astray", default: 0]) that we say are cut, "
                + "\(counts["refused", default: 0]) refused by name, \(counts["unequal", default: 0]) unequal"
        )
        let isMet = total > 0 && counts["unequal"] == nil
        print("RESULT second witness: \(isMet ? "met" : "not met")")
        return isMet ? 0 : 1
    }
}
