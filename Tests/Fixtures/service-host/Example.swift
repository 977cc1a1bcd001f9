import Logging
import ServiceLifecycle
import StallMonitor
import StallMonitorService
import UnixSignals

// Quoted by the documentation of StallMonitorService.

func serve(_ server: any Service, _ logger: Logger) async throws {
    let stalls = StallMonitorService(logger: logger, metrics: StallMetrics())
    let group = ServiceGroup(services: [stalls, server], gracefulShutdownSignals: [.sigterm], logger: logger)
    try await group.run()
}

func serviceOnATerminal(_ logger: Logger) -> StallMonitorService {
    let stalls = StallMonitorService(onEvent: StallLog(logger, form: .lines).callAsFunction)
    return stalls
}
