import Foundation
import StackCapture
import Symbolication

/// Stalls in every shape in which functions can await each other, captures itself, and compares the result with the known chain.
///
/// usage: async-callers --all | --list | NAME …   [--verbose]
///        async-callers --churn | --churn-anew [--deep] [--napping] COUNT
///        async-callers --bystanders COUNT
/// Exits with 1 if a chain is wrong.
@main
struct Fixture {
    static func main() async {
        let arguments = CommandLine.arguments.dropFirst()
        let names = arguments.filter { !$0.hasPrefix("--") }
        let shapes = Shape.all.filter { names.isEmpty || names.contains($0.name) }
        if arguments.contains("--list") {
            for shape in shapes { print(shape.name) }
            return
        }
        if arguments.contains("--serve") { await Churn.serve() }
        if let mode = arguments.first, let count = arguments.last.flatMap({ Int($0) }) {
            Thread.detachNewThread { exit(judge(mode, count) ? 0 : 1) }
            await unsafe withUnsafeContinuation { (_: UnsafeContinuation<Void, Never>) in }
        }
        guard arguments.contains("--all") || !names.isEmpty, !shapes.isEmpty else {
            print("usage: async-callers --all | --list | NAME … [--verbose]")
            exit(64)
        }
        let isVerbose = arguments.contains("--verbose")
        // The main thread has to stay free for the main actor.
        Thread.detachNewThread {
            exit(Judge(isVerbose: isVerbose).judge(shapes) ? 0 : 1)
        }
        await unsafe withUnsafeContinuation { (_: UnsafeContinuation<Void, Never>) in }
    }

    private static func judge(_ mode: String, _ count: Int) -> Bool {
        switch mode {
        case "--churn": Churn(captures: count).run()
        case "--churn-anew": Churn(captures: count).runAnew()
        default: Bystanders(captures: count).run()
        }
    }
}
