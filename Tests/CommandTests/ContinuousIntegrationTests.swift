import Foundation
import TestSupport
import Testing

/// The jobs in config/ci; their gate commands run as written there.
@Suite("CI jobs", .serialized, .timeLimit(.minutes(60)), .repeatedWhenLate(by: .milliseconds(50)))
struct ContinuousIntegrationTests {
    private let fixture: ReportsFixture

    init() throws { fixture = try ReportsFixture(inMemory: true) }

    private static let folder = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../config/ci")
        .standardized.path

    /// The shell lines of the job that run the gate.
    private func commands(_ file: String) throws -> String {
        let read = """
            import sys, yaml
            job = yaml.safe_load(open(sys.argv[1]))
            if 'jobs' in job: steps = [step.get('run', '') for step in job['jobs']['gate']['steps']]
            else: steps = job['stalls']['script']
            print(*[step for step in steps if 'gate run' in step], sep='\\n')
            """
        return try CommandRun(tool: "/usr/bin/python3", ["-c", read, "\(Self.folder)/\(file)"]).output
    }

    @Test("the job passes on each file that its gate writes", arguments: ["github-actions.yml", "gitlab-ci.yml"])
    func passesOn(file: String) throws {
        let written = try commands(file).matches(of: /stalls\.[a-z]+/).map { String($0.output) }
        #expect(written.contains("stalls.xml"))
        let job = try String(contentsOfFile: "\(Self.folder)/\(file)", encoding: .utf8)
        let later = try #require(job.components(separatedBy: "-- ./load-test.sh").last)
        for name in written { #expect(later.contains(name), "\(name)") }
    }

    @Test(
        "the gate runs as written in the job and leaves the files that the job passes on",
        arguments: ["github-actions.yml", "gitlab-ci.yml"]
    )
    func runs(file: String) throws {
        let host = URL.built("stall-corpus").path
        let test =
            "#!/bin/sh\n(\(GateRunTests.untilWatched) sleep 2.5) | '\(host)' --host \"$STALL_MONITOR_DIRECTORY\" >/dev/null\n"
        let script = fixture.root + "/load-test.sh"
        try Data(test.utf8).write(to: URL(filePath: script))
        try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: script)
        let commands = try commands(file)
        #expect(commands.contains("stall-monitor gate run"))
        let path = CommandRun.executable.deletingLastPathComponent().path
        let shell = "cd '\(fixture.root)' && export PATH='\(path)':$PATH && set -e\n\(commands)"
        let run = try CommandRun(tool: "/bin/sh", ["-c", shell])
        #expect(run.status == 0 && run.errors.contains("within budget: 0 stalls"), "\(run.errors)")
        let left = try FileManager.default.contentsOfDirectory(atPath: fixture.root)
        let named = try String(contentsOfFile: "\(Self.folder)/\(file)", encoding: .utf8)
        for name in ["stalls", "stalls.xml", "stalls.html", "stalls.sarif"] where named.contains(name) {
            #expect(left.contains(name), "\(name)")
        }
    }
}
