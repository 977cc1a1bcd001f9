import Foundation
import Glibc
import StallCorpus

/// Makes stalls of every kind and cause, and situations that look like stalls, while the monitor watches, and judges the reports.
@main
enum Main {
    private static let usage = """
        usage: stall-corpus [--format text|json] [--only NAME,…] [--part PART,…] [--load THREADS] [--quota PERCENT]
                            [--retries COUNT] [--jobs COUNT] [--keep DIRECTORY] | --soak TIME | --list
               stall-corpus --host DIRECTORY
        With --host it stalls as its input says, under watch. Otherwise it exits 0 if all goals are met, 1 if not, 64 for wrong usage.

        """

    static func main() async {
        if let process = ScenarioProcess.requested { exit(await process.run()) }
        guard let options = Options(CommandLine.arguments.dropFirst()) else {
            write(usage, to: STDERR_FILENO)
            exit(64)
        }
        exit(await run(options))
    }

    private static func run(_ options: Options) async -> Int32 {
        if let directory = options.hostDirectory {
            await StallHost(directory: directory).run()
            return 0
        }
        if options.lists {
            for scenario in options.scenarios {
                print("\(scenario.isStall ? "stall     " : "look-alike") \(scenario.part.rawValue) \(scenario.name)")
            }
            return 0
        }
        let directory = options.directory ?? temporaryDirectory()
        defer { if options.directory == nil { try? FileManager.default.removeItem(atPath: directory) } }
        var corpus = CorpusRun(command: ["/proc/self/exe"], directory: directory)
        (corpus.load, corpus.quota, corpus.retries) = (options.load, options.quota, options.retries)
        corpus.jobs = options.jobs
        corpus.onOutcome = { write($0.line + "\n", to: STDERR_FILENO) }
        if let seconds = options.soakSeconds {
            let result = await corpus.soak(seconds: seconds)
            write(options.isJSON ? result.json : result.text, to: STDOUT_FILENO)
            return result.passed ? 0 : 1
        }
        let result = await corpus.play(options.scenarios)
        write(options.isJSON ? ((try? result.json()) ?? "") + "\n" : result.text, to: STDOUT_FILENO)
        return result.figures.missedGoals.isEmpty ? 0 : 1
    }

    private static func temporaryDirectory() -> String {
        var template = Array("/tmp/stall-corpus.XXXXXX".utf8CString)
        guard let path = unsafe mkdtemp(&template) else { fatalError("no temporary directory (errno \(errno))") }
        return unsafe String(cString: path)
    }

    private static func write(_ text: String, to descriptor: Int32) {
        try? FileHandle(fileDescriptor: descriptor).write(contentsOf: Data(text.utf8))
    }
}
