import Foundation

// Plays random scripts of loop operations on this package's run loop and on Foundation's, and compares what happens, event by event
// and microsecond by microsecond, on a simulated clock. Ends with 0 if nothing differs but what is known to (`KnownDifference`).

_ = mainThread  // this one

guard let options = Options(Array(CommandLine.arguments.dropFirst())) else {
    tell(Options.usage)
    exit(2)
}

if options.isVerbose, let seed = options.scriptSeed {
    let script = Generator.script(seed: seed)
    let comparison = Comparison(script, options: options, isVerbose: true)
    say("\(script)\n")
    for line in comparison.kit.trace { say(line) }
    if !comparison.areEqual { say(comparison.report) }
    exit(comparison.areEqual ? 0 : 1)
}

exit(Series(options).run() ? 0 : 1)
