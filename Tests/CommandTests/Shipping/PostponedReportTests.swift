import Foundation
import StallReports
import TestSupport
import Testing

@Suite("ship, and a report that cannot be read for a moment", .timeLimit(.minutes(5)))
struct PostponedReportTests {
    @Test(
        "It is told when it happens; once the report was read and sent, it is not counted as unreadable",
        .enabled(if: Lease.isPermitted, "the file system of /dev/shm has no leases")
    )
    func readLater() throws {
        let fixture = try ReportsFixture(inMemory: true)
        let report = Sample.report(id: .make())
        _ = try fixture.store.write(report)
        let receiver = try OTLPReceiver(in: fixture.root + "/receiver")
        let lease = try #require(Lease(on: "\(fixture.path)/\(ReportFileName(.stall, report.id))"))
        let arguments = ["ship", fixture.path, "--to", receiver.url, "--checkpoint", fixture.root + "/sent"]
        let once = try CommandRun(arguments: arguments + ["--once"])
        #expect(once.status == 1 && once.output.contains("1 unreadable"), "\(once.output)")
        let run = try RunningCommand(arguments: arguments)
        #expect(try run.errorLine()?.contains("\(report.id)") == true)
        lease.end()
        try receiver.awaitStalls(1)
        run.send(SIGTERM)
        let totals = try run.line()
        #expect(run.status() == 0 && totals?.hasPrefix("sent 1 stall and 0 run records") == true)
        #expect(totals?.contains("unreadable") == false, "\(totals ?? "")")
    }
}
