import CTrials
import Foundation

/// The functions of the Swift runtime's libraries that have no unwind table and call others: many of them keep no frame pointer
/// either. Each is stepped through, and its caller must be found at every instruction, and from within every call.
struct Untabled {
    private let part: Part

    init(_ part: Part) { self.part = part }

    private static let libraries = [
        "libswiftDispatch.so", "libswiftCore.so", "libFoundationEssentials.so", "libFoundation.so",
        "libswift_Concurrency.so",
    ]

    func run(_ findings: inout Findings) {
        _ = Calendar.current.isDateInToday(.now)
        DispatchQueue.global().sync {}
        print("Untabled: the stack in functions without an unwind table, of the running and of the sleeping thread")
        for library in Self.libraries where part.includes(library) {
            var result = trial_untabled()
            guard unsafe trial_untabled_step_through(library, part.isShort ? 60 : 1, &result) else {
                print("  \(column(library, 28)) not here, or not on this processor")
                continue
            }
            print(
                "  \(column(library, 28)) \(result.functions) functions, \(result.instructions) instructions, \(result.calls) calls, "
                    + "running: \(text(result.running)); asleep: \(text(result.asleep)); \(result.children_lost) processes lost"
            )
            let first = unsafe String(cString: trial_untabled_first_wrong())
            findings.expect(result.running.wrong + result.asleep.wrong == 0, "\(library): \(first)")
            findings.expect(result.instructions > result.functions, "\(library): nothing was stepped through")
        }
    }

    private func text(_ tally: trial_untabled_tally) -> String {
        "\(tally.wrong) wrong of \(tally.walks), \(tally.marked) marked and wrong, \(tally.unsure) marked and right"
    }
}
