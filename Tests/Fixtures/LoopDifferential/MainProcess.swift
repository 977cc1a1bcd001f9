import Foundation
import RunLoopKit

/// Plays scripts on the main thread of a process, with one engine only, because both engines serve the same main dispatch queue.
///
/// The process plays the scripts and prints `script N`, the trace, and at the end `tally EVENT N` and `met DIFFERENCE N`.
enum MainProcess {
    /// The work of the process.
    static func play(_ options: Options, on engine: Engine) {
        EventRunLoop.askKernel(everyTurns: 1)
        warmUp(engine)
        var tally = Tally()
        var meetings = Meetings()
        for index in options.first..<options.first + options.scripts {
            let player = Player(
                options.script(index),
                without: options.without,
                isVerbose: options.isVerbose,
                mainNumber: index
            )
            player.play(on: engine)
            player.close()
            say((["script \(index)"] + player.trace).joined(separator: "\n"))
            tally += player.tally
            meetings += player.meetings
        }
        for event in Tally.Event.allCases { say("tally \(event) \(tally[event])") }
        for difference in KnownDifference.allCases { say("met \(difference) \(meetings[difference])") }
    }

    /// Makes the loop serve the main queue in two common modes. EventRunLoop's first wait in
    /// a second mode may find the eventfd still readable for work that has been done, and
    /// then serves the queue once without work (see `MainQueue`); Foundation's never does.
    private static func warmUp(_ engine: Engine) {
        var script = Script()
        script.sources = [Script.Source(order: 0)]
        script.blocks = [[]]
        let run = Operation.run(.mode(0), .milliseconds(1), returnAfterSource: false)
        let other = Operation.run(.mode(1), .milliseconds(1), returnAfterSource: false)
        script.thread = [.add(.source(0), .common), .dispatch(block: 0), run, .addCommonMode(.mode(1)), other, other]
        let player = Player(script, without: [], isVerbose: false, mainNumber: -1)
        player.play(on: engine)
        player.close()
    }

    /// Starts a process and reads its output. Returns each script's performance; the last one contains the sums.
    static func performances(_ options: Options, on engine: Engine) -> [Performance] {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath()
        process.arguments = arguments(options, engine)
        let output = Pipe()
        process.standardOutput = output
        process.standardError = FileHandle.nullDevice
        guard (try? process.run()) != nil else { return [] }
        let text = output.fileHandleForReading.readDataToEndOfFile()
        process.waitUntilExit()
        return parse(String(decoding: text, as: UTF8.self).split(separator: "\n").map(String.init))
    }

    private static func arguments(_ options: Options, _ engine: Engine) -> [String] {
        var arguments = ["--main", "--engine", engine.rawValue, "--seed", "\(options.seed)"]
        arguments += ["--first", "\(options.first)", "--scripts", "\(options.scripts)"]
        if options.isVerbose { arguments.append("--verbose") }
        if let seed = options.scriptSeed { arguments += ["--script-seed", "\(seed)"] }
        for difference in options.without { arguments += ["--without", difference.rawValue] }
        for drop in options.drops { arguments += ["--drop", "\(drop)"] }
        return arguments
    }

    private static func parse(_ lines: [String]) -> [Performance] {
        var traces: [[String]] = []
        var tally = Tally()
        var meetings = Meetings()
        for line in lines {
            let words = line.split(separator: " ").map(String.init)
            switch words.first {
            case "script": traces.append([])
            case "tally": if let event = Tally.Event(rawValue: words[1]) { tally[event] = Int(words[2]) ?? 0 }
            case "met":
                if let difference = KnownDifference(rawValue: words[1]) { meetings[difference] = Int(words[2]) ?? 0 }
            default: if !traces.isEmpty { traces[traces.count - 1].append(line) }
            }
        }
        return traces.enumerated().map { index, trace in
            let isLast = index == traces.count - 1
            return Performance(trace: trace, meetings: isLast ? meetings : Meetings(), tally: isLast ? tally : Tally())
        }
    }
}
