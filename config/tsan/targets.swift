// scripts/tsan appends this to Package.swift. Only the engine, its fixtures and its tests are left: a sanitizer is a setting of a whole build,
// and the other targets and packages take long to build and are not the subject of this test.

/// Programs with a separate main thread, which the tests run. Not `LoopDifferential`: it compares with Foundation, which is not
/// sanitized. Not `LoopCounts`: it counts allocations and system calls, and would count those of the sanitizer.
let sanitizedPrograms: Set = [
    "RunLoopFixture", "AsyncMainFixture", "ConcurrencyFixture", "ClientFixture", "PortsFixture", "PortsExample",
    // These also replace functions of the C library. Not linked into the test bundle.
    "CFaults", "FaultFixture", "ForkFixture", "LoopChurn",
]
let sanitized = sanitizedPrograms.union([
    "CRunLoopShims", "CRunLoopPorts", "Locking", "RunLoopKit", "RunLoopPorts", "StallReports",
    "TestSupport", "LoopTestSupport", "RunLoopKitTests", "RunLoopPortsTests",
])
package.name = "sanitized"
package.targets.removeAll { !sanitized.contains($0.name) }
package.products = []
package.traits = []
package.dependencies = []
