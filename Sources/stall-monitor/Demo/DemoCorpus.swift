#if Command

    import ArgumentParser
    import Glibc
    import StallCorpus
    import StallReports

    /// The demo's long form: every scenario of the corpus, each in a process of its own, which is this command again.
    struct DemoCorpus {
        let format: OutputFormat
        let directory: String

        func run() async throws {
            if let process = ScenarioProcess.requested { throw ExitCode(await process.run()) }
            guard let executable = ProcessIdentity.current().executable else {
                throw CommandFailure("/proc is not mounted")
            }
            var corpus = CorpusRun(command: [executable, "demo", "--corpus"], directory: directory)
            // With a library loaded before its own, the command would not find its arguments.
            corpus.canPreload = false
            corpus.onOutcome = { Output.note(String($0.line.prefix { $0 != "\n" })) }
            let result = await corpus.play(Scenario.all)
            try Output.write(format == .text ? result.text : result.json() + "\n")
            if !result.figures.missedGoals.isEmpty { throw ExitCode(1) }
        }
    }

#endif
