import StackCapture
import StallMonitor
import StallReports
import Symbolication
import TestSupport
import Testing

@Suite("watch and its cost budget", .serialized, .timeLimit(.minutes(10)))
struct WatchBudgetTests {
    @Test("Once the budget is used up no stack is taken, and the report says why")
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
        /// Why no stack was taken; nil if one was.
        func refusal() throws -> String? {
            let outcome = reporter.capture(target.processID, of: process, within: .seconds(60), isSample: false) { _ in
                .raced
            }
            switch outcome {
            case .captured, .raced: return nil
            case .unavailable(let reason): return reason
            case .failed(let error): throw error
            }
        }
        // A computing thread is held for its stack. The time it was held is known afterwards.
        #expect(try refusal() == nil)
        reporter.looked(at: 1, late: false)
        #expect(try #require(try refusal()).contains("budget"))
    }
}
