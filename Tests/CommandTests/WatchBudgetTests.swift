import StackCapture
import StallMonitor
import StallReports
import Symbolication
import TestSupport
import Testing

@Suite("watch, and what it may cost", .serialized, .timeLimit(.minutes(10)))
struct WatchBudgetTests {
    @Test("Once the budget is used up no stack is taken, and it is said why")
    func budget() throws {
        let fixture = try ReportsFixture()
        let target = try TargetProcess("compute", "3")
        let process = OutsideProcess(
            processID: target.processID,
            sampler: try ProcessSampler(processID: target.processID),
            search: SymbolSearch()
        )
        var configuration = OutsideReporter.Configuration(
            directory: fixture.path,
            rule: StallRule(tick: .milliseconds(50), ticks: 5)
        )
        configuration.cost.heldBurst = .microseconds(1)
        configuration.cost.heldShare = 0.000001
        let reporter = try OutsideReporter(configuration) { _ in }
        defer { reporter.close() }
        /// Why no stack was taken. Nil if one was.
        func refusal() throws -> String? {
            switch reporter.capture(target.processID, of: process, within: .seconds(5), isSample: false) {
            case .taken: return nil
            case .refused(let reason): return reason
            case .failed(let error): throw error
            }
        }
        // A thread that computes is held for its stack. How long, is known afterwards.
        #expect(try refusal() == nil)
        reporter.looked(at: 1, late: false)
        #expect(try #require(try refusal()).contains("budget"))
    }
}
