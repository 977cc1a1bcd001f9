import Foundation

// Plays random scripts of loop operations on this package's run loop and on Foundation's, and compares the events, one by one and
// to the microsecond, on a simulated clock. Exits with 0 if there are only known differences (`KnownDifference`).

guard let options = Options(Array(CommandLine.arguments.dropFirst())) else {
    tell(Options.usage)
    exit(2)
}

if let engine = options.engine {
    MainProcess.play(options, on: engine)
    exit(0)
}

if options.isVerbose, options.scriptSeed != nil, !options.isMain {
    let script = options.script(0)
    let comparison = Comparison(script, options: options, isVerbose: true)
    say("\(script)\n")
    for line in comparison.kit.trace { say(line) }
    if !comparison.areEqual { say(comparison.report) }
    exit(comparison.areEqual ? 0 : 1)
}

exit(Series(options).run() ? 0 : 1)
