import Foundation
import StallGate
import StallReports
import Synchronization

/// Gives the readers of a report directory documents that are valid by the schemas, and looks for failures.
///
///     reader-fuzz [--schemas config] [--inputs 3000 | --all] [--seed 1] [--broken] [--every] [--print]
///
/// Everything the command renders is called in this process: see ``Trial``. A trap, and a wrong output, are reported with the seed of the input;
/// `--inputs 1 --seed SEED` repeats that input. With `--broken` each document is damaged before it is read. With `--every` the documents
/// are short, and each goes through every reader and every format instead of some. `--print` writes the documents, a line each, and does
/// nothing else.
///
/// The command's rendering folders are linked into this program's sources, because an executable's code cannot be
/// linked into another program.
@main
struct ReaderFuzz {
    var inputs = 3000
    var seed: UInt64 = 1
    var schemas = "config"
    var prints = false
    var breaks = false
    var usesEvery = false

    static func main() throws {
        var fuzz = ReaderFuzz()
        guard fuzz.read(CommandLine.arguments.dropFirst()) else {
            print("usage: reader-fuzz [--schemas DIR] [--inputs N | --all] [--seed N] [--broken] [--every] [--print]")
            exit(64)
        }
        try fuzz.run()
    }

    private mutating func read(_ arguments: some Sequence<String>) -> Bool {
        var rest = arguments.makeIterator()
        while let option = rest.next() {
            switch option {
            case "--all": inputs = 1_000_000
            case "--print": prints = true
            case "--broken": breaks = true
            case "--every": usesEvery = true
            case "--inputs": inputs = rest.next().flatMap { Int($0) } ?? -1
            case "--seed": seed = rest.next().flatMap { UInt64($0) } ?? 0
            case "--schemas": schemas = rest.next() ?? ""
            default: return false
            }
        }
        return inputs > 0
    }

    private func run() throws {
        let samplers = try Samplers(schemas)
        LastWords.install()
        var tally = Tally()
        for index in 0..<inputs {
            let seed = seed &+ UInt64(index)
            LastWords.prepare(
                "reader-fuzz: a trap or no end at --inputs 1 --seed \(seed)\(breaks ? " --broken" : "")\(usesEvery ? " --every" : "")\n"
            )
            alarm(600)
            if prints {
                printDocuments(samplers, seed)
                continue
            }
            var trial = Trial(samplers, seed: seed, breaks: breaks, usesEvery: usesEvery)
            trial.run()
            tally.add(trial)
            for problem in trial.problems { print("seed \(seed): \(problem)") }
        }
        if !prints { print(tally.text) }
        if tally.problems > 0 { exit(1) }
    }

    private func printDocuments(_ samplers: Samplers, _ seed: UInt64) {
        var dice = Dice(seed: seed)
        for sampler in [samplers.report, samplers.run] {
            print(String(decoding: sampler.document(&dice), as: UTF8.self))
        }
    }
}

/// What was tested.
struct Tally {
    private var inputs = 0
    private var calls: [String: Int] = [:]
    private(set) var problems = 0

    mutating func add(_ trial: Trial) {
        inputs += 1
        calls.merge(trial.calls, uniquingKeysWith: +)
        problems += trial.problems.count
    }

    var text: String {
        let counts = calls.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value)" }.joined(separator: ", ")
        return "\(inputs) inputs, \(problems) problems: \(counts)"
    }
}

/// The output when the process traps, or needs more than ten minutes for one input.
enum LastWords {
    private static let capacity = 200
    nonisolated(unsafe) private static let text = UnsafeMutablePointer<UInt8>.allocate(capacity: capacity)
    nonisolated(unsafe) private static var count = 0

    static func install() {
        for number in [SIGILL, SIGTRAP, SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGALRM] {
            signal(number) { number in
                // The buffer lives as long as the process.
                unsafe _ = write(STDERR_FILENO, LastWords.text, LastWords.count)
                _exit(128 + number)
            }
        }
    }

    static func prepare(_ words: String) {
        for (index, byte) in words.utf8.prefix(capacity).enumerated() { unsafe text[index] = byte }
        unsafe count = min(words.utf8.count, capacity)
    }
}
