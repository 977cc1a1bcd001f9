import ArgumentParser
import Glibc
import StallGate
import StallReports

/// Files for other readers, any number of them at once.
struct GateOutputs: ParsableArguments {
    @Option(help: ArgumentHelp("Also JUnit's XML, into a file.", valueName: "file"), completion: .file())
    var junit: String?

    @Option(help: ArgumentHelp("Also SARIF 2.1.0, for code scanning.", valueName: "file"), completion: .file())
    var sarif: String?

    @Option(help: ArgumentHelp("Also a summary in Markdown.", valueName: "file"), completion: .file())
    var markdown: String?

    @Option(help: ArgumentHelp("Also a page in one file.", valueName: "file"), completion: .file())
    var html: String?

    @Flag(help: "Also GitHub's annotations, on standard error, and its job summary, into $GITHUB_STEP_SUMMARY.")
    var github = false

    @Option(
        help: ArgumentHelp(
            "The folder that source files are told relative to. Without it $GITHUB_WORKSPACE, $CI_PROJECT_DIR, or the working directory.",
            valueName: "dir"
        ),
        completion: .directory
    )
    var sourceRoot: String?

    func validate() throws {
        if [junit, sarif, markdown, html, sourceRoot].contains("") { throw ValidationError("a file's name is empty") }
    }

    func write(_ result: GateResult) throws(CommandFailure) {
        let root = root
        if let junit { try OutputFile.write(result.junit(), to: junit) }
        if let sarif {
            let bytes = try CommandFailure.wrapping { () throws(ReportError) in
                try result.sarif(sourceRoot: root, version: StallMonitorCommand.configuration.version)
            }
            try OutputFile.write(String(decoding: bytes, as: UTF8.self), to: sarif)
        }
        if let markdown { try OutputFile.write(result.markdown(sourceRoot: root), to: markdown) }
        if let html { try OutputFile.write(result.html(sourceRoot: root), to: html) }
        guard github else { return }
        Output.error(result.gitHubAnnotations(sourceRoot: root))
        if let summary = EnvironmentVariable.value("GITHUB_STEP_SUMMARY") {
            try OutputFile.append(result.markdown(sourceRoot: root), to: summary)
        }
    }

    private var root: String {
        let given =
            sourceRoot ?? EnvironmentVariable.value("GITHUB_WORKSPACE") ?? EnvironmentVariable.value("CI_PROJECT_DIR")
            ?? "."
        guard let path = unsafe realpath(given, nil) else { return given }
        defer { unsafe free(path) }
        return unsafe String(cString: path)
    }
}
