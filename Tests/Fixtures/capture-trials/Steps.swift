import CTrials
import Foundation

/// A walk at each instruction of all kinds of code: the stack must be right at every place in a
/// function. The calls themselves are the witness. The short form steps through the first
/// instructions of each scene and a whole exception, the long form through a million instructions.
struct Steps {
    private let part: Part

    init(_ part: Part) { self.part = part }

    /// These scenes are left out. Processes started by a traced thread would be traced as well. And nine instructions of the C
    /// library's `__longjmp` have a row that states where the stack pointer is stored, which libunwind ignores.
    private static let others: Set = ["popen", "longjmp", "dlsym"]

    private static let wrongRow = Scene.running("wrong row") { trial_run_misdescribed() }

    func run(_ findings: inout Findings) {
        print("Steps: the stack at each instruction, and the calls that were seen to be made")
        guard let plugins = try? Plugins() else { return findings.fail("plugins are compiled") }
        defer { plugins.remove() }
        unsafe trial_set_plugin_folder(plugins.folder)
        var total = trial_steps()
        for scene in Scene.all + [Self.wrongRow] where part.includes(scene.name) && !Self.others.contains(scene.name) {
            guard let unit = scene.unit else { continue }
            let most: UInt64 = part.isShort && scene.name != "C++ throw" ? 5_000 : 1_000_000
            var steps = trial_steps()
            guard Self.step(through: unit, most, &steps) else { return print("  not offered by this processor") }
            print(
                "  \(column(scene.name, 26)) \(column(steps.instructions, 8, right: true)) instructions, "
                    + "\(steps.wrong) wrong, \(steps.without_table) through code without table, \(steps.guessed_wrongly) guessed wrongly"
            )
            findings.expect(steps.wrong == 0, unsafe "\(scene.name): \(String(cString: trial_first_wrong_step()))")
            total.instructions += steps.instructions
            total.without_table += steps.without_table
            total.guessed_wrongly += steps.guessed_wrongly
        }
        print(
            "  \(total.instructions) instructions, \(total.without_table) through code without table, "
                + "\(total.guessed_wrongly) guessed wrongly"
        )
    }

    private static func step(through unit: @escaping () -> Void, _ most: UInt64, _ steps: inout trial_steps) -> Bool {
        let work = Work(run: unit)
        return unsafe trial_step_through(
            { unsafe Unmanaged<Work>.fromOpaque($0!).takeUnretainedValue().run() },
            Unmanaged.passUnretained(work).toOpaque(),
            most,
            &steps
        )
    }

    private final class Work {
        let run: () -> Void

        init(run: @escaping () -> Void) { self.run = run }
    }
}
