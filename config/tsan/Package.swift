// swift-tools-version: 6.2
import PackageDescription

// Only the engine, its fixtures and its tests, for scripts/tsan: a sanitizer is a setting of a whole build, and the other
// targets' dependencies take long to build and are not the subject of this test. The script links Sources and Tests beside this
// file. Keep it consistent with the Package.swift at the repository's root.

let swift: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .strictMemorySafety(),
    .treatAllWarnings(as: .error),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("InternalImportsByDefault"),
]
let client: [SwiftSetting] = [.swiftLanguageMode(.v6), .treatAllWarnings(as: .error)]

/// Programs with a separate main thread, which the tests run. Not `LoopDifferential`: it compares with Foundation, which is not
/// sanitized. Not `LoopCounts`: it counts allocations and system calls, and would count those of the sanitizer.
let fixtures = [
    "RunLoopFixture", "AsyncMainFixture", "ConcurrencyFixture", "ClientFixture", "PortsFixture", "PortsExample",
]
/// Programs that also replace functions of the C library. Not linked into the test bundle.
let faultFixtures = ["FaultFixture", "ForkFixture", "LoopChurn"]

func fixture(_ name: String, _ more: [Target.Dependency] = []) -> Target {
    .executableTarget(
        name: name,
        dependencies: ["RunLoopKit", "CRunLoopShims"] + more,
        path: "Tests/Fixtures/\(name)",
        swiftSettings: name == "ClientFixture" ? client : swift
    )
}

let package = Package(
    name: "sanitized",
    targets: [
        .target(name: "CRunLoopShims"),
        .target(name: "RunLoopKit", dependencies: ["CRunLoopShims"], exclude: ["README.md"], swiftSettings: swift),
        .target(name: "CFaults", path: "Tests/Fixtures/CFaults"),
        .testTarget(
            name: "RunLoopKitTests",
            dependencies: ["RunLoopKit", "CRunLoopShims"] + fixtures.map { .init(stringLiteral: $0) },
            exclude: ["Foreign/README.md"],
            swiftSettings: swift
        ),
    ] + fixtures.map { fixture($0) } + faultFixtures.map { fixture($0, ["CFaults"]) }
)
