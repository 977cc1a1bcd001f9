import Glibc
public import Testing

/// An environment variable. Nil if it is not set.
func testEnvironment(_ name: String) -> String? {
    unsafe getenv(name).map { unsafe String(cString: $0) }
}

/// Whether the long forms of tests are requested: `scripts/test --all`.
public let testsAllForms = testEnvironment("TEST_ALL") != nil

extension Trait where Self == ConditionTrait {
    /// The test is a long form of one that runs every time.
    public static var longForm: Self { .enabled(if: testsAllForms, "a long form: scripts/test --all") }
}
